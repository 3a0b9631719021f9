"""Rows of tokens of several documents, with what tells the documents apart."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods


@guard_methods
@jax.tree_util.register_dataclass
@dataclasses.dataclass
class PackedTokens:
    """A batch of rows, each with the tokens of several documents.

    A model with one input of tokens takes it in the place of the tokens. Its attention
    and its positions are then those of each document by itself.

    Args:
        tokens: ``[rows, length]`` of integers.
        segments: ``[rows, length]`` of integers: the documents of a row are counted
            from 1, and what fills it up is 0.

    Example:
        >>> import numpy as np
        >>> rows = PackedTokens(np.array([[5, 6, 7, 0]]), np.array([[1, 1, 2, 0]]))
        >>> rows.shape
        (1, 4)
    """

    tokens: Any
    segments: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tokens.shape)


def is_packed(value: Any) -> bool:
    return isinstance(value, PackedTokens)


def has_packed(tree: Any) -> bool:
    """Whether a tree holds packed rows."""
    return any(map(is_packed, jax.tree.leaves(tree, is_leaf=is_packed)))


def check_packed(op: str, rows: PackedTokens) -> None:
    """Raises unless tokens and segments are integers of one shape.

    Raises:
        ArgumentError: They are not.
    """
    tokens, segments = rows.tokens, rows.segments
    shapes = [getattr(v, "shape", None) for v in (tokens, segments)]
    whole = all(
        hasattr(v, "dtype") and jnp.issubdtype(v.dtype, jnp.integer)
        for v in (tokens, segments)
    )
    if not whole or shapes[0] != shapes[1] or len(shapes[0] or ()) != 2:
        raise ArgumentError(
            op,
            "packed rows need tokens and segments, both integers [rows, length]",
            {"tokens": shapes[0], "segments": shapes[1]},
        )
