"""Methods that are functions of other files than their class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, TypeVar

_C = TypeVar("_C", bound=type)
_R = TypeVar("_R")
_S = TypeVar("_S")


def overridable(
    method: Callable[Concatenate[_S, ...], _R],
) -> Callable[Concatenate[_S, ...], _R]:
    """Decorator of a method that subclasses write with parameters of their own.

    To a type checker it takes anything, so that ``build(self, input_shape)`` is no
    incompatible override of ``build(self, *shapes)``. Nothing changes when it runs.

    Example:
        >>> def build(self, *shapes): ...
        >>> overridable(build) is build
        True
    """
    return method


def with_methods(cls: _C) -> _C:
    """Decorator of a class whose body lists functions of other files as its methods.

    Their ``self`` is annotated with the class, for type checkers: its name is none of
    theirs when they run, and ``typing.get_type_hints`` would look for it.
    """
    for value in vars(cls).values():
        leave_self_open(getattr(value, "__func__", value))
    return cls


def leave_self_open(method: Any) -> Any:
    """Takes the annotation of ``self`` from a function that a class has as its method.

    Example:
        >>> def area(self: "Circle"): ...
        >>> inspect.signature(leave_self_open(area))
        <Signature (self)>
    """
    function: Any = inspect.unwrap(method)
    if inspect.isfunction(function):
        function.__annotations__.pop("self", None)
    return method
