"""Whether code that is not ours lets the rows of a batch see each other.

What a function does with them is read off its trace, by the sizes of its arrays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from exburn.runtime.cost_model import inner_jaxprs

# Rows of the batches that are traced: sizes that their axes have, and no others. Some
# code takes even numbers alone.
_SIZES = tuple(2 * prime for prime in (97, 101, 103, 107, 109, 113, 127, 131))
_ORDERING = {"sort": "dimension", "rev": "dimensions"} | {
    name: "axis" for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
}
# What holds a program that combines two numbers.
_OF_NUMBERS = ("scatter", "reduce", "select_and")
# Functions that are left out: the noise of exburn/runtime/kernels/dropout_mask.py, and
# what sorts rows and gives each its own, of layers/contract/routed_experts.py.
_INDEPENDENT = {"exburn_keep_mask", "exburn_routed_experts"}
# Programs that no trace shows.
_OPAQUE = {"pure_callback", "io_callback", "ffi_call"}


def is_foreign(value: Any) -> bool:
    """Whether a function, or an object's class, is not one of ours.

    Example:
        >>> from exburn import losses
        >>> is_foreign(losses.MeanSquaredError()), is_foreign(print)
        (False, True)
    """
    if not callable(value) or not hasattr(value, "__qualname__"):
        value = type(value)
    return str(value.__module__).partition(".")[0] != "exburn"


def our_class(cls: type) -> type:
    """The class of ours that a user's class derives from; ours is that itself.

    Example:
        >>> from exburn.layers import Dense
        >>> our_class(type("Mine", (Dense,), {"__module__": "mine"})).__name__
        'Dense'
    """
    return next(base for base in cls.__mro__ if not is_foreign(base))


def mixes_rows(
    function: Callable,
    *trees: Any,
    beside: Any = None,
    numbers: Counter | None = None,
) -> bool:
    """Whether a function may do so with the rows of its arguments.

    It does if their axis is summed over, cut, ordered, crossed with itself or moved
    within another, or if it computes with their number. What cannot be traced for
    other numbers of rows, as with a fixed one, does not.

    Args:
        function: Called with ``beside``, if that is given, and ``trees``.
        trees: Specs of arrays ``[rows, …]``.
        beside: Specs of arrays without rows.
        numbers: Those of a trace that was made for the rows of ``trees``:
            ``numbers_of``. One trace tells then where it has no others.
    """
    others = () if beside is None else (beside,)
    sizes = {n for leaf in jax.tree.leaves(others) for n in leaf.shape}
    sizes |= {n for leaf in jax.tree.leaves(trees) for n in leaf.shape[1:]}
    sizes |= {n for leaf in jax.tree.leaves(trees) for n in leaf.shape[:1]}
    free = [rows for rows in _SIZES if not any(n % rows == 0 for n in sizes)]
    first: Counter | None = None
    for rows in (free or _SIZES)[:2]:
        specs = jax.tree.map(
            lambda v, rows=rows: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype),
            trees,
        )
        try:
            jaxpr = jax.make_jaxpr(function)(*others, *specs)
        except Exception:  # whatever a user's code raises for a batch that never comes
            return False
        if any(_axes(var, rows) for var in jaxpr.jaxpr.constvars):
            return True  # an array was made for so many rows
        if next(_mixing(jaxpr.jaxpr, rows), None) is not None:
            return True
        now = numbers_of(jaxpr)
        if first is not None:
            return now != first  # some were made from how many there are
        if numbers is not None and now <= numbers:
            return False
        first = now
    return False


def numbers_of(jaxpr: Any) -> Counter[tuple[str, ...]]:
    """How often a trace calls which operation with which numbers."""
    return Counter(_numbers(getattr(jaxpr, "jaxpr", jaxpr)))


def _mixing(jaxpr: Any, rows: int) -> Iterator[Any]:
    """The equations that do so, by the sizes of what they read and write."""
    for equation in _equations(jaxpr):
        name, inner = equation.primitive.name, [*inner_jaxprs(equation.params)]
        if inner and not name.startswith(_OF_NUMBERS):
            for program in inner:
                yield from _mixing(program, rows)
            if name == "scan" and _scans(equation, inner[0], rows):
                yield equation
        elif _mixes(equation, rows):
            yield equation


def _equations(jaxpr: Any) -> list[Any]:
    """All but those that are known not to mix rows."""
    return [e for e in jaxpr.eqns if e.params.get("name") not in _INDEPENDENT]


def _numbers(jaxpr: Any) -> Iterator[tuple[str, ...]]:
    """The operations, and the numbers that they are called with."""
    for equation in _equations(jaxpr):
        constants = [getattr(var, "val", None) for var in equation.invars]
        plain = [str(v) for v in constants if v is not None and np.ndim(v) == 0]
        yield equation.primitive.name, *plain
        for program in inner_jaxprs(equation.params):
            yield from _numbers(program)


def _axes(var: Any, rows: int) -> list[int]:
    """The axes that hold the rows, alone or joined with others."""
    shape = getattr(var.aval, "shape", ())
    return [i for i, n in enumerate(shape) if isinstance(n, int) and n and not n % rows]


def _scans(equation: Any, body: Any, rows: int) -> bool:
    """Whether a loop runs over the rows: its body sees one where it reads all."""
    read = zip(equation.invars, body.invars, strict=True)
    scanned = [var for var, seen in read if seen.aval.ndim < var.aval.ndim]
    return any(0 in _axes(var, rows) for var in scanned)


def _mixes(equation: Any, rows: int) -> bool:
    name, params = equation.primitive.name, equation.params
    read = [_axes(var, rows) for var in equation.invars]
    written = [_axes(var, rows) for var in equation.outvars]
    if any(len(axes) > 1 for axes in written):
        return True  # each row with each
    if name == "iota":
        return params["dimension"] in written[0]  # their numbers
    if not any(read):
        return False
    if name in _OPAQUE or not all(written):
        return True  # unseen; or summed over, or cut
    shape, axes = equation.invars[0].aval.shape, read[0]
    if name in _ORDERING:
        along = params[_ORDERING[name]]
        along = {along} if isinstance(along, int) else set(along)
        return any(along.intersection(axes) for axes in read)
    if name == "gather":
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        apart = getattr(numbers, "operand_batching_dims", ())
        return any(sizes[i] != shape[i] and i not in apart for i in axes)
    if name.startswith("scatter"):
        picked = params["dimension_numbers"].scatter_dims_to_operand_dims
        return any(i in picked for i in axes)
    if name == "reshape":
        to = equation.outvars[0].aval.shape
        return math.prod(shape[: axes[0]]) != math.prod(to[: written[0][0]])
    if name.startswith(("reduce_window", "select_and")):
        windows = params.get("window_dimensions", shape)
        return any(windows[i] != 1 for i in axes)
    if name == "conv_general_dilated":
        return params["dimension_numbers"].lhs_spec[0] not in axes
    if name == "fft":
        return any(i >= len(shape) - len(params["fft_lengths"]) for i in axes)
    return False
