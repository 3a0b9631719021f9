"""Scaled dot-product attention of heads, by the kernel that suits the device.

On an NVIDIA GPU cuDNN's flash attention runs where it can. Elsewhere, and for dropout,
returned scores, or values of another size than the keys, the matrix of weights is made:
at least as fast as ``jax.nn``'s own XLA form, which has no float16 on a CPU.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from exburn.core import forward_context
from exburn.runtime import portable
from exburn.runtime.cached_trace import traced_once
from exburn.runtime.device import chosen_platform
from exburn.runtime.kernels.attention_softmax import masked_softmax, softmax_form
from exburn.runtime.kernels.flash_attention import flash_attention
from exburn.runtime.kernels.memory_bound import has_known_sizes
from exburn.runtime.kernels.position_mask import position_mask


def attend(
    query,
    key,
    value,
    *,
    mask=None,
    causal=False,
    window=None,
    scale,
    soft_cap=None,
    cudnn=False,
):
    """Attention of heads.

    Args:
        query: ``[batch, targets, heads, size]``.
        key: ``[batch, sources, key heads, size]``; heads are a multiple of key heads.
        value: ``[batch, sources, key heads, value size]``.
        mask: Booleans that broadcast to ``[batch, heads, targets, sources]``.
        causal: Whether a position sees none after it.
        window: Whether a position sees only those less than this many steps away.
        scale: Factor of the scores.
        soft_cap: Bound of the scores, ``cap * tanh(score / cap)``; or None.
        cudnn: Whether to run cuDNN's kernel, which bounds no scores.

    Returns:
        ``[batch, targets, heads, value size]``
    """
    if not cudnn:
        options = mask, causal, window, scale, soft_cap
        forms = softmax_form(), turns_keys(query, key)
        return _by_weights(query, key, value, *options, *forms)
    options = {"mask": mask, "causal": causal, "window": window, "scale": scale}
    return flash_attention(query, key, value, **options)


def attend_by_weights(
    query,
    key,
    value,
    *,
    mask=None,
    causal=False,
    window=None,
    scale,
    soft_cap=None,
    drop=None,
    form=None,
):
    """Attention of heads that also returns the weights.

    Args: those of :func:`attend`, and
        drop: Function applied to the weights before they are used, or None.
        form: As for ``masked_softmax``.

    Returns:
        ``[batch, targets, heads, value size]``, ``[batch, heads, targets, sources]``
    """
    batch, targets, heads, size = query.shape
    sources, groups = key.shape[1], key.shape[2]
    query = query * jnp.asarray(scale, query.dtype)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    if groups == heads:
        if turns_keys(query, key):
            # Behind the barrier, whose transpose is a barrier too, the gradient of the
            # keys is ``query^T slopes`` and then turned. Else XLA turns all slopes.
            turned = lax.optimization_barrier(key.transpose(0, 2, 3, 1))
            scores = jnp.einsum("btnh,bnhs->bnts", query, turned)
        else:
            scores = jnp.einsum(
                "btnh,bsnh->bnts", query, key, preferred_element_type=wide
            )
    else:
        query = query.reshape(batch, targets, groups, heads // groups, size)
        scores = jnp.einsum(
            "btkgh,bskh->bkgts", query, key, preferred_element_type=wide
        ).reshape(batch, heads, targets, sources)
    scores = bound_scores(scores, soft_cap)
    seen = position_mask(targets, sources, causal=causal, window=window)
    if mask is not None:
        seen = mask if seen is None else mask & seen
    weights = masked_softmax(scores, seen, form).astype(query.dtype)
    used = weights if drop is None else drop(weights)
    # XLA's CPU takes up to three times as long for products whose axes are btnh.
    if groups == heads:
        out = jnp.einsum("bnts,bsnh->bnth", used, value)
    else:
        used = used.reshape(batch, groups, heads // groups, targets, sources)
        out = jnp.einsum("bkgts,bskh->bkgth", used, value)
        out = out.reshape(batch, heads, targets, value.shape[-1])
    return out.swapaxes(1, 2), weights


def bound_scores(scores, soft_cap: float | None):
    """``cap * tanh(scores / cap)``; the scores themselves without a cap.

    Example:
        >>> bound_scores(jnp.array([1e6, 0.0]), 2.0).tolist()
        [2.0, 0.0]
    """
    return scores if soft_cap is None else soft_cap * jnp.tanh(scores / soft_cap)


def turns_keys(query, key) -> bool:
    """Whether the keys are transposed before the scores, for their gradient.

    In ``fit`` on a CPU, in float32, for 256 to 512 positions: attention with gradients
    is 1.08 to 1.7 times as fast. It is slower for fewer than 128, and takes twice as
    long for 1,024.
    """
    ctx, sizes = forward_context.current(), (query.shape[1], key.shape[1])
    return (
        ctx is not None
        and ctx.in_fit
        and portable.current() is None
        and chosen_platform() == "cpu"
        and query.dtype == key.dtype == jnp.float32
        and has_known_sizes(query)
        and has_known_sizes(key)
        and all(256 <= size <= 512 for size in sizes)
    )


@traced_once("causal", "window", "scale", "soft_cap", "form", "turned")
def _by_weights(query, key, value, mask, causal, window, scale, soft_cap, form, turned):
    del turned  # what `turns_keys` says, of which the trace depends
    options = {"causal": causal, "window": window, "scale": scale}
    options |= {"soft_cap": soft_cap, "mask": mask, "form": form}
    return attend_by_weights(query, key, value, **options)[0]
