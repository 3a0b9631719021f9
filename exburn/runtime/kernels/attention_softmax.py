"""Softmax of attention's scores, in the form that suits device, pass and size.

Replaces: `kernels.softmax.shares` of the masked scores, the form ``"whole"``.
The others are the kernels of `kernels.row_softmax`, and `_by_steps`: three
kernels of XLA's, kept apart by barriers.

Runs: as `softmax_form` and `masked_softmax` decide. Kernels: on NVIDIA GPUs within
``fit``, float32, for small scores, and for large ones without a mask. Steps: on a GPU
in other training, for small scores, and within ``fit`` where the kernels do not fit.
Else, and with ``config.disable_gpu_kernels()``, whole.

Gain: steps take a tenth off the time that a transformer of 12 blocks takes to compile
for a GPU, and add 4 % to a small one's evaluation (H200), so that they are for training
only. The kernels for large scores took attention over 1,024 and 256 tokens from 0.96
and 1.01 to 1.05 and 1.06 of a hand-written program's speed on an H100. Their other
figures are in `row_softmax`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from exburn.config import is_gpu_kernels_enabled
from exburn.core import forward_context
from exburn.runtime.device import chosen_platform
from exburn.runtime.kernels import row_softmax
from exburn.runtime.kernels.memory_bound import memory_bound
from exburn.runtime.kernels.softmax import shares


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
    ctx = forward_context.current()
    if ctx is None or not ctx.training or chosen_platform() != "gpu":
        return "whole"
    if not is_gpu_kernels_enabled():
        return "whole"
    return "kernels" if ctx.in_fit else "steps"


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
