"""Ops on segments, ranks and distances."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core.annotations import Tensor
from exburn.errors import ShapeError
from exburn.ops.contract import op

__all__ = [
    "cdist",
    "in_top_k",
    "segment_max",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "top_k",
]


# From JAX 0.11 on, which order equal entries come in is an argument.
_HAS_ORDERS = "is_stable" in inspect.signature(lax.top_k).parameters


def _check_segments(name: str, data: jax.Array, segment_ids: jax.Array) -> None:
    if segment_ids.ndim != 1 or data.shape[:1] != segment_ids.shape:
        raise ShapeError(
            name,
            "an id is needed for each row",
            {"data": data.shape, "segment_ids": segment_ids.shape},
        )


@op
def segment_max(
    data: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    sorted: bool = False,
) -> jax.Array:
    """The maximum of the rows with the same segment id.

    Args:
        data: An array.
        segment_ids: An integer from 0 for each row; rows with another are left out.
        num_segments: Number of segments, needed inside compiled code.
        sorted: Whether the ids are in order, which is quicker.

    Shape:
        data: [n, …]; segment_ids: [n] → [num_segments, …]

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> segment_max([2, 3, 4], [0, 0, 1]).tolist()
        [3, 4]
    """
    _check_segments("segment_max", data, segment_ids)
    return jax.ops.segment_max(data, segment_ids, num_segments, sorted)


@op
def segment_min(
    data: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    sorted: bool = False,
) -> jax.Array:
    """The minimum of the rows with the same segment id.

    Args:
        data: An array.
        segment_ids: An integer from 0 for each row; rows with another are left out.
        num_segments: Number of segments, needed inside compiled code.
        sorted: Whether the ids are in order, which is quicker.

    Shape:
        data: [n, …]; segment_ids: [n] → [num_segments, …]

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> segment_min([2, 3, 4], [0, 0, 1]).tolist()
        [2, 4]
    """
    _check_segments("segment_min", data, segment_ids)
    return jax.ops.segment_min(data, segment_ids, num_segments, sorted)


@op
def segment_prod(
    data: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    sorted: bool = False,
) -> jax.Array:
    """The product of the rows with the same segment id.

    Args:
        data: An array.
        segment_ids: An integer from 0 for each row; rows with another are left out.
        num_segments: Number of segments, needed inside compiled code.
        sorted: Whether the ids are in order, which is quicker.

    Shape:
        data: [n, …]; segment_ids: [n] → [num_segments, …]

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> segment_prod([2, 3, 4], [0, 0, 1]).tolist()
        [6, 4]
    """
    _check_segments("segment_prod", data, segment_ids)
    return jax.ops.segment_prod(data, segment_ids, num_segments, sorted)


@op
def segment_sum(
    data: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    sorted: bool = False,
) -> jax.Array:
    """The sum of the rows with the same segment id.

    Args:
        data: An array.
        segment_ids: An integer from 0 for each row; rows with another are left out.
        num_segments: Number of segments, needed inside compiled code.
        sorted: Whether the ids are in order, which is quicker.

    Shape:
        data: [n, …]; segment_ids: [n] → [num_segments, …]

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> segment_sum([2, 3, 4], [0, 0, 1]).tolist()
        [5, 4]
    """
    _check_segments("segment_sum", data, segment_ids)
    return jax.ops.segment_sum(data, segment_ids, num_segments, sorted)


@op
def top_k(
    x: Tensor, k: int, sorted: bool = True, is_stable: bool = True
) -> tuple[jax.Array, jax.Array]:
    """The ``k`` largest entries of the last axis, and where they are.

    Args:
        k: How many.
        sorted: Ignored: the largest always come first.
        is_stable: Whether the first of equal entries comes first.

    Shape:
        x: [..., n] → [..., k] and [..., k]

    Example:
        >>> values, places = top_k([1, 3, 2], 2)
        >>> values.tolist(), places.tolist()
        ([3, 2], [1, 2])
    """
    order = {"is_stable": is_stable} if _HAS_ORDERS else {}  # else it is stable
    values, places = lax.top_k(x, k, **order)
    return values, places


@op
def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> jax.Array:
    """Whether the target is among the ``k`` largest predictions; ties count as in.

    Args:
        targets: Integer classes.
        predictions: A score for every class.
        k: How many count.

    Shape:
        targets: [batch]; predictions: [batch, classes] → [batch]

    Example:
        >>> in_top_k([2, 0], [[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]], 1).tolist()
        [True, False]
    """
    own = jnp.take_along_axis(predictions, targets[:, None], -1, mode="fill")
    return (jnp.isfinite(own[:, 0])) & ((predictions > own).sum(-1) < k)


@op
def cdist(x: Tensor, y: Tensor) -> jax.Array:
    """Euclidean distances between all pairs of rows.

    Args:
        x: Points ``[…, n, d]``.
        y: Points ``[…, m, d]``.

    Shape:
        x: [..., n, d]; y: [..., m, d] → [..., n, m]

    Example:
        >>> cdist([[0.0, 0.0]], [[3.0, 4.0]]).tolist()
        [[5.0]]
    """
    squares = jnp.square(x[..., :, None, :] - y[..., None, :, :]).sum(-1)
    apart = squares > 0  # the gradient of sqrt at 0 is not finite
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)
