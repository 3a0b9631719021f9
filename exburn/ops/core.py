"""Ops that ask, convert and write into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from exburn.core.annotations import DType, Tensor
from exburn.core.checks import refuse_sparse
from exburn.core.precision import is_float, standardize_dtype
from exburn.errors import ArgumentError, ShapeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import Symbol, lift
from exburn.ops.contract import nameable, op, tensor

# fmt: off
__all__ = [
    "cast", "convert_to_numpy", "convert_to_tensor", "dtype", "is_tensor",
    "saturate_cast", "scatter", "scatter_update", "shape", "slice", "slice_update",
    "stop_gradient", "unstack",
]
# fmt: on
_cast = lift(jnp.astype, "cast")


@op
def stop_gradient(variable: Tensor) -> jax.Array:
    """The same values, through which no gradient flows.

    Args:
        variable: An array or a weight.

    Example:
        >>> import jax
        >>> jax.grad(lambda x: x * stop_gradient(x))(3.0).tolist()
        3.0
    """
    return lax.stop_gradient(variable)


@nameable
@api_boundary
def cast(x: Tensor, dtype: DType) -> jax.Array:
    """``x`` in another dtype.

    Args:
        x: An array, or a symbol.
        dtype: The new dtype.

    Example:
        >>> cast([1.7, 2.0], "int32").tolist()
        [1, 2]
    """
    x = tensor(x)
    if isinstance(x, Symbol | jax.Array):
        return _cast(x, standardize_dtype(dtype))
    return jnp.asarray(x, standardize_dtype(dtype))


@nameable
@api_boundary
def convert_to_tensor(
    x: Tensor,
    dtype: DType = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
) -> jax.Array:
    """A JAX array of the values; a symbol stays one.

    Args:
        x: An array, weight, list or number.
        dtype: Dtype of the result; that of ``x`` by default.
        sparse: Must not be true.
        ragged: Must not be true.

    Raises:
        ArgumentError: A sparse or ragged tensor is asked for.

    Example:
        >>> convert_to_tensor([1.0, 2.0]).dtype.name
        'float32'
    """
    refuse_sparse("convert_to_tensor", sparse or ragged)
    x = tensor(x)
    if isinstance(x, Symbol):
        symbol: Any = x
        return symbol if dtype is None else _cast(x, standardize_dtype(dtype))
    return jnp.asarray(x, None if dtype is None else standardize_dtype(dtype))


@api_boundary
def convert_to_numpy(x: Tensor) -> np.ndarray:
    """A NumPy array of the values, a copy that may be changed.

    Args:
        x: An array or a variable.

    Example:
        >>> convert_to_numpy(jnp.ones(2))
        array([1., 1.], dtype=float32)
    """
    host = isinstance(x, np.ndarray | np.generic | list | tuple | int | float)
    return np.array(x if host else tensor(x))


@api_boundary
def shape(x: Tensor) -> tuple[Any, ...]:
    """The sizes as a tuple; ``None`` where a symbol's is unknown.

    Args:
        x: An array, or a symbol.

    Example:
        >>> shape([[1, 2, 3]])
        (1, 3)
    """
    return x.shape if isinstance(x, Symbol) else tuple(jnp.shape(tensor(x)))


@api_boundary
def dtype(x: Tensor) -> str:
    """The dtype's name.

    Args:
        x: An array, or a symbol.

    Example:
        >>> dtype([True])
        'bool'
    """
    if isinstance(x, Symbol | np.ndarray | np.generic):
        return str(x.dtype)
    return standardize_dtype(jnp.asarray(tensor(x)).dtype)


@api_boundary
def is_tensor(x: Tensor) -> bool:
    """Whether a value is a JAX array.

    Args:
        x: Any value.

    Example:
        >>> is_tensor(jnp.ones(2)), is_tensor([1.0])
        (True, False)
    """
    return isinstance(x, jax.Array)


@op
def saturate_cast(x: Tensor, dtype: DType) -> jax.Array:
    """``x`` in another dtype; what does not fit becomes the nearest value that does.

    Args:
        dtype: The new dtype, whose range bounds the values.

    Example:
        >>> saturate_cast([-3.0, 300.0], "uint8").tolist()
        [0, 255]
    """
    x, dtype = jnp.asarray(x), jnp.dtype(standardize_dtype(dtype))
    if dtype == jnp.bool_:
        return x.astype(dtype)
    if not is_float(x.dtype):
        own = jnp.iinfo(x.dtype) if x.dtype != jnp.bool_ else jnp.iinfo("int8")
    else:
        own = jnp.finfo(x.dtype)
    new = jnp.finfo(dtype) if is_float(dtype) else jnp.iinfo(dtype)
    low, high = max(float(new.min), float(own.min)), min(float(new.max), float(own.max))
    if is_float(x.dtype):
        # The largest float that is not above the largest integer.
        high = np.asarray(high, x.dtype)
        if float(high) > float(new.max):
            high = np.nextafter(high, np.zeros((), x.dtype))
        out = jnp.clip(x, low, high)
    else:
        out = jnp.clip(x, int(low), int(high)) if x.dtype != jnp.bool_ else x
    return out.astype(dtype)


@op
def unstack(x: Tensor, num: int | None = None, axis: int = 0) -> list[jax.Array]:
    """The slices along an axis, as a list.

    Args:
        num: Their number, if it is to be checked.
        axis: The axis that goes away.

    Raises:
        ShapeError: There are not ``num`` of them.

    Example:
        >>> [row.tolist() for row in unstack([[1, 2], [3, 4]])]
        [[1, 2], [3, 4]]
    """
    if num is not None and x.shape[axis] != num:
        raise ShapeError("unstack", f"axis {axis} of {x.shape} has not size {num}")
    return list(jnp.unstack(x, axis=axis))


@op
def slice(inputs: Tensor, start_indices: Tensor, shape: Sequence[int]) -> jax.Array:
    """A block of an array.

    Args:
        inputs: An array.
        start_indices: Where the block begins, one number an axis. If it does not fit
            there, it begins earlier.
        shape: The block's sizes; -1 is all that follows.

    Raises:
        ArgumentError: -1 where the block begins at a place that compiled code
            computes.

    Example:
        >>> slice([[1, 2], [3, 4]], (0, 1), (2, 1)).tolist()
        [[2], [4]]
    """
    begin = tuple(start_indices)
    sizes = tuple(
        inputs.shape[axis] - _known_start(begin[axis]) if _is_rest(size) else size
        for axis, size in enumerate(shape)
    )
    return lax.dynamic_slice(inputs, begin, sizes)


def _is_rest(size) -> bool:
    return isinstance(size, int | np.integer) and size == -1


def _known_start(begin) -> int:
    if isinstance(begin, Tracer):
        raise ArgumentError("slice", "a size of -1 needs a beginning that is known")
    return int(begin)


@op
def slice_update(inputs: Tensor, start_indices: Tensor, updates: Tensor) -> jax.Array:
    """A copy in which a block is replaced.

    Args:
        inputs: An array.
        start_indices: Where the block begins, one number an axis.
        updates: The block, of the same rank.

    Example:
        >>> slice_update([1, 2, 3], [1], [9]).tolist()
        [1, 9, 3]
    """
    updates = jnp.asarray(updates, inputs.dtype)
    return lax.dynamic_update_slice(inputs, updates, tuple(start_indices))


@op
def scatter(indices: Tensor, values: Tensor, shape: Sequence[int]) -> jax.Array:
    """Values added up at their places in an array of zeros.

    Args:
        indices: Places, the last axis holds the coordinates.
        values: What goes there.
        shape: Sizes of the result.

    Shape:
        indices: [..., k]; values: [..., *shape[k:]] → shape

    Example:
        >>> scatter([[0], [2], [2]], [1, 2, 3], (4,)).tolist()
        [1, 0, 5, 0]
    """
    zeros = jnp.zeros(shape, jnp.result_type(values))
    return zeros.at[_places(indices)].add(values)


@op
def scatter_update(
    inputs: Tensor, indices: Tensor, updates: Tensor, reduction: str | None = None
) -> jax.Array:
    """A copy in which values at given places are replaced, or combined with new ones.

    Args:
        inputs: An array.
        indices: Places, the last axis holds the coordinates.
        updates: What goes there.
        reduction: ``None`` (replace), ``"add"``, ``"max"``, ``"min"`` or ``"mul"``.

    Shape:
        inputs: [a, b, …]; indices: [..., k]; updates: [..., *inputs.shape[k:]]
        → [a, b, …]

    Raises:
        UnknownNameError: Another reduction.

    Example:
        >>> scatter_update([1, 2, 3], [[1]], [9]).tolist()
        [1, 9, 3]
    """
    at = inputs.at[_places(indices)]
    match reduction:
        case None:
            return at.set(updates)
        case "add":
            return at.add(updates)
        case "max":
            return at.max(updates)
        case "min":
            return at.min(updates)
        case "mul":
            return at.mul(updates)
    raise unknown_name(
        "reduction", reduction, ["add", "max", "min", "mul"], op="scatter_update"
    )


def _places(indices):
    indices = jnp.asarray(indices)
    return tuple(jnp.moveaxis(indices, -1, 0))
