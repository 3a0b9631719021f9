"""Documentation of ops that are functions of JAX: a line, arguments, an example.

A block is the name of an op, the line, arguments that mean something of their own, and
the example; ``_ARGUMENTS`` has what the others mean. ``bind`` makes a docstring of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_ARGUMENTS = {
    "a": "An array.",
    "axis": "The axis.",
    "b": "An array.",
    "dtype": "Dtype of the result; it follows from the values by default.",
    "keepdims": "Whether the axes stay, with size 1.",
    "method": '``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or '
    '``"nearest"``: what is between two entries.',
    "q": "One value or several.",
    "variable": "An array or a weight.",
    "x": "An array.",
    "x1": "An array.",
    "x2": "An array whose shape broadcasts with that of ``x1``.",
    "xs": "A list of arrays.",
    "y": "An array whose shape broadcasts with that of ``x``.",
}
_IMPORTS = {"np.": ">>> import numpy as np", "jax.": ">>> import jax"}
_REDUCED = "The axes that go away, an integer or several; all of them by default."


class Description(NamedTuple):
    """The documentation of an op.

    Attributes:
        line: What it computes.
        arguments: Arguments by name, where the op has something to say of them.
        example: A session of Python.
    """

    line: str
    arguments: Mapping[str, str]
    example: Sequence[str]


def docstring(name: str, names: Sequence[str], function: Callable) -> str | None:
    """The docstring of an op; that of its function where there is nothing to add.

    Args:
        name: Name of the op.
        names: Its arguments.
        function: What it calls.
    """
    known = _descriptions().get(name)
    if known is None:
        return function.__doc__
    parts = [known.line, ""]
    if home := _home(function):
        parts += [f"It is ``{home}``, with Keras' arguments.", ""]
    parts.append("Args:")
    for key in names:
        said = known.arguments.get(key)
        if said is None and key == "axis" and "keepdims" in names:
            said = _REDUCED
        parts.append(f"    {key}: {said or _ARGUMENTS[key]}")
    used = [line for mark, line in _IMPORTS.items() if mark in " ".join(known.example)]
    parts += ["", "Example:", *(f"    {line}" for line in (*used, *known.example))]
    return "\n".join(parts) + "\n"


def _home(function: Any) -> str:
    """The public name of a function of JAX."""
    home, name = getattr(function, "__module__", "") or "", function.__name__
    return f"{home}.{name}" if home.startswith("jax.") and "._" not in home else ""


@functools.cache
def _descriptions() -> dict[str, Description]:
    """The blocks by name."""
    found = {}
    text: str = _TEXT
    for block in text.strip().split("\n\n"):
        name, line, *rest = block.splitlines()
        at = next(i for i, text in enumerate(rest) if text.startswith(">>> "))
        parts = [text.partition(": ") for text in rest[:at]]
        said = {key: text for key, _, text in parts}
        found[name] = Description(line, said, rest[at:])
    return found


_TEXT = """
celu
``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` below it: smooth for each ``alpha``.
alpha: The value that it falls to, with its sign turned.
>>> celu([0.0, 2.0]).tolist()
[0.0, 2.0]

elu
The exponential linear unit: ``x`` above 0, below it ``alpha * (exp(x) - 1)``.
alpha: The value that it falls to, with its sign turned.
>>> elu([0.0, 2.0]).tolist()
[0.0, 2.0]

gelu
The Gaussian error linear unit, ``x`` times the share of a normal distribution below it.
approximate: Whether the share is computed with ``tanh``, which is quicker.
>>> gelu([0.0, 10.0]).tolist()
[0.0, 10.0]

glu
The gated linear unit: one half of the axis times the sigmoid of the other half.
axis: The axis that is halved; its size is even.
>>> glu([4.0, 0.0]).tolist()
[2.0]

hard_sigmoid
A sigmoid of straight lines, ``clip(x / 6 + 0.5, 0, 1)``.
>>> hard_sigmoid([-3.0, 0.0, 3.0]).tolist()
[0.0, 0.5, 1.0]

hard_silu
``x * hard_sigmoid(x)``, a SiLU of straight lines.
>>> hard_silu([0.0, 3.0]).tolist()
[0.0, 3.0]

hard_tanh
``x``, cut at -1 and 1.
>>> hard_tanh([-3.0, 0.5, 3.0]).tolist()
[-1.0, 0.5, 1.0]

log_sigmoid
The logarithm of the sigmoid, without overflow.
>>> log_sigmoid([-100.0]).tolist()
[-100.0]

log_softmax
The logarithm of the softmax, without overflow.
axis: The axis along which probabilities sum to 1.
>>> log_softmax([0.0, -1000.0]).tolist()
[0.0, -1000.0]

relu6
``x``, cut at 0 and 6.
>>> relu6([-1.0, 2.0, 9.0]).tolist()
[0.0, 2.0, 6.0]

relu
``x`` above 0, and 0 below it.
>>> relu([-1.0, 2.0]).tolist()
[0.0, 2.0]

selu
The scaled exponential linear unit, which keeps mean 0 and variance 1.
>>> selu([0.0, -1000.0]).round(2).tolist()[0]
0.0

sigmoid
``1 / (1 + exp(-x))``, between 0 and 1.
>>> sigmoid([0.0]).tolist()
[0.5]

silu
``x * sigmoid(x)``, also called swish.
>>> silu([0.0, 100.0]).tolist()
[0.0, 100.0]

softplus
``log(1 + exp(x))``, a smooth rectifier, without overflow.
>>> softplus([-1000.0, 1000.0]).tolist()
[0.0, 1000.0]

softsign
``x / (1 + |x|)``, between -1 and 1.
>>> softsign([-1.0, 0.0, 3.0]).tolist()
[-0.5, 0.0, 0.75]

sparse_plus
A softplus that is exactly 0 below -1 and exactly ``x`` above 1.
>>> sparse_plus([-1.0, 0.0, 1.0]).tolist()
[0.0, 0.25, 1.0]

sparse_sigmoid
A line from 0 at -1 to 1 at 1, constant beyond.
>>> sparse_sigmoid([-1.0, 0.0, 1.0]).tolist()
[0.0, 0.5, 1.0]

append
The values of one array behind those of another.
x2: What is put behind it; it has the same other axes.
axis: The axis that grows; both are flattened by default.
>>> append([1, 2], [3]).tolist()
[1, 2, 3]

array_split
Parts of an array, which may differ in size by one.
indices_or_sections: How many parts, or where the next one begins.
axis: The axis that is split.
>>> [part.tolist() for part in array_split([1, 2, 3], 2)]
[[1, 2], [3]]

broadcast_to
The array repeated to another shape.
shape: The new shape.
>>> broadcast_to([1, 2], (2, 2)).tolist()
[[1, 2], [1, 2]]

concatenate
Arrays behind each other along an axis that they have.
axis: The axis that grows; the others have one size in all of them.
>>> concatenate([[1, 2], [3]]).tolist()
[1, 2, 3]

copy
A copy.
>>> copy([1, 2]).tolist()
[1, 2]

diag
The diagonal of a matrix, or a matrix with a diagonal.
x: A matrix, or the entries of a diagonal.
k: Which diagonal: above the main one if positive.
>>> diag([1, 2]).tolist()
[[1, 0], [0, 2]]

diagflat
A matrix whose diagonal has all entries of an array.
k: Which diagonal: above the main one if positive.
>>> diagflat([[1], [2]]).tolist()
[[1, 0], [0, 2]]

diagonal
A diagonal of each matrix, as the last axis.
offset: Which diagonal: above the main one if positive.
axis1: The axis of the rows.
axis2: The axis of the columns.
>>> diagonal([[1, 2], [3, 4]]).tolist()
[1, 4]

dsplit
Parts of an array along its third axis.
x: An array of at least three axes.
indices_or_sections: How many equal parts, or where the next one begins.
>>> [part.shape for part in dsplit(np.ones((1, 2, 4)), 2)]
[(1, 2, 2), (1, 2, 2)]

dstack
Arrays behind each other along a third axis.
>>> dstack([[1, 2], [3, 4]]).shape
(1, 2, 2)

expand_dims
The same values with an axis of size 1 more, or several.
axis: Where the new axes are, in the result.
>>> expand_dims([1, 2], 0).shape
(1, 2)

flip
The entries in the opposite order.
axis: The axes that are turned; all of them by default.
>>> flip([1, 2, 3]).tolist()
[3, 2, 1]

fliplr
The columns in the opposite order.
x: An array of at least two axes.
>>> fliplr([[1, 2], [3, 4]]).tolist()
[[2, 1], [4, 3]]

flipud
The rows in the opposite order.
>>> flipud([[1, 2], [3, 4]]).tolist()
[[3, 4], [1, 2]]

hsplit
Parts of an array along its second axis; of a vector along its only one.
indices_or_sections: How many equal parts, or where the next one begins.
>>> [part.tolist() for part in hsplit([1, 2, 3, 4], 2)]
[[1, 2], [3, 4]]

hstack
Arrays behind each other along the second axis; vectors along their only one.
>>> hstack([[1, 2], [3]]).tolist()
[1, 2, 3]

moveaxis
Axes at other places; the others keep their order.
source: Where they are.
destination: Where they go.
>>> moveaxis(np.ones((1, 2, 3)), 0, -1).shape
(2, 3, 1)

ravel
All entries in one axis, row by row.
>>> ravel([[1, 2], [3, 4]]).tolist()
[1, 2, 3, 4]

roll
Entries moved along an axis; what leaves at the end comes in at the beginning.
shift: How far, for each axis.
axis: Along which axes; all entries as one row by default.
>>> roll([1, 2, 3], 1).tolist()
[3, 1, 2]

rot90
Matrices turned counterclockwise.
array: An array of at least two axes.
k: How many quarters of a turn.
axes: The two axes of the plane.
>>> rot90([[1, 2], [3, 4]]).tolist()
[[2, 4], [1, 3]]

select
Entries of the first choice whose condition is true.
condlist: Boolean arrays.
choicelist: As many arrays of values.
default: What stands where no condition is true.
>>> select([np.array([True, False])], [np.array([1, 2])], 7).tolist()
[1, 7]

split
Equal parts of an array, or parts that begin at given indices.
indices_or_sections: How many equal parts, or where the next one begins.
axis: The axis that is split.
>>> [part.tolist() for part in split([1, 2, 3, 4], 2)]
[[1, 2], [3, 4]]

stack
Arrays of one shape along a new axis.
x: A list of arrays.
axis: Where the new axis is, in the result.
>>> stack([[1, 2], [3, 4]], axis=1).tolist()
[[1, 3], [2, 4]]

swapaxes
Two axes in each other's place.
axis1: One axis.
axis2: The other.
>>> swapaxes(np.ones((1, 2, 3)), 0, 2).shape
(3, 2, 1)

take
The entries at given places of an axis.
indices: Integers of any shape.
axis: The axis; all entries as one row by default.
>>> take([10, 20, 30], [2, 0]).tolist()
[30, 10]

tile
The array several times along each axis.
repeats: How often, for each axis.
>>> tile([1, 2], 2).tolist()
[1, 2, 1, 2]

trace
The sum of a diagonal of each matrix.
offset: Which diagonal: above the main one if positive.
axis1: The axis of the rows.
axis2: The axis of the columns.
>>> int(trace([[1, 2], [3, 4]]))
5

transpose
The axes in another order.
axes: The order; the opposite of theirs by default.
>>> transpose([[1, 2], [3, 4]]).tolist()
[[1, 3], [2, 4]]

tril
Matrices with 0 above a diagonal.
k: Which diagonal: above the main one if positive.
>>> tril([[1, 2], [3, 4]]).tolist()
[[1, 0], [3, 4]]

triu
Matrices with 0 below a diagonal.
k: Which diagonal: above the main one if positive.
>>> triu([[1, 2], [3, 4]]).tolist()
[[1, 2], [0, 4]]

unravel_index
The row, column, … of entries that are counted row by row.
indices: Integers of any shape.
shape: Shape of the array that they point into.
>>> [int(i) for i in unravel_index(5, (2, 3))]
[1, 2]

vsplit
Parts of an array along its first axis.
x: An array of at least two axes.
indices_or_sections: How many equal parts, or where the next one begins.
>>> [part.tolist() for part in vsplit([[1], [2]], 2)]
[[[1]], [[2]]]

vstack
Arrays behind each other along the first axis; vectors as rows.
>>> vstack([[1, 2], [3, 4]]).tolist()
[[1, 2], [3, 4]]

stop_gradient
The same values, through which no gradient flows.
>>> jax.grad(lambda x: x * stop_gradient(x))(3.0).tolist()
3.0

arange
Numbers with equal steps between them.
start: The first one, or where to end if it is the only one; then 0 is the first.
stop: Where to end: this one is left out.
step: From one to the next.
>>> arange(1, 7, 2).tolist()
[1, 3, 5]

bartlett
The Bartlett window, a triangle with 0 at both ends.
x: How many values.
>>> bartlett(3).tolist()
[0.0, 1.0, 0.0]

blackman
The Blackman window, a sum of three cosines.
x: How many values.
>>> blackman(3).shape
(3,)

empty_like
An array of the same shape whose values nobody relies on.
>>> empty_like([[1, 2]]).shape
(1, 2)

full_like
An array of the same shape with one value.
fill_value: The value.
>>> full_like([1, 2], 7).tolist()
[7, 7]

geomspace
Numbers with equal ratios between them.
start: The first one.
stop: The last one.
num: How many.
endpoint: Whether the last one is among them.
axis: Where they lie, if the ends are arrays.
>>> geomspace(1.0, 4.0, 3).round(4).tolist()
[1.0, 2.0, 4.0]

hamming
The Hamming window, a raised cosine.
x: How many values.
>>> hamming(3).shape
(3,)

hanning
The Hann window, a cosine raised to 0 at both ends.
x: How many values.
>>> hanning(3).tolist()
[0.0, 1.0, 0.0]

kaiser
The Kaiser window.
x: How many values.
beta: How narrow it is; a rectangle at 0.
>>> kaiser(3, 0.0).tolist()
[1.0, 1.0, 1.0]

linspace
Numbers with equal differences between them.
start: The first one.
stop: The last one.
num: How many.
endpoint: Whether the last one is among them.
retstep: Whether the difference is returned, too.
axis: Where they lie, if the ends are arrays.
>>> linspace(0.0, 1.0, 5).tolist()
[0.0, 0.25, 0.5, 0.75, 1.0]

logspace
Powers whose exponents have equal differences.
start: The first exponent.
stop: The last exponent.
num: How many.
endpoint: Whether the last one is among them.
base: What is raised to them.
axis: Where they lie, if the ends are arrays.
>>> logspace(0.0, 2.0, 3, base=2.0).tolist()
[1.0, 2.0, 4.0]

ones_like
An array of ones of the same shape.
>>> ones_like([5, 6]).tolist()
[1, 1]

vander
A matrix of powers, a row for each entry (Vandermonde).
x: A vector.
N: How many powers; as many as entries by default.
increasing: Whether the powers rise from left to right.
>>> vander([1, 2, 3], 2).tolist()
[[1, 1], [2, 1], [3, 1]]

zeros_like
An array of zeros of the same shape.
>>> zeros_like([5, 6]).tolist()
[0, 0]

abs
The absolute values.
>>> abs([-1, 2]).tolist()
[1, 2]

absolute
The absolute values.
>>> absolute([-1, 2]).tolist()
[1, 2]

angle
The angles of complex numbers, in radians.
>>> angle([1.0 + 0j]).tolist()
[0.0]

arccos
The inverse of the cosine, in radians; NaN beyond -1 and 1.
>>> arccos([1.0]).tolist()
[0.0]

arccosh
The inverse of the hyperbolic cosine; NaN below 1.
>>> arccosh([1.0]).tolist()
[0.0]

arcsin
The inverse of the sine, in radians; NaN beyond -1 and 1.
>>> arcsin([0.0]).tolist()
[0.0]

arcsinh
The inverse of the hyperbolic sine.
>>> arcsinh([0.0]).tolist()
[0.0]

arctan
The inverse of the tangent, in radians.
>>> arctan([0.0]).tolist()
[0.0]

arctanh
The inverse of the hyperbolic tangent; NaN beyond -1 and 1.
>>> arctanh([0.0]).tolist()
[0.0]

bitwise_invert
Every bit turned; of booleans the opposite.
x: Integers or booleans.
>>> bitwise_invert([0, 5]).tolist()
[-1, -6]

bitwise_not
Every bit turned; of booleans the opposite.
x: Integers or booleans.
>>> bitwise_not([0, 5]).tolist()
[-1, -6]

cbrt
The cube roots.
>>> cbrt([8.0]).round(4).tolist()
[2.0]

conj
The complex conjugates.
>>> conj([1 + 2j]).tolist()
[(1-2j)]

conjugate
The complex conjugates.
>>> conjugate([1 + 2j]).tolist()
[(1-2j)]

cos
The cosine of angles in radians.
>>> cos([0.0]).tolist()
[1.0]

cosh
The hyperbolic cosine.
>>> cosh([0.0]).tolist()
[1.0]

deg2rad
Degrees as radians.
>>> bool(allclose(deg2rad([180.0]), np.pi))
True

exp
The exponential function.
>>> exp([0.0]).tolist()
[1.0]

exp2
Powers of two.
>>> exp2([3.0]).tolist()
[8.0]

expm1
``exp(x) - 1``, exact near 0.
>>> expm1([0.0]).tolist()
[0.0]

fabs
The absolute values as floats.
>>> fabs([-1, 2]).tolist()
[1.0, 2.0]

i0
The modified Bessel function of the first kind, of order 0.
>>> i0([0.0]).round(4).tolist()
[1.0]

imag
The imaginary parts.
>>> imag([1 + 2j]).tolist()
[2.0]

isfinite
Tells whether each entry is neither infinite nor NaN.
>>> isfinite([1.0, np.inf, np.nan]).tolist()
[True, False, False]

isinf
Tells whether each entry is infinite.
>>> isinf([1.0, -np.inf, np.nan]).tolist()
[False, True, False]

isnan
Tells whether each entry is NaN.
>>> isnan([1.0, np.inf, np.nan]).tolist()
[False, False, True]

isneginf
Tells whether each entry is negative and infinite.
>>> isneginf([1.0, -np.inf, np.inf]).tolist()
[False, True, False]

isposinf
Tells whether each entry is positive and infinite.
>>> isposinf([1.0, -np.inf, np.inf]).tolist()
[False, False, True]

isreal
Tells whether each entry has no imaginary part.
>>> isreal([1 + 2j, 3]).tolist()
[False, True]

log
The natural logarithm.
>>> log([1.0]).tolist()
[0.0]

log10
The logarithm to base 10.
>>> log10([100.0]).round(4).tolist()
[2.0]

log1p
``log(1 + x)``, exact near 0.
>>> log1p([0.0]).tolist()
[0.0]

log2
The logarithm to base 2.
>>> log2([8.0]).round(4).tolist()
[3.0]

logical_not
Tells whether each entry is false, or 0.
>>> logical_not([True, False]).tolist()
[False, True]

nan_to_num
Finite numbers in the place of NaN and of infinite entries.
nan: What replaces NaN.
posinf: What replaces positive infinity; the largest number of the dtype by default.
neginf: What replaces negative infinity; the lowest number of the dtype by default.
>>> nan_to_num([1.0, np.nan]).tolist()
[1.0, 0.0]

negative
The entries with the other sign.
>>> negative([1, -2]).tolist()
[-1, 2]

rad2deg
Radians as degrees.
>>> rad2deg([np.pi]).round().tolist()
[180.0]

real
The real parts.
>>> real([1 + 2j]).tolist()
[1.0]

reciprocal
``1 / x``.
>>> reciprocal([2.0]).tolist()
[0.5]

sign
-1, 0 or 1, as the entries are below, at or above 0.
>>> sign([-3.0, 0.0, 5.0]).tolist()
[-1.0, 0.0, 1.0]

signbit
Tells whether each entry has a minus; -0.0 has one, too.
>>> signbit([-1.0, 0.0]).tolist()
[True, False]

sin
The sine of angles in radians.
>>> sin([0.0]).tolist()
[0.0]

sinc
``sin(π x) / (π x)``, 1 at 0.
>>> sinc([0.0]).tolist()
[1.0]

sinh
The hyperbolic sine.
>>> sinh([0.0]).tolist()
[0.0]

sqrt
The square roots; NaN of what is below 0.
>>> sqrt([9.0]).tolist()
[3.0]

square
``x * x``.
>>> square([-3.0]).tolist()
[9.0]

tan
The tangent of angles in radians.
>>> tan([0.0]).tolist()
[0.0]

tanh
The hyperbolic tangent, between -1 and 1.
>>> tanh([0.0]).tolist()
[0.0]

trunc
The entries without what is behind the point.
>>> trunc([-1.7, 1.7]).tolist()
[-1.0, 1.0]

add
``x1 + x2``.
>>> add([1, 2], 3).tolist()
[4, 5]

allclose
Tells whether all entries of two arrays are close to each other.
rtol: By how much they may differ, as a share of ``x2``.
atol: By how much they may differ beside that.
equal_nan: Whether NaN is close to NaN.
>>> bool(allclose([1.0], [1.0 + 1e-7]))
True

arctan2
The angle of the point ``(x2, x1)``, in radians between -π and π.
x1: Its height.
x2: How far it is to the right.
>>> arctan2([0.0], [1.0]).tolist()
[0.0]

bitwise_and
The bits that both have.
x: Integers or booleans.
>>> bitwise_and([6], [3]).tolist()
[2]

bitwise_left_shift
The bits of ``x``, moved left by ``y``.
x: Integers.
>>> bitwise_left_shift([1], [3]).tolist()
[8]

bitwise_or
The bits that one of them has.
x: Integers or booleans.
>>> bitwise_or([6], [3]).tolist()
[7]

bitwise_right_shift
The bits of ``x``, moved right by ``y``.
x: Integers.
>>> bitwise_right_shift([8], [3]).tolist()
[1]

bitwise_xor
The bits that exactly one of them has.
x: Integers or booleans.
>>> bitwise_xor([6], [3]).tolist()
[5]

divide
``x1 / x2``, as floats.
>>> divide([1, 3], 2).tolist()
[0.5, 1.5]

equal
Tells whether ``x1 == x2``, entry by entry.
>>> equal([1, 2], [1, 3]).tolist()
[True, False]

float_power
``x1`` to the power of ``x2``, in floats also where both are integers.
>>> float_power([2, 4], [-1, 2]).tolist()
[0.5, 16.0]

floor_divide
``x1 // x2``: the quotients, rounded down.
>>> floor_divide([7, -7], 2).tolist()
[3, -4]

fmax
The larger of two entries; the other one where one is NaN.
>>> fmax([1.0, np.nan], [2.0, 2.0]).tolist()
[2.0, 2.0]

fmin
The smaller of two entries; the other one where one is NaN.
>>> fmin([1.0, np.nan], [2.0, 2.0]).tolist()
[1.0, 2.0]

fmod
The remainder of a division, with the sign of ``x1``.
>>> fmod([7.0, -7.0], 4.0).tolist()
[3.0, -3.0]

gcd
The greatest common divisors.
x1: Integers.
>>> gcd([12], [18]).tolist()
[6]

greater
Tells whether ``x1 > x2``, entry by entry.
>>> greater([1, 3], 2).tolist()
[False, True]

greater_equal
Tells whether ``x1 >= x2``, entry by entry.
>>> greater_equal([1, 2], 2).tolist()
[False, True]

heaviside
0 below 0, 1 above it, and ``x2`` at 0.
>>> heaviside([-1.0, 0.0, 1.0], 0.5).tolist()
[0.0, 0.5, 1.0]

hypot
``sqrt(x1² + x2²)``, without overflow.
>>> hypot([3.0], [4.0]).tolist()
[5.0]

isclose
Tells whether entries are close to each other, entry by entry.
rtol: By how much they may differ, as a share of ``x2``.
atol: By how much they may differ beside that.
equal_nan: Whether NaN is close to NaN.
>>> isclose([1.0, 2.0], [1.0, 3.0]).tolist()
[True, False]

lcm
The least common multiples.
x1: Integers.
>>> lcm([4], [6]).tolist()
[12]

ldexp
``x1 * 2 ** x2``.
>>> ldexp([0.5], [3]).tolist()
[4.0]

left_shift
The bits of ``x``, moved left by ``y``.
x: Integers.
>>> left_shift([1], [3]).tolist()
[8]

less
Tells whether ``x1 < x2``, entry by entry.
>>> less([1, 3], 2).tolist()
[True, False]

less_equal
Tells whether ``x1 <= x2``, entry by entry.
>>> less_equal([2, 3], 2).tolist()
[True, False]

logaddexp
``log(exp(x1) + exp(x2))``, without overflow.
>>> logaddexp([1000.0], [0.0]).tolist()
[1000.0]

logaddexp2
``log2(2 ** x1 + 2 ** x2)``, without overflow.
>>> logaddexp2([1000.0], [0.0]).tolist()
[1000.0]

logical_and
Tells whether both are true, entry by entry.
>>> logical_and([True, True], [True, False]).tolist()
[True, False]

logical_or
Tells whether one is true, entry by entry.
>>> logical_or([True, False], [False, False]).tolist()
[True, False]

logical_xor
Tells whether exactly one is true, entry by entry.
>>> logical_xor([True, True], [True, False]).tolist()
[False, True]

maximum
The larger of two entries; NaN where one is NaN.
>>> maximum([1, 3], 2).tolist()
[2, 3]

minimum
The smaller of two entries; NaN where one is NaN.
>>> minimum([1, 3], 2).tolist()
[1, 2]

mod
The remainder of a division, with the sign of ``x2``.
>>> mod([7, -7], 4).tolist()
[3, 1]

multiply
``x1 * x2``, entry by entry.
>>> multiply([1, 2], 3).tolist()
[3, 6]

nextafter
The next number of the dtype after ``x1`` on the way to ``x2``.
>>> bool(nextafter(1.0, 2.0) > 1.0)
True

not_equal
Tells whether ``x1 != x2``, entry by entry.
>>> not_equal([1, 2], [1, 3]).tolist()
[False, True]

power
``x1 ** x2``, entry by entry.
>>> power([2.0, 3.0], 2).tolist()
[4.0, 9.0]

right_shift
The bits of ``x``, moved right by ``y``.
x: Integers.
>>> right_shift([8], [3]).tolist()
[1]

subtract
``x1 - x2``.
>>> subtract([1, 2], 3).tolist()
[-2, -1]

true_divide
``x1 / x2``, as floats.
>>> true_divide([1, 3], 2).tolist()
[0.5, 1.5]

where
Entries of ``x1`` where a condition is true, and else of ``x2``.
condition: Booleans; alone, the result is the places where they are true.
x1: Values.
x2: Values. The three shapes broadcast.
>>> where([True, False], [1, 2], [3, 4]).tolist()
[1, 4]

erf
The error function.
>>> erf([0.0]).tolist()
[0.0]

erfc
``1 - erf(x)``, exact for large ``x``.
>>> erfc([0.0]).tolist()
[1.0]

erfinv
The inverse of the error function; NaN beyond -1 and 1.
>>> erfinv([0.0]).tolist()
[0.0]

gammainc
The regularized lower incomplete gamma function, from 0 at ``x2 = 0`` towards 1.
x1: The shape parameter.
x2: Where the integral ends.
>>> gammainc([1.0], [0.0]).tolist()
[0.0]

lgamma
The logarithm of the absolute value of the gamma function.
>>> lgamma([1.0, 2.0]).tolist()
[0.0, 0.0]

det
The determinants of square matrices.
x: Matrices ``[…, n, n]``.
>>> float(det([[2.0, 0.0], [0.0, 3.0]]))
6.0

eig
Eigenvalues and eigenvectors of square matrices, both complex; on the CPU alone.
x: Matrices ``[…, n, n]``.
>>> values, vectors = eig(np.diag([2.0, 3.0]))
>>> values.real.tolist(), vectors.shape
([2.0, 3.0], (2, 2))

eigh
Eigenvalues, in rising order, and eigenvectors of symmetric matrices.
x: Symmetric or Hermitian matrices ``[…, n, n]``.
>>> values, vectors = eigh([[3.0, 0.0], [0.0, 2.0]])
>>> values.tolist(), vectors.shape
([2.0, 3.0], (2, 2))

inv
The inverses of square matrices.
x: Matrices ``[…, n, n]``.
>>> inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
[[0.5, 0.0], [0.0, 0.25]]

norm
The norm of vectors or of matrices.
ord: Which norm: ``None`` (2, or Frobenius), ``"fro"``, ``"nuc"``, ``inf``, or a number.
axis: One axis of vectors or two of matrices; all entries by default.
>>> float(norm([3.0, 4.0]))
5.0

pinv
The pseudoinverses of matrices (Moore and Penrose).
x: Matrices ``[…, m, n]``.
rcond: Singular values below this share of the largest count as 0.
>>> pinv([[2.0], [0.0]]).round(4).tolist()
[[0.5, 0.0]]

qr
An orthogonal and an upper triangular matrix whose product is the matrix.
x: Matrices ``[…, m, n]``.
mode: ``"reduced"``, ``"complete"`` (the first one is square), or ``"r"``.
>>> [part.shape for part in qr(np.ones((3, 2)))]
[(3, 2), (2, 2)]

solve
The ``x`` with ``a x = b``.
a: Matrices ``[…, n, n]``.
b: Right-hand sides ``[…, n]`` or ``[…, n, k]``.
>>> solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).tolist()
[1.0, 0.5]

solve_triangular
The ``x`` with ``a x = b`` of a triangular ``a``.
a: Triangular matrices ``[…, n, n]``.
b: Right-hand sides ``[…, n]`` or ``[…, n, k]``.
lower: Whether the entries are below the diagonal.
>>> solve_triangular([[2.0, 0.0], [1.0, 1.0]], [2.0, 3.0], lower=True).tolist()
[1.0, 2.0]

svd
Singular values, with the vectors at their left and right.
x: Matrices ``[…, m, n]``.
full_matrices: Whether the vectors are square matrices.
compute_uv: Whether vectors are returned; only the values are otherwise.
>>> svd(np.diag([2.0, 3.0]), compute_uv=False).round(4).tolist()
[3.0, 2.0]

column_stack
Vectors as the columns of a matrix; matrices one beside the other.
>>> column_stack([[1, 2], [3, 4]]).tolist()
[[1, 3], [2, 4]]

copysign
The absolute values of ``x1`` with the signs of ``x2``, that of a zero, too.
>>> copysign([1.0, -2.0], [-0.0, 3.0]).tolist()
[-1.0, 2.0]

corrcoef
The correlations between the rows of a matrix.
x: ``[variables, observations]``.
>>> corrcoef([[1.0, 2.0], [2.0, 4.0]]).round(4).tolist()
[[1.0, 1.0], [1.0, 1.0]]

correlate
The products' sums of two vectors, one moved along the other.
x1: A vector.
x2: A vector.
mode: ``"valid"`` (they overlap entirely), ``"same"`` or ``"full"``.
>>> correlate([1.0, 2.0, 3.0], [1.0, 1.0]).tolist()
[3.0, 5.0]

cross
The vector at right angles to two vectors of three entries.
axisa: The axis of the vectors in ``x1``.
axisb: The axis of the vectors in ``x2``.
axisc: The axis of the vectors in the result.
axis: All three of these.
>>> cross([1, 0, 0], [0, 1, 0]).tolist()
[0, 0, 1]

dot
The product of the last axis of one with the last but one of the other.
x2: An array; a vector has one axis for both.
>>> int(dot([1, 2], [3, 4]))
11

inner
The product of the last axes of two arrays.
x2: An array whose last axis is as long.
>>> int(inner([1, 2], [3, 4]))
11

kron
The Kronecker product: the second array, times each entry of the first.
x2: An array.
>>> kron([1, 10], [1, 2]).tolist()
[1, 2, 10, 20]

outer
Each entry of the first array times each of the second, as a matrix.
x2: An array; both are flattened.
>>> outer([1, 2], [3, 4]).tolist()
[[3, 4], [6, 8]]

slogdet
Sign and logarithm of the determinants of square matrices.
x: Matrices ``[…, n, n]``.
>>> [float(part) for part in slogdet([[1.0, 0.0], [0.0, 1.0]])]
[1.0, 0.0]

tensordot
The product of two arrays along some of their axes.
x2: An array.
axes: How many of the last axes of ``x1``, or a list of axes for each of them.
>>> tensordot(np.ones((2, 3)), np.ones((3, 4)), 1).shape
(2, 4)

vdot
The product of two arrays as vectors, the first one conjugated.
x2: An array of as many entries.
>>> int(vdot([1, 2], [3, 4]))
11

all
Tells whether all entries along axes are true.
>>> all([[True, False], [True, True]], axis=1).tolist()
[False, True]

amax
The largest entries along axes.
initial: What the result is at least.
>>> amax([[1, 4], [3, 2]], axis=1).tolist()
[4, 3]

amin
The smallest entries along axes.
initial: What the result is at most.
>>> amin([[1, 4], [3, 2]], axis=1).tolist()
[1, 2]

any
Tells whether an entry along axes is true.
>>> any([[True, False], [False, False]], axis=1).tolist()
[True, False]

argmax
The places of the largest entries; the first of several.
axis: The axis; all entries as one row by default.
>>> argmax([[1, 4], [3, 2]], axis=1).tolist()
[1, 0]

argmin
The places of the smallest entries; the first of several.
axis: The axis; all entries as one row by default.
>>> argmin([[1, 4], [3, 2]], axis=1).tolist()
[0, 1]

average
The mean, weighted.
axis: The axes that go away, an integer or several; all of them by default.
weights: A weight for each entry, or for each place of the axis; equal ones by default.
>>> float(average([1.0, 3.0], weights=[3.0, 1.0]))
1.5

count_nonzero
The number of entries along axes that are not 0.
axis: The axes that go away, an integer or several; all of them by default.
>>> int(count_nonzero([0, 1, 2]))
2

cumprod
The products of all entries up to each place.
axis: The axis; all entries as one row by default.
>>> cumprod([1, 2, 3]).tolist()
[1, 2, 6]

cumsum
The sums of all entries up to each place.
axis: The axis; all entries as one row by default.
>>> cumsum([1, 2, 3]).tolist()
[1, 3, 6]

diff
The differences between neighbours.
n: How often they are taken.
axis: The axis along which they are neighbours.
>>> diff([1, 4, 9]).tolist()
[3, 5]

digitize
The interval that each entry falls into.
bins: The bounds between intervals, in order.
>>> digitize([0.5, 1.5], [1.0, 2.0]).tolist()
[0, 1]

isin
Tells whether each entry is among given ones.
x2: The entries that are looked for.
assume_unique: Whether neither has an entry twice, which may be quicker.
invert: Whether to ask for those that are not among them.
>>> isin([1, 2, 3], [2]).tolist()
[False, True, False]

logsumexp
``log(sum(exp(x)))`` along axes, without overflow.
>>> float(logsumexp([1000.0, 0.0]))
1000.0

max
The largest entries along axes.
initial: What the result is at least.
>>> max([[1, 4], [3, 2]], axis=1).tolist()
[4, 3]

mean
The means along axes.
>>> float(mean([1.0, 2.0, 3.0]))
2.0

median
The medians along axes.
>>> float(median([1.0, 9.0, 2.0]))
2.0

min
The smallest entries along axes.
initial: What the result is at most.
>>> min([[1, 4], [3, 2]], axis=1).tolist()
[1, 2]

nanargmax
The places of the largest entries that are not NaN.
axis: The axis; all entries as one row by default.
>>> int(nanargmax([np.nan, 1.0, 2.0]))
2

nanargmin
The places of the smallest entries that are not NaN.
axis: The axis; all entries as one row by default.
>>> int(nanargmin([np.nan, 1.0, 2.0]))
1

nancumprod
The products of all entries up to each place, NaN as 1.
axis: The axis; all entries as one row by default.
>>> nancumprod([2.0, np.nan, 3.0]).tolist()
[2.0, 2.0, 6.0]

nancumsum
The sums of all entries up to each place, NaN as 0.
axis: The axis; all entries as one row by default.
>>> nancumsum([2.0, np.nan, 3.0]).tolist()
[2.0, 2.0, 5.0]

nanmax
The largest entries along axes that are not NaN.
>>> float(nanmax([1.0, np.nan]))
1.0

nanmean
The means along axes of what is not NaN.
>>> float(nanmean([1.0, np.nan, 3.0]))
2.0

nanmedian
The medians along axes of what is not NaN.
>>> float(nanmedian([1.0, np.nan, 3.0]))
2.0

nanmin
The smallest entries along axes that are not NaN.
>>> float(nanmin([1.0, np.nan]))
1.0

nanpercentile
Percentiles along axes of what is not NaN.
q: One percentage or several, 0 to 100.
>>> float(nanpercentile([1.0, np.nan, 3.0], 50))
2.0

nanprod
The products along axes, NaN as 1.
>>> float(nanprod([2.0, np.nan, 3.0]))
6.0

nanquantile
Quantiles along axes of what is not NaN.
q: One share or several, 0 to 1.
>>> float(nanquantile([1.0, np.nan, 3.0], 0.5))
2.0

nanstd
The standard deviations along axes of what is not NaN.
>>> float(nanstd([1.0, np.nan, 3.0]))
1.0

nansum
The sums along axes, NaN as 0.
>>> float(nansum([2.0, np.nan, 3.0]))
5.0

nanvar
The variances along axes of what is not NaN.
>>> float(nanvar([1.0, np.nan, 3.0]))
1.0

nonzero
The places of the entries that are not 0: an array of indices for each axis.
>>> [i.tolist() for i in nonzero([[0, 5], [7, 0]])]
[[0, 1], [1, 0]]

percentile
Percentiles along axes.
q: One percentage or several, 0 to 100.
>>> float(percentile([1.0, 2.0, 3.0], 50))
2.0

prod
The products along axes.
>>> int(prod([2, 3]))
6

ptp
The difference between the largest and the smallest entries along axes.
>>> int(ptp([1, 4, 2]))
3

quantile
Quantiles along axes.
q: One share or several, 0 to 1.
>>> float(quantile([1.0, 2.0, 3.0], 0.5))
2.0

searchsorted
The places at which entries belong into a sorted vector.
sorted_sequence: A vector in rising order.
values: What belongs into it.
side: ``"left"`` or ``"right"`` of equal entries.
>>> searchsorted([1, 3, 5], [3, 4]).tolist()
[1, 2]

sort
The entries in rising order.
axis: The axis along which they are ordered.
>>> sort([3, 1, 2]).tolist()
[1, 2, 3]

std
The standard deviations along axes.
>>> float(std([1.0, 3.0]))
1.0

sum
The sums along axes.
>>> sum([[1, 2], [3, 4]], axis=1).tolist()
[3, 7]

trapezoid
The integral of values along an axis, as a sum of trapezoids.
y: The values.
x: Where they are; at equal distances by default.
dx: The distance, where there is no ``x``.
axis: The axis along which they lie.
>>> float(trapezoid([1.0, 2.0, 3.0]))
4.0

var
The variances along axes.
>>> float(var([1.0, 3.0]))
1.0
"""
