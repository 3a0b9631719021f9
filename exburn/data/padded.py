"""Rows of unlike lengths in one array, with the length of each."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from exburn.data.packed import PackedTokens


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Padded:
    """A batch of rows that are filled up to one length.

    Attributes:
        values: ``[batch, width, …]``.
        lengths: ``[batch]``: how many positions of each row are real.
        axis: Number of the axis of time: arrays of one number have equal lengths.

    Example:
        >>> import numpy as np
        >>> Padded(np.zeros((2, 3)), np.array([3, 1]), 0).mask().tolist()
        [[True, True, True], [True, False, False]]
    """

    values: Any
    lengths: Any
    axis: int = dataclasses.field(default=0, metadata={"static": True})

    def mask(self) -> jax.Array:
        """Which positions are real: ``[batch, width]``."""
        return jnp.arange(self.values.shape[1]) < self.lengths[:, None]


def is_padded(value: Any) -> bool:
    return isinstance(value, Padded)


def has_padded(tree: Any) -> bool:
    """Whether a tree holds padded rows."""
    return any(map(is_padded, jax.tree.leaves(tree, is_leaf=is_padded)))


def plain_values(tree: Any) -> Any:
    """A tree with the values in the place of padded rows, the tokens of packed ones.

    Example:
        >>> plain_values({"a": Padded(1, 2)})
        {'a': 1}
    """

    def plain(leaf: Any) -> Any:
        if isinstance(leaf, PackedTokens):
            return leaf.tokens
        return leaf.values if is_padded(leaf) else leaf

    return jax.tree.map(
        plain, tree, is_leaf=lambda leaf: isinstance(leaf, Padded | PackedTokens)
    )
