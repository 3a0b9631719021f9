"""Attention within the documents of packed rows, by blocks of queries.

Between whole rows the scores take memory with the square of their length. Here a block
of queries has its scores at a time, and the gradient computes them again. What they are
computed by is the plain form, so options and derivatives are those of that.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from exburn.layers.attention.scaled_dot_product import attend_by_weights
from exburn.runtime.device import chosen_platform

BLOCK = 128
"""Queries of a block. With gradients, 8 heads of 64, on one core of a CPU, rows of 512,
1,024, 2,048 and 4,096 tokens take 0.53, 0.54, 0.48 and 0.55 of the time of the plain
form with a mask, and 9, 18, 36 and 72 MiB instead of 34, 132, 520 and 2,064; blocks of
64 are as fast, of 256 slower by a quarter."""

_SHORT = {"cpu": 256}  # tokens of a row for which the plain form is as fast
_SHORT_ELSEWHERE = 1024  # where a loop's turns cost more; not measured
_MASK_BYTES = 1 << 30  # of cuDNN's mask, and the bias that it makes of it


def goes_by_blocks(rows: int, length: int, cudnn: bool) -> bool:
    """Whether attention within documents goes by blocks, not with a mask.

    Args:
        rows, length: Rows of a batch, and tokens of each.
        cudnn: Whether cuDNN's kernel, which takes the mask, is there for it.

    Example:
        >>> goes_by_blocks(8, 2048, cudnn=True), goes_by_blocks(8, 16384, cudnn=True)
        (False, True)
    """
    if cudnn:
        return 3 * rows * length**2 > _MASK_BYTES
    return length > _SHORT.get(chosen_platform(), _SHORT_ELSEWHERE)


def attend_by_blocks(
    query, key, value, segments, *, causal=False, window=None, **options
):
    """Attention of heads within segments.

    Args:
        query: ``[rows, length, heads, size]``.
        key: ``[rows, length, key heads, size]``.
        value: ``[rows, length, key heads, value size]``.
        segments: ``[rows, length]``: tokens see those of their own segment.
        causal: Whether a token sees none after it.
        window: Whether a token sees only those less than this many steps away.
        options: Further ones of ``attend_by_weights``.

    Returns:
        ``[rows, length, heads, value size]``
    """
    rows, length = segments.shape
    blocks = -(-length // BLOCK)
    filling = blocks * BLOCK - length
    queries = jnp.pad(query, ((0, 0), (0, filling), (0, 0), (0, 0)))
    owners = jnp.pad(segments, ((0, 0), (0, filling)), constant_values=-1)

    @jax.checkpoint
    def attend_block(carry, first):
        own = lax.dynamic_slice_in_dim(owners, first, BLOCK, 1)
        seen = own[:, :, None] == segments[:, None]  # [rows, block, length]
        ahead = (first + jnp.arange(BLOCK))[:, None] - jnp.arange(length)
        if causal:
            seen &= ahead >= 0
        if window is not None:
            seen &= jnp.abs(ahead) < window
        part = lax.dynamic_slice_in_dim(queries, first, BLOCK, 1)
        out, _ = attend_by_weights(part, key, value, mask=seen[:, None], **options)
        return carry, out

    firsts = jnp.arange(blocks, dtype=jnp.int32) * BLOCK
    _, parts = lax.scan(attend_block, None, firsts)
    # [blocks, rows, block, heads, size] → [rows, blocks · block, heads, size]
    out = parts.swapaxes(0, 1).reshape(rows, blocks * BLOCK, *parts.shape[3:])
    return out[:, :length]
