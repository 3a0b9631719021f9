"""Checks of arguments, with errors that name the argument and its value."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, DTypeError

__all__ = [
    "check_axis",
    "check_count",
    "check_flag",
    "check_float",
    "check_integer",
    "check_label",
    "check_not_of_keras",
    "check_number",
    "check_seed",
    "check_text",
]


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


def check_integer(op: str, argument: str, value: Any) -> int:
    """The value as an ``int`` if it is an integer of any sign.

    Raises:
        ArgumentError: It is anything else: a float, a bool, text.

    Example:
        >>> check_integer("BatchNormalization", "axis", np.int32(-1))
        -1
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ArgumentError(op, f"{argument} must be an integer, received {value!r}")
    return int(value)


def check_label(op: str, argument: str, value: Any) -> int:
    """The value as an ``int`` if it is a class label: a whole number, also a float.

    Raises:
        ArgumentError: It is anything else.

    Example:
        >>> check_label("IoU", "ignore_class", -1.0)
        -1
    """
    if isinstance(value, float | np.floating) and value.is_integer():
        value = int(value)
    return check_integer(op, argument, value)


def check_axis(op: str, value: Any) -> int | tuple[int, ...]:
    """The argument ``axis``: an integer, or a tuple of those of a sequence.

    Raises:
        ArgumentError: It is neither.

    Example:
        >>> check_axis("LayerNormalization", [1, 2])
        (1, 2)
    """
    if isinstance(value, list | tuple):
        return tuple(check_integer(op, "axis", item) for item in value)
    return check_integer(op, "axis", value)


def check_seed(op: str, value: Any) -> int | None:
    """The argument ``seed`` of what folds it into a key: an integer ≥ 0, or None.

    Raises:
        ArgumentError: It is neither.

    Example:
        >>> check_seed("Dropout", np.int64(3))
        3
    """
    if value is None:
        return None
    whole = isinstance(value, int | np.integer)
    if not whole or value < 0:
        raise ArgumentError(op, f"seed must be an integer ≥ 0, received {value!r}")
    return int(value)


def check_flag(op: str, argument: str, value: Any) -> bool:
    """The value as a ``bool`` if it is one: any text would count as true.

    Raises:
        ArgumentError: It is no bool.

    Example:
        >>> check_flag("Dense", "trainable", np.True_)
        True
    """
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(op, f"{argument} must be True or False, received {value!r}")
    return bool(value)


def check_text(op: str, argument: str, value: Any) -> str:
    """The value if it is text, as names are.

    Raises:
        ArgumentError: It is no ``str``.

    Example:
        >>> check_text("Mean", "name", "loss")
        'loss'
    """
    if not isinstance(value, str):
        raise ArgumentError(op, f"{argument} must be text, received {value!r}")
    return value


def check_float(op: str, argument: str, value: Any) -> float:
    """The value as a ``float``: text of a number is none, though ``float`` reads it.

    Raises:
        ArgumentError: It is no number.

    Example:
        >>> check_float("ELU", "alpha", np.float32(0.5))
        0.5
    """
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(value, str | bytes):
            return float(value)
    raise ArgumentError(op, f"{argument} must be a number, received {value!r}")


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
