"""Ops that act on every element by itself."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from exburn.ops.binding import bind, op

# fmt: off
__all__ = [
    "abs", "absolute", "add", "allclose", "angle", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "cbrt", "ceil", "clip", "conj", "conjugate", "copysign", "cos",
    "cosh", "deg2rad", "divide", "divide_no_nan", "equal", "exp", "exp2", "expm1",
    "fabs", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "gcd",
    "greater", "greater_equal", "heaviside", "hypot", "i0", "imag", "isclose",
    "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "lcm", "ldexp",
    "left_shift", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp",
    "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum",
    "minimum", "mod", "multiply", "nan_to_num", "negative", "nextafter", "not_equal",
    "power", "rad2deg", "real", "reciprocal", "right_shift", "round", "sign", "signbit",
    "sin", "sinc", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "true_divide",
    "trunc", "where",
]
# fmt: on

abs = bind(jnp.abs, "x, /")
absolute = bind(jnp.absolute, "x, /")
angle = bind(jnp.angle, "x, /")
arccos = bind(jnp.arccos, "x, /")
arccosh = bind(jnp.arccosh, "x, /")
arcsin = bind(jnp.arcsin, "x, /")
arcsinh = bind(jnp.arcsinh, "x, /")
arctan = bind(jnp.arctan, "x, /")
arctanh = bind(jnp.arctanh, "x, /")
bitwise_invert = bind(jnp.bitwise_invert, "x, /", "bitwise_invert")
bitwise_not = bind(jnp.bitwise_not, "x, /")
cbrt = bind(jnp.cbrt, "x, /")
conj = bind(jnp.conj, "x, /")
conjugate = bind(jnp.conjugate, "x, /")
cos = bind(jnp.cos, "x, /")
cosh = bind(jnp.cosh, "x, /")
deg2rad = bind(jnp.deg2rad, "x, /")
exp = bind(jnp.exp, "x, /")
exp2 = bind(jnp.exp2, "x, /")
expm1 = bind(jnp.expm1, "x, /")
fabs = bind(jnp.fabs, "x, /")
i0 = bind(jnp.i0, "x, /")
imag = bind(jnp.imag, "x, /")
isfinite = bind(jnp.isfinite, "x, /")
isinf = bind(jnp.isinf, "x, /")
isnan = bind(jnp.isnan, "x, /")
isneginf = bind(jnp.isneginf, "x, /")
isposinf = bind(jnp.isposinf, "x, /")
isreal = bind(jnp.isreal, "x, /")
log = bind(jnp.log, "x, /")
log10 = bind(jnp.log10, "x, /")
log1p = bind(jnp.log1p, "x, /")
log2 = bind(jnp.log2, "x, /")
logical_not = bind(jnp.logical_not, "x, /")
nan_to_num = bind(jnp.nan_to_num, "x, /, nan, posinf, neginf")
negative = bind(jnp.negative, "x, /")
rad2deg = bind(jnp.rad2deg, "x, /")
real = bind(jnp.real, "x, /")
reciprocal = bind(jnp.reciprocal, "x, /")
sign = bind(jnp.sign, "x, /")
signbit = bind(jnp.signbit, "x, /")
sin = bind(jnp.sin, "x, /")
sinc = bind(jnp.sinc, "x, /")
sinh = bind(jnp.sinh, "x, /")
sqrt = bind(jnp.sqrt, "x, /")
square = bind(jnp.square, "x, /")
tan = bind(jnp.tan, "x, /")
tanh = bind(jnp.tanh, "x, /")
trunc = bind(jnp.trunc, "x, /")

add = bind(jnp.add, "x1, x2, /")
allclose = bind(jnp.allclose, "x1, x2, /, rtol, atol, equal_nan")
arctan2 = bind(jnp.arctan2, "x1, x2, /")
bitwise_and = bind(jnp.bitwise_and, "x, y, /")
bitwise_left_shift = bind(jnp.bitwise_left_shift, "x, y, /", "bitwise_left_shift")
bitwise_or = bind(jnp.bitwise_or, "x, y, /")
bitwise_right_shift = bind(jnp.bitwise_right_shift, "x, y, /", "bitwise_right_shift")
bitwise_xor = bind(jnp.bitwise_xor, "x, y, /")
copysign = bind(jnp.copysign, "x1, x2, /")
divide = bind(jnp.divide, "x1, x2, /")
equal = bind(jnp.equal, "x1, x2, /")
float_power = bind(jnp.float_power, "x1, x2, /")
floor_divide = bind(jnp.floor_divide, "x1, x2, /")
fmax = bind(jnp.fmax, "x1, x2, /")
fmin = bind(jnp.fmin, "x1, x2, /")
fmod = bind(jnp.fmod, "x1, x2, /")
gcd = bind(jnp.gcd, "x1, x2, /")
greater = bind(jnp.greater, "x1, x2, /")
greater_equal = bind(jnp.greater_equal, "x1, x2, /")
heaviside = bind(jnp.heaviside, "x1, x2, /")
hypot = bind(jnp.hypot, "x1, x2, /")
isclose = bind(jnp.isclose, "x1, x2, /, rtol, atol, equal_nan")
lcm = bind(jnp.lcm, "x1, x2, /")
ldexp = bind(jnp.ldexp, "x1, x2, /")
left_shift = bind(jnp.left_shift, "x, y, /")
less = bind(jnp.less, "x1, x2, /")
less_equal = bind(jnp.less_equal, "x1, x2, /")
logaddexp = bind(jnp.logaddexp, "x1, x2, /")
logaddexp2 = bind(jnp.logaddexp2, "x1, x2, /")
logical_and = bind(jnp.logical_and, "x1, x2, /")
logical_or = bind(jnp.logical_or, "x1, x2, /")
logical_xor = bind(jnp.logical_xor, "x1, x2, /")
maximum = bind(jnp.maximum, "x1, x2, /")
minimum = bind(jnp.minimum, "x1, x2, /")
mod = bind(jnp.mod, "x1, x2, /")
multiply = bind(jnp.multiply, "x1, x2, /")
nextafter = bind(jnp.nextafter, "x1, x2, /")
not_equal = bind(jnp.not_equal, "x1, x2, /")
power = bind(jnp.power, "x1, x2, /")
right_shift = bind(jnp.right_shift, "x, y, /")
subtract = bind(jnp.subtract, "x1, x2, /")
true_divide = bind(jnp.true_divide, "x1, x2, /")
where = bind(jnp.where, "condition, x1, x2, /")

# Not of keras.ops.numpy but of keras.ops itself.
erf = bind(special.erf, "x, /")
erfc = bind(special.erfc, "x, /")
erfinv = bind(special.erfinv, "x, /")
gammainc = bind(special.gammainc, "x1, x2, /")
lgamma = bind(special.gammaln, "x, /", "lgamma")


@op
def ceil(x):
    """The smallest whole number that is not less than ``x``, as a float.

    Args:
        x: An array, or a symbol.

    Example:
        >>> ceil([-1.5, 2.1]).tolist()
        [-1.0, 3.0]
    """
    return jnp.ceil(_inexact(x))


@op
def floor(x):
    """The largest whole number that does not exceed ``x``, as a float.

    Args:
        x: An array, or a symbol.

    Example:
        >>> floor([-1.5, 2.1]).tolist()
        [-2.0, 2.0]
    """
    return jnp.floor(_inexact(x))


@op
def round(x, decimals: Any = 0):
    """``x`` to so many decimals; halves go to the even neighbour.

    Args:
        x: An array.
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
def clip(x, x_min, x_max):
    """``x``, but at least ``x_min`` and at most ``x_max``.

    Args:
        x: An array, or a symbol.
        x_min: The lower bound.
        x_max: The upper bound.

    Example:
        >>> clip([-1, 2, 5], 0, 3).tolist()
        [0, 2, 3]
    """
    return jnp.clip(x, x_min, x_max)


@op
def rsqrt(x):
    """``1 / sqrt(x)``.

    Args:
        x: An array, or a symbol.

    Example:
        >>> rsqrt(4).tolist()
        0.5
    """
    return lax.rsqrt(_inexact(x))


@op
def divide_no_nan(x1, x2):
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
