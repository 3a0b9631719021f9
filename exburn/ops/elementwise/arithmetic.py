"""Ops that add, divide, round and bound."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.ops.contract import op

__all__ = [
    "abs",
    "absolute",
    "add",
    "ceil",
    "clip",
    "copysign",
    "divide",
    "divide_no_nan",
    "fabs",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "lcm",
    "ldexp",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nan_to_num",
    "negative",
    "nextafter",
    "power",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "square",
    "subtract",
    "true_divide",
    "trunc",
]


# fmt: on
@op
def abs(x: Tensor) -> jax.Array:
    """The absolute values.

    It is ``jax.numpy.abs``, with Keras' arguments.

    Example:
        >>> abs([-1, 2]).tolist()
        [1, 2]
    """
    return jnp.abs(x)


@op
def absolute(x: Tensor) -> jax.Array:
    """The absolute values.

    It is ``jax.numpy.absolute``, with Keras' arguments.

    Example:
        >>> absolute([-1, 2]).tolist()
        [1, 2]
    """
    return jnp.absolute(x)


@op
def fabs(x: Tensor) -> jax.Array:
    """The absolute values as floats.

    It is ``jax.numpy.fabs``, with Keras' arguments.

    Example:
        >>> fabs([-1, 2]).tolist()
        [1.0, 2.0]
    """
    return jnp.fabs(x)


@op
def nan_to_num(
    x: Tensor,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> jax.Array:
    """Finite numbers in the place of NaN and of infinite entries.

    It is ``jax.numpy.nan_to_num``, with Keras' arguments.

    Args:
        nan: What replaces NaN.
        posinf: What replaces positive infinity; the largest number of the dtype by
            default.
        neginf: What replaces negative infinity; the lowest number of the dtype by
            default.

    Example:
        >>> import numpy as np
        >>> nan_to_num([1.0, np.nan]).tolist()
        [1.0, 0.0]
    """
    return jnp.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@op
def negative(x: Tensor) -> jax.Array:
    """The entries with the other sign.

    It is ``jax.numpy.negative``, with Keras' arguments.

    Example:
        >>> negative([1, -2]).tolist()
        [-1, 2]
    """
    return jnp.negative(x)


@op
def reciprocal(x: Tensor) -> jax.Array:
    """``1 / x``.

    It is ``jax.numpy.reciprocal``, with Keras' arguments.

    Example:
        >>> reciprocal([2.0]).tolist()
        [0.5]
    """
    return jnp.reciprocal(x)


@op
def sign(x: Tensor) -> jax.Array:
    """-1, 0 or 1, as the entries are below, at or above 0.

    It is ``jax.numpy.sign``, with Keras' arguments.

    Example:
        >>> sign([-3.0, 0.0, 5.0]).tolist()
        [-1.0, 0.0, 1.0]
    """
    return jnp.sign(x)


@op
def signbit(x: Tensor) -> jax.Array:
    """Tells whether each entry has a minus; -0.0 has one, too.

    It is ``jax.numpy.signbit``, with Keras' arguments.

    Example:
        >>> signbit([-1.0, 0.0]).tolist()
        [True, False]
    """
    return jnp.signbit(x)


@op
def square(x: Tensor) -> jax.Array:
    """``x * x``.

    It is ``jax.numpy.square``, with Keras' arguments.

    Example:
        >>> square([-3.0]).tolist()
        [9.0]
    """
    return jnp.square(x)


@op
def trunc(x: Tensor) -> jax.Array:
    """The entries without what is behind the point.

    It is ``jax.numpy.trunc``, with Keras' arguments.

    Example:
        >>> trunc([-1.7, 1.7]).tolist()
        [-1.0, 1.0]
    """
    return jnp.trunc(x)


@op
def add(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 + x2``.

    It is ``jax.numpy.add``, with Keras' arguments.

    Example:
        >>> add([1, 2], 3).tolist()
        [4, 5]
    """
    return jnp.add(x1, x2)


@op
def copysign(x1: Tensor, x2: Tensor) -> jax.Array:
    """The absolute values of ``x1`` with the signs of ``x2``, that of a zero, too.

    It is ``jax.numpy.copysign``, with Keras' arguments.

    Example:
        >>> copysign([1.0, -2.0], [-0.0, 3.0]).tolist()
        [-1.0, 2.0]
    """
    return jnp.copysign(x1, x2)


@op
def divide(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 / x2``, as floats.

    It is ``jax.numpy.divide``, with Keras' arguments.

    Example:
        >>> divide([1, 3], 2).tolist()
        [0.5, 1.5]
    """
    return jnp.divide(x1, x2)


@op
def float_power(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1`` to the power of ``x2``, in floats also where both are integers.

    It is ``jax.numpy.float_power``, with Keras' arguments.

    Example:
        >>> float_power([2, 4], [-1, 2]).tolist()
        [0.5, 16.0]
    """
    return jnp.float_power(x1, x2)


@op
def floor_divide(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 // x2``: the quotients, rounded down.

    It is ``jax.numpy.floor_divide``, with Keras' arguments.

    Example:
        >>> floor_divide([7, -7], 2).tolist()
        [3, -4]
    """
    return jnp.floor_divide(x1, x2)


@op
def fmax(x1: Tensor, x2: Tensor) -> jax.Array:
    """The larger of two entries; the other one where one is NaN.

    It is ``jax.numpy.fmax``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> fmax([1.0, np.nan], [2.0, 2.0]).tolist()
        [2.0, 2.0]
    """
    return jnp.fmax(x1, x2)


@op
def fmin(x1: Tensor, x2: Tensor) -> jax.Array:
    """The smaller of two entries; the other one where one is NaN.

    It is ``jax.numpy.fmin``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> fmin([1.0, np.nan], [2.0, 2.0]).tolist()
        [1.0, 2.0]
    """
    return jnp.fmin(x1, x2)


@op
def fmod(x1: Tensor, x2: Tensor) -> jax.Array:
    """The remainder of a division, with the sign of ``x1``.

    It is ``jax.numpy.fmod``, with Keras' arguments.

    Example:
        >>> fmod([7.0, -7.0], 4.0).tolist()
        [3.0, -3.0]
    """
    return jnp.fmod(x1, x2)


@op
def gcd(x1: Tensor, x2: Tensor) -> jax.Array:
    """The greatest common divisors.

    It is ``jax.numpy.gcd``, with Keras' arguments.

    Args:
        x1: Integers.

    Example:
        >>> gcd([12], [18]).tolist()
        [6]
    """
    return jnp.gcd(x1, x2)


@op
def heaviside(x1: Tensor, x2: Tensor) -> jax.Array:
    """0 below 0, 1 above it, and ``x2`` at 0.

    It is ``jax.numpy.heaviside``, with Keras' arguments.

    Example:
        >>> heaviside([-1.0, 0.0, 1.0], 0.5).tolist()
        [0.0, 0.5, 1.0]
    """
    return jnp.heaviside(x1, x2)


@op
def lcm(x1: Tensor, x2: Tensor) -> jax.Array:
    """The least common multiples.

    It is ``jax.numpy.lcm``, with Keras' arguments.

    Args:
        x1: Integers.

    Example:
        >>> lcm([4], [6]).tolist()
        [12]
    """
    return jnp.lcm(x1, x2)


@op
def ldexp(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 * 2 ** x2``.

    It is ``jax.numpy.ldexp``, with Keras' arguments.

    Example:
        >>> ldexp([0.5], [3]).tolist()
        [4.0]
    """
    return jnp.ldexp(x1, x2)


@op
def maximum(x1: Tensor, x2: Tensor) -> jax.Array:
    """The larger of two entries; NaN where one is NaN.

    It is ``jax.numpy.maximum``, with Keras' arguments.

    Example:
        >>> maximum([1, 3], 2).tolist()
        [2, 3]
    """
    return jnp.maximum(x1, x2)


@op
def minimum(x1: Tensor, x2: Tensor) -> jax.Array:
    """The smaller of two entries; NaN where one is NaN.

    It is ``jax.numpy.minimum``, with Keras' arguments.

    Example:
        >>> minimum([1, 3], 2).tolist()
        [1, 2]
    """
    return jnp.minimum(x1, x2)


@op
def mod(x1: Tensor, x2: Tensor) -> jax.Array:
    """The remainder of a division, with the sign of ``x2``.

    It is ``jax.numpy.mod``, with Keras' arguments.

    Example:
        >>> mod([7, -7], 4).tolist()
        [3, 1]
    """
    return jnp.mod(x1, x2)


@op
def multiply(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 * x2``, entry by entry.

    It is ``jax.numpy.multiply``, with Keras' arguments.

    Example:
        >>> multiply([1, 2], 3).tolist()
        [3, 6]
    """
    return jnp.multiply(x1, x2)


@op
def nextafter(x1: Tensor, x2: Tensor) -> jax.Array:
    """The next number of the dtype after ``x1`` on the way to ``x2``.

    It is ``jax.numpy.nextafter``, with Keras' arguments.

    Example:
        >>> bool(nextafter(1.0, 2.0) > 1.0)
        True
    """
    return jnp.nextafter(x1, x2)


@op
def power(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 ** x2``, entry by entry.

    It is ``jax.numpy.power``, with Keras' arguments.

    Example:
        >>> power([2.0, 3.0], 2).tolist()
        [4.0, 9.0]
    """
    return jnp.power(x1, x2)


@op
def subtract(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 - x2``.

    It is ``jax.numpy.subtract``, with Keras' arguments.

    Example:
        >>> subtract([1, 2], 3).tolist()
        [-2, -1]
    """
    return jnp.subtract(x1, x2)


@op
def true_divide(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 / x2``, as floats.

    It is ``jax.numpy.true_divide``, with Keras' arguments.

    Example:
        >>> true_divide([1, 3], 2).tolist()
        [0.5, 1.5]
    """
    return jnp.true_divide(x1, x2)


@op
def ceil(x: Tensor) -> jax.Array:
    """The smallest whole number that is not less than ``x``, as a float.

    Example:
        >>> ceil([-1.5, 2.1]).tolist()
        [-1.0, 3.0]
    """
    return jnp.ceil(_inexact(x))


@op
def floor(x: Tensor) -> jax.Array:
    """The largest whole number that does not exceed ``x``, as a float.

    Example:
        >>> floor([-1.5, 2.1]).tolist()
        [-2.0, 2.0]
    """
    return jnp.floor(_inexact(x))


@op
def round(x: Tensor, decimals: int = 0) -> jax.Array:
    """``x`` to so many decimals; halves go to the even neighbour.

    Args:
        decimals: How many; -1 rounds to tens.

    Example:
        >>> round([123, 235], -1).tolist()
        [120, 240]
    """
    whole = jnp.issubdtype(jnp.result_type(x), jnp.integer)
    if decimals < 0 and whole:  # JAX refuses that
        return jnp.round(_inexact(x), decimals).astype(x.dtype)
    return jnp.round(x, decimals)


@op
def clip(x: Tensor, x_min: Tensor, x_max: Tensor) -> jax.Array:
    """``x``, but at least ``x_min`` and at most ``x_max``.

    Args:
        x_min: The lower bound.
        x_max: The upper bound.

    Example:
        >>> clip([-1, 2, 5], 0, 3).tolist()
        [0, 2, 3]
    """
    return jnp.clip(x, x_min, x_max)


@op
def divide_no_nan(x1: Tensor, x2: Tensor) -> jax.Array:
    """``x1 / x2``, and 0 where ``x2`` is 0; its gradients are finite there.

    Args:
        x1: What is divided.
        x2: By what.

    Example:
        >>> divide_no_nan([1.0, 2.0], [0.0, 4.0]).tolist()
        [0.0, 0.5]
    """
    zero = jnp.equal(x2, 0)
    return jnp.where(zero, 0, jnp.divide(x1, jnp.where(zero, 1, x2)))


def _inexact(x):
    inexact = jnp.issubdtype(jnp.result_type(x), jnp.inexact)
    return jnp.asarray(x) if inexact else x * 1.0
