"""Constructors that pass arguments on, or are those of a base with other defaults."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any


def arguments_for(target: Callable, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function that another one takes under the same names.

    Args:
        target: The other one, or the class whose constructor it is.
        given: The function's ``locals()``.

    Example:
        >>> def area(width, height=1):
        ...     return width * height
        >>> def volume(width, height, depth):
        ...     return area(**arguments_for(area, locals())) * depth
        >>> volume(2, 3, 4)
        24
    """
    return {name: given[name] for name in _names(target) if name in given}


@functools.cache
def _names(target: Callable) -> tuple[str, ...]:
    function = target.__init__ if isinstance(target, type) else target
    parameters = inspect.signature(function).parameters.values()
    listed = [
        p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    return tuple(name for name in listed if name != "self")


def with_default(function: Any, name: str, value: Any) -> Any:
    """A copy of a function in which a parameter has another default.

    Example:
        >>> def power(x, exponent=2):
        ...     return x**exponent
        >>> with_default(power, "exponent", 3)(2)
        8
    """
    optional = [
        p.replace(default=value) if p.name == name else p
        for p in inspect.signature(function).parameters.values()
        if p.default is not p.empty
    ]
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        argdefs=tuple(p.default for p in optional if p.kind is not p.KEYWORD_ONLY),
        closure=function.__closure__,
    )
    copy.__kwdefaults__ = {
        p.name: p.default for p in optional if p.kind is p.KEYWORD_ONLY
    }
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # by which `inspect` would find the other defaults
    return copy
