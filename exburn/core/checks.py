"""Checks of arguments, with errors that name the argument and its value."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from jax.core import Tracer

from exburn.errors import ArgumentError, DataError, DTypeError, ExBurnError

_T = TypeVar("_T")


def check_count(
    op: str,
    argument: str,
    value: Any,
    least: int = 1,
    *,
    floats: bool = False,
    error: type[ExBurnError] = ArgumentError,
) -> int:
    """The value as an ``int`` if it is a whole number of at least ``least``.

    Args:
        least: The smallest value that is allowed.
        floats: Whether a float that is whole, as 3.0, is one, too.

    Example:
        >>> check_count("Dense", "units", np.int64(3))
        3
        >>> check_count("Dense", "units", 0)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: Dense: units must be an integer ≥ 1, received 0
    """
    number = _integer(value, floats)
    if number is None or number < least:
        raise error(op, f"{argument} must be an integer ≥ {least}, received {value!r}")
    return number


def check_integer(op: str, argument: str, value: Any, *, floats: bool = False) -> int:
    """The value as an ``int`` if it is a whole number of any sign.

    Args:
        floats: Whether a float that is whole, as 3.0, is one, too.

    Example:
        >>> check_integer("BatchNormalization", "axis", np.int32(-1))
        -1
        >>> check_integer("IoU", "ignore_class", -1.0, floats=True)
        -1
    """
    number = _integer(value, floats)
    if number is None:
        raise ArgumentError(op, f"{argument} must be an integer, received {value!r}")
    return number


def check_number(
    op: str,
    argument: str,
    value: Any,
    low: float = 0.0,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    error: type[ExBurnError] = ArgumentError,
) -> float:
    """The value as a ``float`` if it is a finite number from ``low`` to ``high``.

    Args:
        low, high: The smallest and the largest value that are allowed.
        open_low, open_high: Whether these bounds themselves are refused.

    Example:
        >>> check_number("SGD", "momentum", np.float32(0.5), high=1)
        0.5
        >>> check_number("Adam", "beta_1", 1, high=1, open_high=True)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: Adam: beta_1 must be a number in [0, 1), received 1
    """
    number = _real(value)
    if number is not None and math.isfinite(number):
        above = number > low if open_low else number >= low
        below = number < high if open_high else number <= high
        if above and below:
            return float(number)
    if math.isinf(low) and math.isinf(high):
        kind = "finite number"
    elif math.isinf(high):
        kind = f"number {'>' if open_low else '≥'} {low:g}"
    elif open_low or open_high:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        kind = f"number in {left}{low:g}, {high:g}{right}"
    else:
        kind = f"number from {low:g} to {high:g}"
    raise error(op, f"{argument} must be a {kind}, received {value!r}")


def check_rate(op: str, argument: str, value: Any, *, below_one: bool = False) -> float:
    """The value as a ``float`` if it is a share, from 0 to 1.

    Args:
        below_one: Whether 1 itself is refused.

    Example:
        >>> check_rate("Dropout", "rate", np.float32(0.5))
        0.5
        >>> check_rate("LSTM", "dropout", 1, below_one=True)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: LSTM: dropout must be 0 <= dropout < 1, received 1
    """
    number = _real(value)
    if number is None or not 0 <= number <= 1 or (below_one and number == 1):
        limit = "<" if below_one else "<="
        must = f"{argument} must be 0 <= {argument} {limit} 1"
        raise ArgumentError(op, f"{must}, received {value!r}")
    return float(number)


def check_path(
    op: str, argument: str, value: Any, *, error: type[ExBurnError] = ArgumentError
) -> str:
    """The path of a file or folder, as text.

    Example:
        >>> check_path("CSVLogger", "filename", "log.csv")
        'log.csv'
    """
    with contextlib.suppress(TypeError):
        path = os.fspath(value)
        if path and isinstance(path, str):
            return path
    raise error(op, f"{argument} must be a path, received {value!r}")


def check_float(
    op: str, argument: str, value: Any, *, error: type[ExBurnError] = ArgumentError
) -> float:
    """The value as a ``float``, infinity and NaN too: text of a number is none.

    Example:
        >>> check_float("ELU", "alpha", np.float32(0.5))
        0.5
    """
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(value, str | bytes):
            return float(value)
    raise error(op, f"{argument} must be a number, received {value!r}")


def check_optional(
    check: Callable[..., _T], op: str, argument: str, value: Any, *args: Any, **options
) -> _T | None:
    """What a check of this module returns, or ``None`` for ``None``.

    Example:
        >>> check_optional(check_number, "SGD", "clipnorm", None, open_low=True)
        >>> check_optional(check_number, "SGD", "clipnorm", 1, open_low=True)
        1.0
    """
    return None if value is None else check(op, argument, value, *args, **options)


def check_choice(op: str, argument: str, value: Any, choices: Iterable[str]) -> str:
    """The value in lower case if it is one of the choices.

    Example:
        >>> check_choice("Conv2D", "padding", "SAME", ("valid", "same"))
        'same'
    """
    lower = value.lower() if isinstance(value, str) else value
    if lower not in choices:
        raise ArgumentError(
            op, f"{argument} is one of {', '.join(choices)}, received {value!r}"
        )
    return lower


def is_known(number: Any, value: float) -> bool:
    """Whether a number is a value: one that is a program's argument may be any.

    Example:
        >>> is_known(0.0, 0), is_known(None, 0)
        (True, False)
        >>> import jax
        >>> bool(jax.jit(lambda rate: is_known(rate, 0))(0.0))
        False
    """
    return not isinstance(number, Tracer) and number == value


def check_axis(op: str, value: Any) -> int | tuple[int, ...]:
    """The argument ``axis``: an integer, or a tuple of those of a sequence.

    Example:
        >>> check_axis("LayerNormalization", [1, 2])
        (1, 2)
    """
    if isinstance(value, list | tuple):
        return tuple(check_integer(op, "axis", item) for item in value)
    return check_integer(op, "axis", value)


def check_seed(op: str, value: Any) -> int | None:
    """The argument ``seed`` of what folds it into a key: an integer ≥ 0, or None.

    Example:
        >>> check_seed("Dropout", np.int64(3))
        3
    """
    return check_optional(check_count, op, "seed", value, 0)


def check_flag(op: str, argument: str, value: Any) -> bool:
    """The value as a ``bool`` if it is one: any text would count as true.

    Example:
        >>> check_flag("Dense", "trainable", np.True_)
        True
    """
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(op, f"{argument} must be True or False, received {value!r}")
    return bool(value)


def check_text(op: str, argument: str, value: Any) -> str:
    """The value, a name for instance, if it is text.

    Example:
        >>> check_text("Mean", "name", "loss")
        'loss'
    """
    if not isinstance(value, str):
        raise ArgumentError(op, f"{argument} must be text, received {value!r}")
    return value


def check_unicode(op: str, value: Any) -> str:
    """The value, if it is a text of Unicode characters, which UTF-8 can write.

    Example:
        >>> check_unicode("Tokenizer.encode", "naïve")
        'naïve'
    """
    if not isinstance(value, str):
        raise ArgumentError(op, f"a text is needed, received {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            op,
            "a text is of Unicode characters, received one with a lone surrogate",
            {"received": ascii(value[error.start]), "at character": error.start},
            hint="text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace') "
            "joins pairs, and puts a mark in the place of others.",
        ) from None
    return value


def check_not_of_keras(op: str, value: Any) -> None:
    """Raises for a layer, loss, metric or optimizer of the package ``keras``.

    They can be called, but keep what they compute with on Keras' side.
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


def _real(value: Any) -> Any:
    """The number, also out of an array without axes; ``None`` if it is none."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        with contextlib.suppress(TypeError):  # a tracer's value is not known
            value = value.item()
    return value if isinstance(value, Real) and not isinstance(value, bool) else None


def _integer(value: Any, floats: bool) -> int | None:
    """The whole number, also out of an array without axes; ``None`` if it is none."""
    number = _real(value)
    if floats and isinstance(number, float) and number.is_integer():
        return int(number)
    return int(number) if isinstance(number, Integral) else None


def refuse_sparse(op: str, sparse) -> None:
    """ExBurn has no sparse tensors, so nothing may ask for one."""
    if sparse:
        raise ArgumentError(
            op,
            "ExBurn has no sparse tensors",
            hint="Leave sparse=True out: the result is the same, dense.",
        )
