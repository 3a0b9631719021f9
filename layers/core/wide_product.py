"""The product of a layer's input with its kernel, in the form that runs fastest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["wide_product"]

WIDE = 4_096  # columns
# GPUs' matrix units need rows of whole 16 bytes; their tiles are 128 columns wide.
ALIGNED = 128


def wide_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """``x @ kernel`` of two matrices; on a GPU, many columns are filled up to tiles.

    All axes before the last are one: with three axes, JAX's gradient of the kernel is a
    transposed product, for which XLA's CPU backend copies the output's gradient across
    memory (a quarter of the training time of a dense network on a sequence).

    With 50,257 columns (GPT-2's) no row of scores starts on 16 bytes, so that XLA has
    to take kernels of less than half the speed. The columns added here are cut off
    again, and their gradient is zero; both are fused into the operations before and
    after.

    Args:
        x: ``[…, in]``
        kernel: ``[in, out]``

    Returns:
        ``[…, out]``

    Example:
        >>> wide_product(jnp.ones((2, 3)), jnp.ones((3, 5_000))).shape
        (2, 5000)
    """
    if x.ndim > 2:
        rows = wide_product(x.reshape(-1, x.shape[-1]), kernel)
        return rows.reshape(*x.shape[:-1], kernel.shape[1])
    columns = kernel.shape[1]
    if columns < WIDE or jax.default_backend() != "gpu":
        return jnp.matmul(x, kernel)
    scores = jnp.matmul(x, jnp.pad(kernel, [(0, 0), (0, -columns % ALIGNED)]))
    # The barrier's transpose is a barrier too. Two products read the gradient of the
    # scores; without it XLA computes all that leads there (the softmax of every score)
    # inside each of them.
    return lax.optimization_barrier(scores)[..., :columns]
