"""Ops that reshape, join, split, index and repeat."""

from __future__ import annotations

import operator
from typing import Any

import jax.numpy as jnp

from exburn.errors import ArgumentError, ShapeError
from exburn.module.symbolic_tensor import Symbol, lift
from exburn.ops.binding import bind, nameable, of_many, op, tensor

# fmt: off
__all__ = [
    "append", "array_split", "broadcast_to", "column_stack", "concatenate", "copy",
    "diag", "diagflat", "diagonal", "dsplit", "dstack", "expand_dims", "flip", "fliplr",
    "flipud", "get_item", "hsplit", "hstack", "meshgrid", "moveaxis", "ndim", "pad",
    "ravel", "repeat", "reshape", "roll", "rot90", "select", "size", "split", "squeeze",
    "stack", "swapaxes", "take", "take_along_axis", "tile", "trace", "transpose",
    "tril", "triu", "unravel_index", "vectorize", "view", "vsplit", "vstack",
]
# fmt: on

append = bind(jnp.append, "x1, x2, /, axis")
array_split = bind(jnp.array_split, "x, /, indices_or_sections, axis")
broadcast_to = bind(jnp.broadcast_to, "x, /, shape")
column_stack = bind(jnp.column_stack, "*xs, /")
concatenate = bind(jnp.concatenate, "*xs, /, axis")
copy = bind(jnp.copy, "x, /")
diag = bind(jnp.diag, "x, /, k")
diagflat = bind(jnp.diagflat, "x, /, k")
diagonal = bind(jnp.diagonal, "x, /, offset, axis1, axis2")
dsplit = bind(jnp.dsplit, "x, /, indices_or_sections")
dstack = bind(jnp.dstack, "*xs, /")
expand_dims = bind(jnp.expand_dims, "x, /, axis")
flip = bind(jnp.flip, "x, /, axis")
fliplr = bind(jnp.fliplr, "x, /")
flipud = bind(jnp.flipud, "x, /")
hsplit = bind(jnp.hsplit, "x, /, indices_or_sections")
hstack = bind(jnp.hstack, "*xs, /")
moveaxis = bind(jnp.moveaxis, "x, /, source, destination")
ravel = bind(jnp.ravel, "x, /")
roll = bind(jnp.roll, "x, /, shift, axis")
rot90 = bind(jnp.rot90, "array, /, k, axes")
select = bind(jnp.select, "*condlist, *choicelist, /, default")
split = bind(jnp.split, "x, /, indices_or_sections, axis")
stack = bind(jnp.stack, "*x, /, axis")
swapaxes = bind(jnp.swapaxes, "x, /, axis1, axis2")
take = bind(jnp.take, "x, indices, /, axis")
tile = bind(jnp.tile, "x, repeats, /")
trace = bind(jnp.trace, "x, /, offset, axis1, axis2")
transpose = bind(jnp.transpose, "x, /, axes")
tril = bind(jnp.tril, "x, /, k")
triu = bind(jnp.triu, "x, /, k")
unravel_index = bind(jnp.unravel_index, "indices, /, shape")
vsplit = bind(jnp.vsplit, "x, /, indices_or_sections")
vstack = bind(jnp.vstack, "*xs, /")

_reshape = lift(jnp.reshape)
_squeeze = lift(jnp.squeeze)
_get_item = lift(operator.getitem, "get_item")


@nameable
def reshape(x, newshape):
    """The same elements in another shape.

    Args:
        x: An array.
        newshape: Its sizes. One may be -1, or ``None`` as ``ops.shape`` says it of a
            symbol: it follows from the others.

    Raises:
        ShapeError: Two sizes are left open.

    Example:
        >>> reshape([1, 2, 3, 4], (2, -1)).tolist()
        [[1, 2], [3, 4]]
    """
    if isinstance(newshape, list | tuple):
        newshape = tuple(-1 if size is None else size for size in newshape)
        if sum(isinstance(s, int) and s == -1 for s in newshape) > 1:
            raise ShapeError(
                "reshape", f"one size at most may be open, received {newshape}"
            )
    return _reshape(tensor(x), newshape)


@nameable
def squeeze(x, axis=None):
    """The same elements without axes of size 1.

    Args:
        x: An array.
        axis: The axes that go away; all whose size is known to be 1 by default.

    Example:
        >>> squeeze([[1, 2]]).tolist()
        [1, 2]
    """
    if axis is None and isinstance(x, Symbol):
        axis = tuple(i for i, size in enumerate(x.shape) if size == 1)
    return _squeeze(tensor(x), axis=axis)


@nameable
def get_item(x, key):
    """``x[key]``.

    Args:
        x: An array, or a symbol.
        key: An index, a slice, or a tuple of these.

    Example:
        >>> get_item([[1, 2], [3, 4]], (slice(None), 0)).tolist()
        [1, 3]
    """
    return _get_item(tensor(x), key)


def ndim(x):
    """Number of axes.

    Args:
        x: An array, or a symbol.

    Example:
        >>> ndim([[1, 2]])
        2
    """
    return len(x.shape) if isinstance(x, Symbol) else jnp.ndim(tensor(x))


@op
def size(x):
    """Number of elements; of a symbol, a symbol.

    Args:
        x: An array, or a symbol.

    Example:
        >>> size([[1, 2, 3]])
        3
    """
    count = jnp.size(x)
    return count if isinstance(count, int) else jnp.asarray(count)


@of_many
def meshgrid(*x, indexing="xy"):
    """Grids of coordinates from one vector an axis.

    Args:
        *x: Vectors.
        indexing: ``"xy"`` (the second vector varies along the first axis) or ``"ij"``.

    Example:
        >>> [grid.shape for grid in meshgrid([1, 2], [3, 4, 5])]
        [(3, 2), (3, 2)]
    """
    return jnp.meshgrid(*x, indexing=indexing)


@op
def pad(x, pad_width, mode: Any = "constant", constant_values=None):
    """Elements added before and after, along every axis.

    Args:
        x: An array.
        pad_width: A pair an axis, one pair for all, or one number.
        mode: As in :func:`numpy.pad`: ``"constant"``, ``"reflect"``, ``"edge"`` …
        constant_values: What is added in mode ``"constant"``; 0 by default.

    Raises:
        ArgumentError: ``constant_values`` in another mode.

    Example:
        >>> pad([1, 2], (1, 2), constant_values=9).tolist()
        [9, 1, 2, 9, 9]
    """
    if mode == "constant":
        return jnp.pad(x, pad_width, constant_values=constant_values or 0)
    if constant_values is not None:
        raise ArgumentError("pad", f"mode {mode!r} takes no constant_values")
    return jnp.pad(x, pad_width, mode)


@op
def repeat(x, repeats, axis=None):
    """Every element (or slice along ``axis``), repeated in place.

    Args:
        x: An array, or a symbol.
        repeats: How often, for all or for each.
        axis: Along which axis; flat if ``None``.

    Example:
        >>> repeat([1, 2], [2, 1]).tolist()
        [1, 1, 2]
    """
    return jnp.repeat(x, tensor(repeats), axis)


@op
def take_along_axis(x, indices, axis=None):
    """The elements at the indices, which have as many axes as ``x``.

    Args:
        x: An array.
        indices: Places along the axis.
        axis: The axis; ``None`` takes from the flattened array.

    Example:
        >>> take_along_axis([[10, 20], [30, 40]], [[1], [0]], 1).tolist()
        [[20], [30]]
    """
    return jnp.take_along_axis(x, indices, axis)


def vectorize(pyfunc, *, excluded=None, signature=None):
    """A function of single elements that works on arrays, with broadcasting.

    Args:
        pyfunc: The function.
        excluded: Positions of arguments that are passed on as they are.
        signature: Axes that the function itself takes, ``"(n),(n)->()"``.

    Example:
        >>> vectorize(lambda a, b: a + b)(jnp.arange(2), 10).tolist()
        [10, 11]
    """
    return jnp.vectorize(
        pyfunc, excluded=frozenset(excluded or ()), signature=signature
    )


@op
def view(x, dtype=None):
    """The same bits, read as another dtype; the last axis grows or shrinks to fit.

    Args:
        x: An array, or a symbol.
        dtype: A dtype of other bytes for the same memory.

    Example:
        >>> import numpy as np
        >>> view(np.zeros((2, 3), "float32"), "int16").shape
        (2, 6)
    """
    return x if dtype is None else x.view(dtype)
