"""Softmax of attention's scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from exburn import context
from exburn.config import is_gpu_kernels_enabled
from exburn.device import chosen_platform
from exburn.memory_bound import memory_bound

__all__ = ["goes_by_steps", "masked_softmax"]


def goes_by_steps() -> bool:
    """Whether few scores are to go through three kernels here, not one.

    In training, whose program takes long to compile; evaluation of a small transformer
    takes 4 % longer so.

    Example:
        >>> goes_by_steps() and chosen_platform() == "cpu"
        False
    """
    pass_ = context.current()
    training = pass_ is not None and pass_.training
    return training and chosen_platform() == "gpu" and is_gpu_kernels_enabled()


def masked_softmax(
    scores: jax.Array, mask: jax.Array | None, by_steps: bool | None = None
) -> jax.Array:
    """Softmax over the last axis; rows that see nothing are uniform, not NaN.

    Args:
        scores: ``[…, sources]``
        mask: Booleans that broadcast to ``scores``: which sources are seen; or None.
        by_steps: What ``goes_by_steps()`` said, if that was before.

    Example:
        >>> masked_softmax(jnp.zeros((1, 4)), jnp.array([1, 1, 0, 0], bool)).tolist()
        [[0.5, 0.5, 0.0, 0.0]]
    """
    if mask is not None:
        scores = jnp.where(mask, scores, 0.7 * jnp.finfo(scores.dtype).min)
    by_steps = goes_by_steps() if by_steps is None else by_steps
    if not by_steps or memory_bound(scores):
        return jax.nn.softmax(scores, axis=-1)
    return _by_steps(scores)


@jax.custom_jvp
def _by_steps(scores):
    # XLA makes one kernel of a softmax for a GPU, and then takes long to find out what
    # else could go into it: a tenth of the time that a transformer of 12 blocks takes
    # to compile. Of small arrays three kernels are as fast: behind a barrier they stay.
    shifted = jnp.exp(scores - lax.optimization_barrier(scores.max(-1, keepdims=True)))
    return shifted / lax.optimization_barrier(shifted.sum(-1, keepdims=True))


@_by_steps.defjvp
def _by_steps_jvp(primals, tangents):
    y, t = _by_steps(*primals), tangents[0]
    inner = lax.optimization_barrier((y * t).sum(-1, keepdims=True))
    return y, y * (t - inner)
