"""Ops that reshape, join, split, index and repeat."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp

from exburn.core.annotations import Axis, DType, Places, Sizes, Tensor
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import Symbol, lift
from exburn.ops.contract import nameable, of_many, op, op_on_lists, tensor

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
@op
def append(x1: Tensor, x2: Tensor, axis: int | None = None) -> jax.Array:
    """The values of one array behind those of another.

    It is ``jax.numpy.append``, with Keras' arguments.

    Args:
        x2: What is put behind it; it has the same other axes.
        axis: The axis that grows; both are flattened by default.

    Example:
        >>> append([1, 2], [3]).tolist()
        [1, 2, 3]
    """
    return jnp.append(x1, x2, axis=axis)


@op
def array_split(
    x: Tensor, indices_or_sections: Places, axis: int = 0
) -> list[jax.Array]:
    """Parts of an array, which may differ in size by one.

    It is ``jax.numpy.array_split``, with Keras' arguments.

    Args:
        indices_or_sections: How many parts, or where the next one begins.
        axis: The axis that is split.

    Example:
        >>> [part.tolist() for part in array_split([1, 2, 3], 2)]
        [[1, 2], [3]]
    """
    return jnp.array_split(x, indices_or_sections=indices_or_sections, axis=axis)


@op
def broadcast_to(x: Tensor, shape: Sizes) -> jax.Array:
    """The array repeated to another shape.

    It is ``jax.numpy.broadcast_to``, with Keras' arguments.

    Args:
        shape: The new shape.

    Example:
        >>> broadcast_to([1, 2], (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return jnp.broadcast_to(x, shape=shape)


@op_on_lists("xs")
def column_stack(xs: Sequence[Tensor]) -> jax.Array:
    """Vectors as the columns of a matrix; matrices one beside the other.

    It is ``jax.numpy.column_stack``, with Keras' arguments.

    Args:
        xs: A list of arrays.

    Example:
        >>> column_stack([[1, 2], [3, 4]]).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.column_stack(xs)


@op_on_lists("xs")
def concatenate(xs: Sequence[Tensor], axis: int | None = 0) -> jax.Array:
    """Arrays behind each other along an axis that they have.

    It is ``jax.numpy.concatenate``, with Keras' arguments.

    Args:
        xs: A list of arrays.
        axis: The axis that grows; the others have one size in all of them.

    Example:
        >>> concatenate([[1, 2], [3]]).tolist()
        [1, 2, 3]
    """
    return jnp.concatenate(xs, axis=axis)


@op
def copy(x: Tensor) -> jax.Array:
    """A copy.

    It is ``jax.numpy.copy``, with Keras' arguments.

    Example:
        >>> copy([1, 2]).tolist()
        [1, 2]
    """
    return jnp.copy(x)


@op
def diag(x: Tensor, k: int = 0) -> jax.Array:
    """The diagonal of a matrix, or a matrix with a diagonal.

    It is ``jax.numpy.diag``, with Keras' arguments.

    Args:
        x: A matrix, or the entries of a diagonal.
        k: Which diagonal: above the main one if positive.

    Example:
        >>> diag([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    return jnp.diag(x, k=k)


@op
def diagflat(x: Tensor, k: int = 0) -> jax.Array:
    """A matrix whose diagonal has all entries of an array.

    It is ``jax.numpy.diagflat``, with Keras' arguments.

    Args:
        k: Which diagonal: above the main one if positive.

    Example:
        >>> diagflat([[1], [2]]).tolist()
        [[1, 0], [0, 2]]
    """
    return jnp.diagflat(x, k=k)


@op
def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """A diagonal of each matrix, as the last axis.

    It is ``jax.numpy.diagonal``, with Keras' arguments.

    Args:
        offset: Which diagonal: above the main one if positive.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Example:
        >>> diagonal([[1, 2], [3, 4]]).tolist()
        [1, 4]
    """
    return jnp.diagonal(x, offset=offset, axis1=axis1, axis2=axis2)


@op
def dsplit(x: Tensor, indices_or_sections: Places) -> list[jax.Array]:
    """Parts of an array along its third axis.

    It is ``jax.numpy.dsplit``, with Keras' arguments.

    Args:
        x: An array of at least three axes.
        indices_or_sections: How many equal parts, or where the next one begins.

    Example:
        >>> import numpy as np
        >>> [part.shape for part in dsplit(np.ones((1, 2, 4)), 2)]
        [(1, 2, 2), (1, 2, 2)]
    """
    places: Any = indices_or_sections  # jax.numpy says arrays alone
    return jnp.dsplit(x, places)


@op_on_lists("xs")
def dstack(xs: Sequence[Tensor]) -> jax.Array:
    """Arrays behind each other along a third axis.

    It is ``jax.numpy.dstack``, with Keras' arguments.

    Args:
        xs: A list of arrays.

    Example:
        >>> dstack([[1, 2], [3, 4]]).shape
        (1, 2, 2)
    """
    return jnp.dstack(xs)


@op
def expand_dims(x: Tensor, axis: Sizes) -> jax.Array:
    """The same values with an axis of size 1 more, or several.

    It is ``jax.numpy.expand_dims``, with Keras' arguments.

    Args:
        axis: Where the new axes are, in the result.

    Example:
        >>> expand_dims([1, 2], 0).shape
        (1, 2)
    """
    return jnp.expand_dims(x, axis=axis)


@op
def flip(x: Tensor, axis: Axis = None) -> jax.Array:
    """The entries in the opposite order.

    It is ``jax.numpy.flip``, with Keras' arguments.

    Args:
        axis: The axes that are turned; all of them by default.

    Example:
        >>> flip([1, 2, 3]).tolist()
        [3, 2, 1]
    """
    return jnp.flip(x, axis=axis)


@op
def fliplr(x: Tensor) -> jax.Array:
    """The columns in the opposite order.

    It is ``jax.numpy.fliplr``, with Keras' arguments.

    Args:
        x: An array of at least two axes.

    Example:
        >>> fliplr([[1, 2], [3, 4]]).tolist()
        [[2, 1], [4, 3]]
    """
    return jnp.fliplr(x)


@op
def flipud(x: Tensor) -> jax.Array:
    """The rows in the opposite order.

    It is ``jax.numpy.flipud``, with Keras' arguments.

    Example:
        >>> flipud([[1, 2], [3, 4]]).tolist()
        [[3, 4], [1, 2]]
    """
    return jnp.flipud(x)


@op
def hsplit(x: Tensor, indices_or_sections: Places) -> list[jax.Array]:
    """Parts of an array along its second axis; of a vector along its only one.

    It is ``jax.numpy.hsplit``, with Keras' arguments.

    Args:
        indices_or_sections: How many equal parts, or where the next one begins.

    Example:
        >>> [part.tolist() for part in hsplit([1, 2, 3, 4], 2)]
        [[1, 2], [3, 4]]
    """
    places: Any = indices_or_sections  # jax.numpy says arrays alone
    return jnp.hsplit(x, places)


@op_on_lists("xs")
def hstack(xs: Sequence[Tensor]) -> jax.Array:
    """Arrays behind each other along the second axis; vectors along their only one.

    It is ``jax.numpy.hstack``, with Keras' arguments.

    Args:
        xs: A list of arrays.

    Example:
        >>> hstack([[1, 2], [3]]).tolist()
        [1, 2, 3]
    """
    return jnp.hstack(xs)


@op
def moveaxis(x: Tensor, source: Sizes, destination: Sizes) -> jax.Array:
    """Axes at other places; the others keep their order.

    It is ``jax.numpy.moveaxis``, with Keras' arguments.

    Args:
        source: Where they are.
        destination: Where they go.

    Example:
        >>> import numpy as np
        >>> moveaxis(np.ones((1, 2, 3)), 0, -1).shape
        (2, 3, 1)
    """
    return jnp.moveaxis(x, source=source, destination=destination)


@op
def ravel(x: Tensor) -> jax.Array:
    """All entries in one axis, row by row.

    It is ``jax.numpy.ravel``, with Keras' arguments.

    Example:
        >>> ravel([[1, 2], [3, 4]]).tolist()
        [1, 2, 3, 4]
    """
    return jnp.ravel(x)


@op
def roll(x: Tensor, shift: Sizes, axis: Axis = None) -> jax.Array:
    """Entries moved along an axis; what leaves at the end comes in at the beginning.

    It is ``jax.numpy.roll``, with Keras' arguments.

    Args:
        shift: How far, for each axis.
        axis: Along which axes; all entries as one row by default.

    Example:
        >>> roll([1, 2, 3], 1).tolist()
        [3, 1, 2]
    """
    return jnp.roll(x, shift=shift, axis=axis)


@op
def rot90(array: Tensor, k: int = 1, axes: tuple[int, int] = (0, 1)) -> jax.Array:
    """Matrices turned counterclockwise.

    It is ``jax.numpy.rot90``, with Keras' arguments.

    Args:
        array: An array of at least two axes.
        k: How many quarters of a turn.
        axes: The two axes of the plane.

    Example:
        >>> rot90([[1, 2], [3, 4]]).tolist()
        [[2, 4], [1, 3]]
    """
    return jnp.rot90(array, k=k, axes=axes)


@op_on_lists("condlist", "choicelist")
def select(
    condlist: Sequence[Tensor], choicelist: Sequence[Tensor], default: Tensor = 0
) -> jax.Array:
    """Entries of the first choice whose condition is true.

    It is ``jax.numpy.select``, with Keras' arguments.

    Args:
        condlist: Boolean arrays.
        choicelist: As many arrays of values.
        default: What stands where no condition is true.

    Example:
        >>> import numpy as np
        >>> select([np.array([True, False])], [np.array([1, 2])], 7).tolist()
        [1, 7]
    """
    return jnp.select(condlist, choicelist, default=default)


@op
def split(x: Tensor, indices_or_sections: Places, axis: int = 0) -> list[jax.Array]:
    """Equal parts of an array, or parts that begin at given indices.

    It is ``jax.numpy.split``, with Keras' arguments.

    Args:
        indices_or_sections: How many equal parts, or where the next one begins.
        axis: The axis that is split.

    Example:
        >>> [part.tolist() for part in split([1, 2, 3, 4], 2)]
        [[1, 2], [3, 4]]
    """
    return jnp.split(x, indices_or_sections=indices_or_sections, axis=axis)


@op_on_lists("x")
def stack(x: Sequence[Tensor], axis: int = 0) -> jax.Array:
    """Arrays of one shape along a new axis.

    It is ``jax.numpy.stack``, with Keras' arguments.

    Args:
        x: A list of arrays.
        axis: Where the new axis is, in the result.

    Example:
        >>> stack([[1, 2], [3, 4]], axis=1).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.stack(x, axis=axis)


@op
def swapaxes(x: Tensor, axis1: int, axis2: int) -> jax.Array:
    """Two axes in each other's place.

    It is ``jax.numpy.swapaxes``, with Keras' arguments.

    Args:
        axis1: One axis.
        axis2: The other.

    Example:
        >>> import numpy as np
        >>> swapaxes(np.ones((1, 2, 3)), 0, 2).shape
        (3, 2, 1)
    """
    return jnp.swapaxes(x, axis1=axis1, axis2=axis2)


@op
def take(x: Tensor, indices: Tensor, axis: int | None = None) -> jax.Array:
    """The entries at given places of an axis.

    It is ``jax.numpy.take``, with Keras' arguments.

    Args:
        indices: Integers of any shape.
        axis: The axis; all entries as one row by default.

    Example:
        >>> take([10, 20, 30], [2, 0]).tolist()
        [30, 10]
    """
    return jnp.take(x, indices, axis=axis)


@op
def tile(x: Tensor, repeats: Sizes) -> jax.Array:
    """The array several times along each axis.

    It is ``jax.numpy.tile``, with Keras' arguments.

    Args:
        repeats: How often, for each axis.

    Example:
        >>> tile([1, 2], 2).tolist()
        [1, 2, 1, 2]
    """
    return jnp.tile(x, repeats)


@op
def trace(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """The sum of a diagonal of each matrix.

    It is ``jax.numpy.trace``, with Keras' arguments.

    Args:
        offset: Which diagonal: above the main one if positive.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Example:
        >>> int(trace([[1, 2], [3, 4]]))
        5
    """
    return jnp.trace(x, offset=offset, axis1=axis1, axis2=axis2)


@op
def transpose(x: Tensor, axes: Sequence[int] | None = None) -> jax.Array:
    """The axes in another order.

    It is ``jax.numpy.transpose``, with Keras' arguments.

    Args:
        axes: The order; the opposite of theirs by default.

    Example:
        >>> transpose([[1, 2], [3, 4]]).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.transpose(x, axes=axes)


@op
def tril(x: Tensor, k: int = 0) -> jax.Array:
    """Matrices with 0 above a diagonal.

    It is ``jax.numpy.tril``, with Keras' arguments.

    Args:
        k: Which diagonal: above the main one if positive.

    Example:
        >>> tril([[1, 2], [3, 4]]).tolist()
        [[1, 0], [3, 4]]
    """
    return jnp.tril(x, k=k)


@op
def triu(x: Tensor, k: int = 0) -> jax.Array:
    """Matrices with 0 below a diagonal.

    It is ``jax.numpy.triu``, with Keras' arguments.

    Args:
        k: Which diagonal: above the main one if positive.

    Example:
        >>> triu([[1, 2], [3, 4]]).tolist()
        [[1, 2], [0, 4]]
    """
    return jnp.triu(x, k=k)


@op
def unravel_index(indices: Tensor, shape: Sequence[int]) -> tuple[jax.Array, ...]:
    """The row, column, … of entries that are counted row by row.

    It is ``jax.numpy.unravel_index``, with Keras' arguments.

    Args:
        indices: Integers of any shape.
        shape: Shape of the array that they point into.

    Example:
        >>> [int(i) for i in unravel_index(5, (2, 3))]
        [1, 2]
    """
    return jnp.unravel_index(indices, shape=shape)


@op
def vsplit(x: Tensor, indices_or_sections: Places) -> list[jax.Array]:
    """Parts of an array along its first axis.

    It is ``jax.numpy.vsplit``, with Keras' arguments.

    Args:
        x: An array of at least two axes.
        indices_or_sections: How many equal parts, or where the next one begins.

    Example:
        >>> [part.tolist() for part in vsplit([[1], [2]], 2)]
        [[[1]], [[2]]]
    """
    places: Any = indices_or_sections  # jax.numpy says arrays alone
    return jnp.vsplit(x, places)


@op_on_lists("xs")
def vstack(xs: Sequence[Tensor]) -> jax.Array:
    """Arrays behind each other along the first axis; vectors as rows.

    It is ``jax.numpy.vstack``, with Keras' arguments.

    Args:
        xs: A list of arrays.

    Example:
        >>> vstack([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    return jnp.vstack(xs)


_reshape = lift(jnp.reshape)
_squeeze = lift(jnp.squeeze)
_get_item = lift(operator.getitem, "get_item")


@nameable
@api_boundary
def reshape(x: Tensor, newshape: int | Sequence[Any]) -> jax.Array:
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
@api_boundary
def squeeze(x: Tensor, axis: Axis = None) -> jax.Array:
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
@api_boundary
def get_item(x: Tensor, key: Any) -> jax.Array:
    """``x[key]``.

    Args:
        x: An array, or a symbol.
        key: An index, a slice, or a tuple of these.

    Example:
        >>> get_item([[1, 2], [3, 4]], (slice(None), 0)).tolist()
        [1, 3]
    """
    return _get_item(tensor(x), key)


@api_boundary
def ndim(x: Tensor) -> int:
    """Number of axes.

    Args:
        x: An array, or a symbol.

    Example:
        >>> ndim([[1, 2]])
        2
    """
    return len(x.shape) if isinstance(x, Symbol) else jnp.ndim(tensor(x))


@op
def size(x: Tensor) -> int:
    """Number of elements; of a symbol, a symbol.

    Example:
        >>> size([[1, 2, 3]])
        3
    """
    count = jnp.size(x)
    return count if isinstance(count, int) else cast("int", jnp.asarray(count))


@of_many
def meshgrid(*x: Tensor, indexing: str = "xy") -> list[jax.Array]:
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
def pad(
    x: Tensor, pad_width: Tensor, mode: str = "constant", constant_values: Tensor = None
) -> jax.Array:
    """Elements added before and after, along every axis.

    Args:
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
def repeat(x: Tensor, repeats: Tensor, axis: int | None = None) -> jax.Array:
    """Every element (or slice along ``axis``), repeated in place.

    Args:
        repeats: How often, for all or for each.
        axis: Along which axis; flat if ``None``.

    Example:
        >>> repeat([1, 2], [2, 1]).tolist()
        [1, 1, 2]
    """
    return jnp.repeat(x, tensor(repeats), axis)


@op
def take_along_axis(x: Tensor, indices: Tensor, axis: int | None = None) -> jax.Array:
    """The elements at the indices, which have as many axes as ``x``.

    Args:
        indices: Places along the axis.
        axis: The axis; ``None`` takes from the flattened array.

    Example:
        >>> take_along_axis([[10, 20], [30, 40]], [[1], [0]], 1).tolist()
        [[20], [30]]
    """
    return jnp.take_along_axis(x, indices, axis)


@api_boundary
def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Iterable[int | str] | None = None,
    signature: str | None = None,
) -> Callable[..., Any]:
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
def view(x: Tensor, dtype: DType = None) -> jax.Array:
    """The same bits, read as another dtype; the last axis grows or shrinks to fit.

    Args:
        dtype: A dtype of other bytes for the same memory.

    Example:
        >>> import numpy as np
        >>> view(np.zeros((2, 3), "float32"), "int16").shape
        (2, 6)
    """
    return x if dtype is None else x.view(dtype)
