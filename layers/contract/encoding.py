"""Category numbers as they are, or as vectors with one entry a category."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_choice
from exburn.core.symbolic_shapes import trace_shapes
from exburn.errors import ArgumentError


def check_mode(op: str, output_mode: Any, *modes: str) -> str:
    """The output mode, under its present name."""
    old = {"binary": "multi_hot", "tf-idf": "tf_idf"}
    mode = old.get(output_mode, output_mode)
    return check_choice(op, "output_mode", mode, modes)


def refuse_sparse(op: str, sparse: Any) -> None:
    if sparse:
        raise ArgumentError(
            op,
            "outputs are dense",
            hint="Leave sparse=True out; XLA has no such arrays.",
        )


def encode(xp: Any, indices: Any, mode: str, depth: int, dtype: Any, weights=None):
    """The indices as ``mode`` wants them. Those that are out of range count nowhere.

    Args:
        xp: ``numpy`` or ``jax.numpy``, whichever computes.
        indices: Integers.
        mode: ``"int"``, ``"one_hot"``, ``"multi_hot"`` or ``"count"``.
        depth: Number of categories.
        dtype: Of the vectors.
        weights: What each index adds to the count; 1 by default.

    Shape:
        indices: [..., n] → the same for ``int``; [..., n, depth] for ``one_hot``, or
        [..., depth] if n is 1 and there is a further axis; [..., depth] otherwise.

    Example:
        >>> encode(np, np.array([[0, 2], [1, 1]]), "count", 3, "int32").tolist()
        [[1, 0, 1], [0, 2, 0]]
    """
    if mode == "int":
        return indices
    if indices.ndim == 0:
        indices = indices[None]
        if weights is not None:
            weights = weights[None]
    if mode == "one_hot" and indices.ndim > 1 and indices.shape[-1] == 1:
        indices = indices[..., 0]
    if xp is np and mode != "one_hot":
        counts = _count(indices, depth, weights)
        return (counts > 0 if mode == "multi_hot" else counts).astype(dtype)
    hits = indices[..., None] == xp.arange(depth, dtype=indices.dtype)
    if mode == "one_hot":
        return hits.astype(dtype)
    if mode == "multi_hot":
        return hits.any(-2).astype(dtype)
    counted = hits if weights is None else xp.where(hits, weights[..., None], 0)
    return counted.sum(-2, dtype=dtype)


def encoded_spec(indices: Any, mode: str, depth: int, dtype: Any) -> Any:
    """The spec of what ``encode`` makes of indices of a spec's shape.

    Example:
        >>> spec = jax.ShapeDtypeStruct((5, 1), np.float32)
        >>> encoded_spec(spec, "one_hot", 3, "float32").shape
        (5, 3)
    """
    numbers = jax.ShapeDtypeStruct(
        indices.shape, np.dtype(dtype if mode == "int" else np.int32)
    )
    return trace_shapes(
        lambda numbers: encode(jnp, numbers, mode, depth, dtype),
        [numbers],
        where="a lookup",
    )


def _count(indices: np.ndarray, depth: int, weights: Any) -> np.ndarray:
    """How often each category is in a row, without an array of rows * n * depth."""
    shape = indices.shape[:-1]
    rows = int(np.prod(shape))
    flat = indices.reshape(rows, -1).astype(np.int64)
    used = (flat >= 0) & (flat < depth)
    cells = (flat + np.arange(rows)[:, None] * depth)[used]
    if weights is not None:
        weights = np.broadcast_to(weights, indices.shape).reshape(rows, -1)[used]
    return np.bincount(cells, weights, rows * depth).reshape(*shape, depth)
