"""The base of ExBurn's own classes in a catalogue."""

from __future__ import annotations

from typing import Any, ClassVar

from exburn.core.docstrings import complete_docstring
from exburn.errors.boundary import guard_methods


class CatalogueClass:
    """Base of the classes of a catalogue: those of ExBurn's own are completed.

    Attributes:
        _described_by: Classes, besides the bases, whose docstrings tell of arguments
            that the constructor takes, too.

    Example:
        >>> issubclass(CatalogueClass, object)
        True
    """

    _described_by: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] == "exburn":
            guard_methods(cls)
            complete_docstring(cls)
