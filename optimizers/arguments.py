"""Checks of numeric arguments, with errors that name the argument and its value."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from exburn.errors import ArgumentError, DTypeError

__all__ = ["real", "whole"]


def real(
    op: str,
    name: str,
    value: Any,
    *,
    low: float = 0.0,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    optional: bool = False,
) -> Any:
    """Returns ``value`` as a float after checking that it is finite and in range.

    Args:
        op: Name of the class that was called, for the message.
        name: Name of the argument, for the message.
        value: A Python, NumPy or JAX scalar.
        low: Smallest value that is allowed.
        high: Largest value that is allowed.
        open_low: Whether ``low`` itself is refused.
        open_high: Whether ``high`` itself is refused.
        optional: Whether ``None`` is allowed, and returned as it is.

    Raises:
        DTypeError: ``value`` is not a real number.
        ArgumentError: ``value`` is NaN, infinite or out of range.

    Example:
        >>> real("SGD", "momentum", 1, high=1.0)
        1.0
    """
    if value is None and optional:
        return None
    value = _scalar(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DTypeError(op, f"{name} must be a number, received {value!r}")
    value = float(value)
    below = value <= low if open_low else value < low
    above = value >= high if open_high else value > high
    if not math.isfinite(value) or below or above:
        left = "(" if open_low or low == -math.inf else "["
        right = ")" if open_high or high == math.inf else "]"
        span = f"{left}{low:g}, {high:g}{right}"
        raise ArgumentError(
            op, f"{name} must be a finite number in {span}, received {value:g}"
        )
    return value


def whole(
    op: str, name: str, value: Any, *, low: int = 0, optional: bool = False
) -> Any:
    """Returns ``value`` as an int after checking that it is at least ``low``.

    Raises:
        DTypeError: ``value`` is not an integer.
        ArgumentError: ``value`` is smaller than ``low``.

    Example:
        >>> whole("CosineDecay", "decay_steps", 100, low=1)
        100
    """
    if value is None and optional:
        return None
    value = _scalar(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise DTypeError(op, f"{name} must be an integer, received {value!r}")
    if value < low:
        raise ArgumentError(op, f"{name} must be at least {low}, received {value}")
    return int(value)


def _scalar(value: Any) -> Any:
    """The Python number in an array without axes; anything else as it is."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value
