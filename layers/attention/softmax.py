"""Softmax of attention's scores."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from exburn import context
from exburn.activations.shares import shares
from exburn.config import is_gpu_kernels_enabled
from exburn.device import chosen_platform
from exburn.layers.attention import row_softmax
from exburn.memory_bound import memory_bound

__all__ = ["masked_softmax", "softmax_form"]


def softmax_form() -> str:
    """How a softmax of few scores is to be computed here: ``"whole"``, by XLA as it is.

    In training on a GPU, whose program takes long to compile, ``"kernels"`` are those
    of `row_softmax`, and ``"steps"`` three of XLA's, elsewhere than in ``fit``: there
    derivatives may be wanted forward (``jax.jvp``), which the kernels do not have.
    Evaluation of a small transformer takes 4 % longer in steps.

    Example:
        >>> softmax_form() if chosen_platform() == "cpu" else "whole"
        'whole'
    """
    pass_ = context.current()
    if pass_ is None or not pass_.training or chosen_platform() != "gpu":
        return "whole"
    if not is_gpu_kernels_enabled():
        return "whole"
    return "kernels" if pass_.in_fit else "steps"


def masked_softmax(
    scores: jax.Array, mask: jax.Array | None, form: str | None = None
) -> jax.Array:
    """Softmax over the last axis; rows that see nothing are uniform, not NaN.

    Args:
        scores: ``[…, sources]``
        mask: Booleans that broadcast to ``scores``: which sources are seen; or None.
        form: What ``softmax_form()`` said, if that was before.

    Example:
        >>> masked_softmax(jnp.zeros((1, 4)), jnp.array([1, 1, 0, 0], bool)).tolist()
        [[0.5, 0.5, 0.0, 0.0]]
    """
    if mask is not None:
        scores = jnp.where(mask, scores, 0.7 * jnp.finfo(scores.dtype).min)
    form = softmax_form() if form is None else form
    large = memory_bound(scores)
    # XLA reads large scores three times on the way back, the kernels twice: 1.6 times
    # as fast for 33 million on an H100. A mask XLA makes part of its own kernel.
    if form == "kernels" and not (large and mask is not None):
        if row_softmax.fits(scores):
            return row_softmax.softmax(scores)
    if form == "whole" or large:
        return shares(scores)
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
