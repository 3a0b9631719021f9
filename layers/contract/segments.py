"""The documents of packed rows, as layers see them in a forward pass.

Layers find them in the forward context, as they find the cache of keys and values:
attention stays within a document, and positions begin again in each.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core import forward_context
from exburn.core.symbolic_shapes import describe
from exburn.errors import ShapeError
from exburn.layers.contract.key_value_cache import current_cache


class Segments:
    """The documents of a pass' rows.

    Args:
        numbers: ``[rows, length]``: which document of its row a token is of. The tokens
            of a document follow each other.

    Example:
        >>> Segments(jnp.array([[1, 1, 2, 2, 2, 0]])).positions().tolist()
        [[0, 1, 0, 1, 2, 0]]
    """

    def __init__(self, numbers: Any):
        self.numbers = jnp.asarray(numbers, jnp.int32)
        before = jnp.pad(self.numbers[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        places = jnp.arange(self.numbers.shape[1], dtype=jnp.int32)
        begins = jnp.where(self.numbers != before, places, 0)
        self._positions = places - lax.cummax(begins, axis=1)

    def positions(self) -> jax.Array:
        """The position of each token in its document, ``[rows, length]``."""
        return self._positions

    def lengths(self) -> jax.Array:
        """Tokens of the document of each token, ``[rows, length]``."""
        after = jnp.pad(self.numbers[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
        length = self.numbers.shape[1]
        places = jnp.arange(length, dtype=jnp.int32)
        ends = jnp.where(self.numbers != after, places, length)
        return lax.cummin(ends, axis=1, reverse=True) - places + self._positions + 1

    def mask(self) -> jax.Array:
        """Which tokens are of one document, ``[rows, 1, length, length]``."""
        return self.numbers[:, None, :, None] == self.numbers[:, None, None, :]

    def check(self, layer: Any, *arrays: Any) -> None:
        """Raises unless arrays have the positions of the rows.

        Args:
            arrays: ``[rows, length, …]``.

        Raises:
            ShapeError: One has not.
        """
        for array in arrays:
            if array.shape[:2] != self.numbers.shape:
                raise ShapeError(
                    layer.name,
                    "packed rows need the positions of the rows here, "
                    f"{tuple(self.numbers.shape)}, received {describe(array)}",
                    hint="Give the model the documents one by one, filled up.",
                )


def current_segments() -> Segments | None:
    """The documents of the pass under way, or ``None`` if its rows are not packed."""
    ctx = forward_context.current()
    return None if ctx is None else ctx.segments


def with_segments(mask: Any) -> Any:
    """A mask of attention that keeps to the documents of packed rows, too.

    Args:
        mask: Booleans that broadcast to ``[rows, heads, length, length]``, or ``None``.
    """
    if (segments := current_segments()) is None:
        return mask
    return segments.mask() if mask is None else mask & segments.mask()


def token_positions(count: Any) -> jax.Array | None:
    """Positions of the tokens of the pass under way, ``[rows or 1, count]``.

    Args:
        count: Tokens of a row.

    Returns:
        ``None`` where they are those of the tokens in the row.
    """
    if (cache := current_cache()) is not None:
        return cache.positions(count)
    segments = current_segments()
    return None if segments is None else segments.positions()
