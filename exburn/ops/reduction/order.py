"""Ops that order, search and count."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax.core import Tracer

from exburn.core.annotations import Axis, Tensor
from exburn.core.checks import check_count, refuse_sparse
from exburn.errors import ArgumentError
from exburn.ops.contract import hashable_axis, op

__all__ = [
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "bincount",
    "digitize",
    "histogram",
    "isin",
    "nonzero",
    "percentile",
    "quantile",
    "searchsorted",
    "sort",
    "unique",
]


@op
def argmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """The places of the largest entries; the first of several.

    It is ``jax.numpy.argmax``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> argmax([[1, 4], [3, 2]], axis=1).tolist()
        [1, 0]
    """
    return jnp.argmax(x, axis=axis, keepdims=keepdims)


@op
def argmin(x: Tensor, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """The places of the smallest entries; the first of several.

    It is ``jax.numpy.argmin``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> argmin([[1, 4], [3, 2]], axis=1).tolist()
        [0, 1]
    """
    return jnp.argmin(x, axis=axis, keepdims=keepdims)


@op
def digitize(x: Tensor, bins: Tensor) -> jax.Array:
    """The interval that each entry falls into.

    It is ``jax.numpy.digitize``, with Keras' arguments.

    Args:
        bins: The bounds between intervals, in order.

    Example:
        >>> digitize([0.5, 1.5], [1.0, 2.0]).tolist()
        [0, 1]
    """
    return jnp.digitize(x, bins)


@op
def isin(
    x1: Tensor, x2: Tensor, assume_unique: bool = False, invert: bool = False
) -> jax.Array:
    """Tells whether each entry is among given ones.

    It is ``jax.numpy.isin``, with Keras' arguments.

    Args:
        x2: The entries that are looked for.
        assume_unique: Whether neither has an entry twice, which may be quicker.
        invert: Whether to ask for those that are not among them.

    Example:
        >>> isin([1, 2, 3], [2]).tolist()
        [False, True, False]
    """
    return jnp.isin(x1, x2, assume_unique=assume_unique, invert=invert)


@op
def nonzero(x: Tensor) -> tuple[jax.Array, ...]:
    """The places of the entries that are not 0: an array of indices for each axis.

    It is ``jax.numpy.nonzero``, with Keras' arguments.

    Example:
        >>> [i.tolist() for i in nonzero([[0, 5], [7, 0]])]
        [[0, 1], [1, 0]]
    """
    return jnp.nonzero(x)


@op
def percentile(
    x: Tensor,
    q: Tensor,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> jax.Array:
    """Percentiles along axes.

    It is ``jax.numpy.percentile``, with Keras' arguments.

    Args:
        q: One percentage or several, 0 to 100.
        axis: The axes that go away, an integer or several; all of them by default.
        method: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or
            ``"nearest"``: what is between two entries.

    Example:
        >>> float(percentile([1.0, 2.0, 3.0], 50))
        2.0
    """
    return jnp.percentile(
        x, q, axis=hashable_axis(axis), method=method, keepdims=keepdims
    )


@op
def quantile(
    x: Tensor,
    q: Tensor,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> jax.Array:
    """Quantiles along axes.

    It is ``jax.numpy.quantile``, with Keras' arguments.

    Args:
        q: One share or several, 0 to 1.
        axis: The axes that go away, an integer or several; all of them by default.
        method: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or
            ``"nearest"``: what is between two entries.

    Example:
        >>> float(quantile([1.0, 2.0, 3.0], 0.5))
        2.0
    """
    return jnp.quantile(
        x, q, axis=hashable_axis(axis), method=method, keepdims=keepdims
    )


@op
def searchsorted(
    sorted_sequence: Tensor, values: Tensor, side: str = "left"
) -> jax.Array:
    """The places at which entries belong into a sorted vector.

    It is ``jax.numpy.searchsorted``, with Keras' arguments.

    Args:
        sorted_sequence: A vector in rising order.
        values: What belongs into it.
        side: ``"left"`` or ``"right"`` of equal entries.

    Example:
        >>> searchsorted([1, 3, 5], [3, 4]).tolist()
        [1, 2]
    """
    return jnp.searchsorted(sorted_sequence, values, side=side)


@op
def sort(x: Tensor, axis: int | None = -1) -> jax.Array:
    """The entries in rising order.

    It is ``jax.numpy.sort``, with Keras' arguments.

    Args:
        axis: The axis along which they are ordered.

    Example:
        >>> sort([3, 1, 2]).tolist()
        [1, 2, 3]
    """
    return jnp.sort(x, axis=axis)


@op
def argsort(x: Tensor, axis: int | None = -1) -> jax.Array:
    """The places of the entries in ascending order along an axis.

    Args:
        x: An array, or one number.
        axis: The axis; None for the array in one row.

    Example:
        >>> argsort([3, 1, 2]).tolist()
        [1, 2, 0]
    """
    return jnp.argsort(x, axis if jnp.ndim(x) else None)


@op
def argpartition(x: Tensor, kth: int, axis: int | None = -1) -> jax.Array:
    """The order in which the ``kth`` smallest is at its place, the smaller before it.

    Args:
        kth: The place, from 0.
        axis: The axis; ``None`` takes the flattened array.

    Example:
        >>> int(argpartition([[30, 10], [40, 20]], 0, axis=None)[0])
        1
    """
    return jnp.argpartition(*((x.ravel(), kth) if axis is None else (x, kth, axis)))


@op
def histogram(
    x: Tensor, bins: Tensor = 10, range: Sequence[float] | None = None
) -> tuple[jax.Array, jax.Array]:
    """How many values lie in each of ``bins`` stretches of equal length.

    Args:
        bins: Number of stretches.
        range: Where the first begins and the last ends; the least and the largest value
            by default.

    Returns:
        Their counts, and their ``bins + 1`` edges.

    Raises:
        ArgumentError: ``bins`` is no positive integer, or ``range`` does not ascend.

    Example:
        >>> [part.tolist() for part in histogram([0.0, 1.0, 4.0], 2)]
        [[2.0, 1.0], [0.0, 2.0, 4.0]]
    """
    if isinstance(bins, int):
        bins = check_count("histogram", "bins", bins)
    if range is not None and not range[0] <= range[1]:
        raise ArgumentError("histogram", f"range must ascend, received {range}")
    return jnp.histogram(x, bins, range)


@op
def bincount(
    x: Tensor, weights: Tensor = None, minlength: int = 0, sparse: bool = False
) -> jax.Array:
    """How often each integer from 0 occurs, in every row.

    Args:
        x: Non-negative integers.
        weights: What each of them counts; 1 by default.
        minlength: The least number of bins. Inside compiled code it is their number,
            since the largest value is not known there.
        sparse: Must be false.

    Shape:
        x: [n] → [bins]; [batch, n] → [batch, bins]

    Raises:
        ArgumentError: Another rank, or ``sparse=True``.

    Example:
        >>> bincount([1, 1, 2], minlength=4).tolist()
        [0, 2, 1, 0]
    """
    refuse_sparse("bincount", sparse)
    if x.ndim not in (1, 2):
        raise ArgumentError("bincount", f"x has rank 1 or 2, received rank {x.ndim}")
    length = minlength
    if not isinstance(x, Tracer):
        length = builtins.max(minlength, int(x.max()) + 1 if x.size else 0)
    elif not minlength:
        raise ArgumentError("bincount", "minlength must be given inside compiled code")

    def row(values, weights):
        return jnp.bincount(values, weights, length=length)

    return row(x, weights) if x.ndim == 1 else jax.vmap(row)(x, weights)


@overload
def unique(
    x: Tensor,
    sorted: bool = ...,
    return_index: Literal[False] = ...,
    return_inverse: Literal[False] = ...,
    return_counts: Literal[False] = ...,
    axis: int | None = ...,
    size: int | None = ...,
    fill_value: Tensor = ...,
) -> jax.Array: ...
@overload
def unique(
    x: Tensor,
    sorted: bool = ...,
    return_index: bool = ...,
    return_inverse: bool = ...,
    return_counts: bool = ...,
    axis: int | None = ...,
    size: int | None = ...,
    fill_value: Tensor = ...,
) -> Any: ...
@op
def unique(
    x: Tensor,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Tensor = None,
) -> Any:
    """The distinct values, sorted, and on request where and how often they occur.

    Args:
        sorted: Ignored: the values are always sorted.
        return_index: Also where each is found first.
        return_inverse: Also which of them each element is.
        return_counts: Also how often each occurs.
        axis: Whether to compare the slices along an axis; all elements by default.
        size: Number of values, needed inside compiled code.
        fill_value: What fills up to ``size``; the smallest value by default.

    Example:
        >>> unique([3, 1, 3]).tolist()
        [1, 3]
    """
    return jnp.unique(
        x,
        return_index,
        return_inverse,
        return_counts,
        axis,
        size=size,
        fill_value=fill_value,
    )
