"""Scaled dot-product attention of heads, by the kernel that suits the device.

On an NVIDIA GPU cuDNN's flash attention runs where it can, by
``jax.nn.dot_product_attention``; it never holds the matrix of weights. Elsewhere, and
for dropout, returned scores, or values of another size than the keys, the matrix is
made: at least as fast as ``jax.nn``'s own XLA form, which has no float16 on a CPU.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.kernels.attention_softmax import masked_softmax, softmax_form
from exburn.runtime import portable
from exburn.runtime.cached_trace import traced_once


def position_mask(targets: Any, sources: Any, *, causal: bool, window: int | None):
    """Booleans ``[1, 1, targets, sources]``: which positions see which; None if all do.

    Args:
        targets: Number of queries.
        sources: Number of keys.
        causal: Whether a position sees none after it.
        window: Whether a position sees only those less than this many steps away.
    """
    if not causal and window is None:
        return None
    ahead = jnp.arange(targets)[:, None] - jnp.arange(sources)[None, :]
    seen = ahead >= 0 if causal else jnp.abs(ahead) < window
    if causal and window is not None:
        seen &= ahead < window
    return seen[None, None]


def why_not_cudnn(query, key, value, mask) -> str | None:
    """Why cuDNN's flash attention cannot run, or None if it can."""
    if portable.current() is not None:
        return "the program is traced to run elsewhere"
    if jax.default_backend() != "gpu":
        return f"JAX runs on {jax.default_backend()}"
    kinds = {jnp.dtype(v.dtype).name for v in (query, key, value)}
    if len(kinds) > 1 or not kinds <= {"bfloat16", "float16"}:
        return f"it computes in bfloat16 or float16, not {', '.join(sorted(kinds))}"
    sizes = (*query.shape, *key.shape)
    if not all(isinstance(d, int) for d in sizes):
        return "sizes are not known"
    capability = getattr(jax.local_devices()[0], "compute_capability", None)
    if capability is None or float(capability) < 8:
        return "it needs an NVIDIA GPU of the Ampere generation or a newer one"
    size, largest = query.shape[-1], 256 if float(capability) >= 9 else 128
    if value.shape[-1] != size:
        return "keys and values differ in size"
    if size % 8 or size > largest:
        return f"the size of a head, {size}, is no multiple of 8 up to {largest}"
    if query.shape[1] < 2 or key.shape[1] < 2:
        return "there is one position only"
    if mask is not None and (query.shape[1] % 2 or key.shape[1] % 2):
        return "with a mask, lengths must be even"
    return None


def attend(
    query, key, value, *, mask=None, causal=False, window=None, scale, cudnn=False
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
        cudnn: Whether to run cuDNN's kernel.

    Returns:
        ``[batch, targets, heads, value size]``
    """
    if not cudnn:
        options = mask, causal, window, scale, softmax_form()
        return _by_weights(query, key, value, *options)
    targets, sources = query.shape[1], key.shape[1]
    read = None
    if window is not None and not causal:
        seen = position_mask(targets, sources, causal=False, window=window)
        mask, window = seen if mask is None else mask & seen, None
    if mask is not None:  # its bias has the full size in the last two axes
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], targets, sources))
        mask, read = _without_blind_rows(mask, causal, window)
    out = jax.nn.dot_product_attention(
        query,
        key,
        value,
        mask=mask,
        scale=scale,
        is_causal=causal,
        local_window_size=None if window is None else (window - 1, 0),
        implementation="cudnn",
    )
    if read is None:
        return out
    mean = jnp.repeat(
        value.mean(axis=1, keepdims=True), out.shape[2] // value.shape[2], 2
    )
    return jnp.where(read, out, mean)


def _without_blind_rows(mask, causal: bool, window: int | None):
    """The mask with rows that see nothing made to see, and which rows saw something.

    cuDNN's gradient is wrong, by more than a factor of ten, where a row sees nothing.
    """
    near = position_mask(*mask.shape[-2:], causal=causal, window=window)
    seen = (mask if near is None else mask & near).any(axis=-1, keepdims=True)
    return mask | ~seen, seen.swapaxes(1, 2)


def attend_by_weights(
    query,
    key,
    value,
    *,
    mask=None,
    causal=False,
    window=None,
    scale,
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
        scores = jnp.einsum("btnh,bsnh->bnts", query, key, preferred_element_type=wide)
    else:
        query = query.reshape(batch, targets, groups, heads // groups, size)
        scores = jnp.einsum(
            "btkgh,bskh->bkgts", query, key, preferred_element_type=wide
        ).reshape(batch, heads, targets, sources)
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


@traced_once("causal", "window", "scale", "form")
def _by_weights(query, key, value, mask, causal, window, scale, form):
    options = {"causal": causal, "window": window, "scale": scale}
    options |= {"mask": mask, "form": form}
    return attend_by_weights(query, key, value, **options)[0]
