"""Checks of arguments, with errors that name the argument and its value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, DTypeError

__all__ = ["check_count", "check_not_of_keras", "check_number"]


def check_count(op: str, argument: str, value: Any, least: int = 1) -> int:
    """The value as an ``int`` if it is a whole number of at least ``least``.

    Args:
        op: The operation named in the error.
        argument: The argument's name.
        value: An integer of Python's or NumPy's; no bool.
        least: The smallest value that is allowed.

    Raises:
        ArgumentError: It is anything else.

    Example:
        >>> check_count("Dense", "units", np.int64(3))
        3
        >>> check_count("Dense", "units", 0)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: Dense: units must be an integer ≥ 1, received 0
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ArgumentError(
            op, f"{argument} must be an integer ≥ {least}, received {value!r}"
        )
    return int(value)


def check_number(
    op: str, argument: str, value: Any, low: float = 0.0, high: float = math.inf
) -> float:
    """The value as a ``float`` if it is a finite number from ``low`` to ``high``.

    Args:
        op: The operation named in the error.
        argument: The argument's name.
        value: A number of Python's or NumPy's; no bool.
        low, high: The smallest and the largest value that are allowed.

    Raises:
        ArgumentError: It is anything else.

    Example:
        >>> check_number("Dropout", "rate", np.float32(0.5), 0, 1)
        0.5
    """
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not low <= value <= high or math.isinf(value):
        span = f"≥ {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise ArgumentError(
            op, f"{argument} must be a number {span}, received {value!r}"
        )
    return float(value)


def check_not_of_keras(op: str, value: Any) -> None:
    """Raises for a layer, loss, metric or optimizer of the package ``keras``.

    They can be called, but keep what they compute with on Keras' side.

    Raises:
        DTypeError: It is one, or of a class derived from one.
    """
    kinds = [c for c in type(value).__mro__ if c.__module__.startswith("keras.")]
    if kinds:
        area = kinds[0].__module__.removeprefix("keras.").removeprefix("src.")
        name = f"exburn.{area.split('.')[0]}.{kinds[0].__name__}"
        raise DTypeError(
            op,
            f"{type(value).__name__} is an object of the package keras, not of exburn",
            hint=f"Take {name}: is there an `import keras`, or a `from keras`?",
        )
