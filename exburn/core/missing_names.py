"""Names that a module does not have, and what to write instead."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

from exburn.errors import did_you_mean
from exburn.errors.boundary import api_boundary

# Where a name is looked for that stands in another namespace.
_NAMESPACES = (
    "layers optimizers losses metrics callbacks initializers regularizers constraints"
    " activations ops models utils datasets applications random saving tuning export"
).split()


def refuser(
    module: str, instead: Mapping[str, str] | None = None
) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of a module all of whose names are there.

    Args:
        instead: What to write instead of names of Keras that the module does not have.

    Example:
        >>> refuser("exburn.layers")("Dens")
        Traceback (most recent call last):
        AttributeError: module 'exburn.layers' has no attribute 'Dens'
          → Did you mean 'Dense'?
    """

    @api_boundary
    def __getattr__(name: str) -> NoReturn:
        raise missing(module, name, instead)

    return __getattr__


def missing(
    module: str, name: str, instead: Mapping[str, str] | None = None
) -> AttributeError:
    """The error for a name that a module does not have; it knows Keras' names."""
    return AttributeError(_Text(module, name, (instead or {}).get(name, "")), name=name)


@dataclasses.dataclass(frozen=True, repr=False)
class _Text:
    """The text of an error, made when it is read: it looks into other namespaces.

    ``from package import module`` asks the package for a name first, drops the error,
    and imports the module.
    """

    module: str
    name: str
    hint: str

    def __str__(self) -> str:
        text = f"module {self.module!r} has no attribute {self.name!r}"
        hint = self.hint
        if not hint and not self.name.startswith("_"):
            hint = _elsewhere(self.module, self.name) or _alike(self.module, self.name)
        return f"{text}\n  → {hint}" if hint else text

    def __repr__(self) -> str:
        return repr(str(self))


def _elsewhere(module: str, name: str) -> str:
    """The namespace that has the name; the one that asks is not asked."""
    root = module.partition(".")[0]
    for space in _NAMESPACES:
        full = f"{root}.{space}"
        if full != module and name in _names(getattr(sys.modules[root], space, object)):
            return f"It is {full}.{name}."
    return ""


def _names(module: object) -> set[str]:
    """The names of a module, imported or listed."""
    return {*vars(module), *getattr(module, "__all__", ())}


def _alike(module: str, name: str) -> str:
    holder = sys.modules[module]
    public = getattr(holder, "__all__", ())
    return did_you_mean(name, public or [n for n in dir(holder) if n[:1] != "_"])
