"""What teaches ``fit`` to read data of other libraries."""

from __future__ import annotations

from typing import Any, TypeVar

from exburn.errors import ArgumentError

_C = TypeVar("_C", bound=type)

ADAPTERS: list[Any] = []


def has_adapter(value: Any) -> bool:
    """Tells whether an adapter takes a value as one array.

    Example:
        >>> has_adapter([1, 2])
        False
    """
    return any(hasattr(a, "to_array") and a.accepts(value) for a in ADAPTERS)


def register_adapter(cls: _C) -> _C:
    """Makes ``fit``, ``evaluate`` and ``predict`` understand one more kind of data.

    The class has ``accepts(value) -> bool``, which must be quick and import nothing
    (look at ``type(value).__module__``), and one of ``load(value) -> ArrayDataset |
    StreamDataset`` (a loader of batches) or ``to_array(value, *, name, op) -> array``
    (something that stands for one array, anywhere in x, y or sample_weight). The
    last adapter registered is asked first. Usable as a decorator.

    Raises:
        ArgumentError: If a method is missing.

    Example:
        >>> import numpy as np
        >>> from exburn.data import as_dataset
        >>> class Range:
        ...     def accepts(self, value):
        ...         return isinstance(value, range)
        ...     def to_array(self, value, *, name, op):
        ...         return np.array(value)
        >>> _ = register_adapter(Range)
        >>> as_dataset(range(5)).size
        5
    """
    loads = hasattr(cls, "load") or hasattr(cls, "to_array")
    if not (hasattr(cls, "accepts") and loads):
        raise ArgumentError(
            "register_adapter",
            "an adapter needs accepts(value), and load(value) or to_array(value, …)",
            {"received": cls},
        )
    same = (cls.__module__, cls.__qualname__)
    ADAPTERS[:] = [
        a for a in ADAPTERS if (type(a).__module__, type(a).__qualname__) != same
    ]
    ADAPTERS.insert(0, cls())
    return cls
