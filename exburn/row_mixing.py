"""Whether code that is not ours lets the rows of a batch see each other.

What a function does with them is read off its trace, by the sizes of its arrays.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flax
import jax
import jaxlib
import numpy as np

from exburn import errors
from exburn.flops import inner_jaxprs

__all__ = ["is_foreign", "mixes_rows"]

# Rows of the batch that is traced: a size that its axes have, and no others.
_SIZES = (97, 101, 103, 107, 109, 113, 127, 131)
_OURS = str(Path(errors.__file__).parent)
# Of our own code, what users call; what is called by the rest of it is ours.
_CALLED = tuple(
    f"{_OURS}/{part}"
    for part in (
        "ops/",
        "activations/",
        "backend",
        "integer_products",
        "jax_functions",
        "memory_bound",
        "symbol",
        "traced_once",
        "weights",
    )
)
_FLAX = str(Path(flax.__file__).parent)
_LIBRARIES = (
    *(str(Path(str(library.__file__)).parent) for library in (jax, jaxlib)),
    *(f"{_FLAX}/nnx/{part}" for part in ("variablelib", "graphlib", "pytreelib")),
)
_PYTHON = sysconfig.get_path("stdlib")
_ORDERING = {"sort": "dimension", "rev": "dimensions"} | {
    name: "axis" for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
}
# Functions that are traced once for many callers: whose code that was tells nothing.
_SHARED = {"jit", "pjit", "custom_jvp_call", "custom_vjp_call"}


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


def mixes_rows(function: Callable, *trees: Any, beside: Any = None) -> bool:
    """Whether a function does so with the rows of its arguments.

    It does if their axis is summed over, cut, ordered, or crossed with itself. What
    cannot be traced for another number of rows, as with a fixed one, does not.

    Args:
        function: Called with ``beside``, if that is given, and ``trees``.
        trees: Specs of arrays ``[rows, …]``.
        beside: Specs of arrays without rows.

    Example:
        >>> x = jax.ShapeDtypeStruct((32, 4), "float32")
        >>> mixes_rows(lambda x: x - x.mean(axis=0), x)
        True
        >>> mixes_rows(lambda x: x - x.mean(axis=1, keepdims=True), x)
        False
    """
    others = () if beside is None else (beside,)
    sizes = {n for leaf in jax.tree.leaves(others) for n in leaf.shape}
    sizes |= {n for leaf in jax.tree.leaves(trees) for n in leaf.shape[1:]}
    free = (rows for rows in _SIZES if not any(n % rows == 0 for n in sizes))
    rows = next(free, _SIZES[0])
    specs = jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), trees
    )
    try:
        jaxpr = jax.make_jaxpr(function)(*others, *specs)
    except Exception:  # whatever a user's code raises for a batch that never comes
        return False
    return any(_is_users(equation) for equation in _mixing(jaxpr.jaxpr, rows))


def _mixing(jaxpr: Any, rows: int) -> Iterator[Any]:
    """The equations that do so, by the sizes of what they read and write."""
    for equation in jaxpr.eqns:
        inner = [*inner_jaxprs(equation.params)]
        found = (one for program in inner for one in _mixing(program, rows))
        if equation.primitive.name in _SHARED:
            if next(found, None) is not None:
                yield equation
        elif inner:
            yield from found
            if equation.primitive.name == "scan" and _scans(equation, inner[0], rows):
                yield equation
        elif _mixes(equation, rows):
            yield equation


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
    if not any(read):
        return False
    if any(_is(getattr(var, "val", None), rows) for var in equation.invars):
        return True  # computes with the number of rows
    if not all(written):
        return True  # summed over, or cut
    if name in _ORDERING:
        along = params[_ORDERING[name]]
        along = {along} if isinstance(along, int) else set(along)
        return any(along.intersection(axes) for axes in read)
    if name == "gather":
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        shape = equation.invars[0].aval.shape
        apart = getattr(numbers, "operand_batching_dims", ())
        return any(sizes[i] != shape[i] and i not in apart for i in read[0])
    return False


def _is(value: Any, rows: int) -> bool:
    return np.ndim(value) == 0 and value == rows


def _is_users(equation: Any) -> bool:
    """Whether the code that an equation comes from is not ours."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        file = frame.file_name
        python = file.startswith(_PYTHON) and "-packages" not in file
        if not python and not file.startswith((*_LIBRARIES, *_CALLED)):
            return not file.startswith(f"{_OURS}/")
    return True
