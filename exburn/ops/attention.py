"""Attention."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.errors import ArgumentError, ShapeError
from exburn.ops.contract import op
from exburn.runtime.kernels.flash_attention import flash_attention as run_cudnn
from exburn.runtime.kernels.flash_attention import takes_cudnn
from exburn.runtime.kernels.ring_attention import ring_attention, ring_fits
from exburn.runtime.kernels.softmax import shares

__all__ = ["dot_product_attention"]


@op
def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor = None,
    mask: Tensor = None,
    scale: Tensor = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> jax.Array:
    """``softmax(scale · query keyᵀ + bias) value`` for every head.

    Args:
        query: Queries.
        key: Keys; their heads may be shared by several heads of queries.
        value: Values.
        bias: Added to the logits.
        mask: False where a query must not see a key.
        scale: ``1 / sqrt(dim)`` by default.
        is_causal: Whether query t sees only keys up to t.
        flash_attention: True: cuDNN's kernel or an error. False: never. None: where it
            can run, unless ``config.disable_flash_attention()``.
        attn_logits_soft_cap: Bounds the logits smoothly,
            ``logits / (1 + |logits| / cap)``.

    Shape:
        query: [batch, time, heads, dim]; key, value: [batch, source, kv heads, dim];
        bias, mask: broadcast to [batch, heads, time, source]
        → [batch, time, heads, dim]

    Raises:
        ArgumentError: ``flash_attention=True`` where it cannot run.
        ShapeError: A rank is not 4.

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 5, 4, 8), "float32")
        >>> dot_product_attention(x, x, x, is_causal=True).shape
        (2, 5, 4, 8)

    Source: Vaswani et al., *Attention Is All You Need*, 2017.
    """
    name = "dot_product_attention"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ShapeError(
            name,
            "query, key and value are [batch, time, heads, dim]",
            {"query": query.shape, "key": key.shape, "value": value.shape},
        )
    dtype = jnp.result_type(query, key, value)
    query, key, value = (x.astype(dtype) for x in (query, key, value))
    bias, mask = _four(bias), _four(mask)
    if mask is not None:
        mask = mask.astype(bool)
    if _goes_round(query, key, value, (bias, mask, attn_logits_soft_cap), is_causal):
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        arrays = query, key, value
        cudnn = takes_cudnn(name, flash_attention, *arrays, None, in_ring=True)
        return ring_attention(*arrays, causal=is_causal, scale=scale, cudnn=cudnn)
    if attn_logits_soft_cap is not None:
        if flash_attention:
            raise ArgumentError(name, "flash attention does not bound its logits")
        return _attend_capped(
            query, key, value, bias, mask, scale, is_causal, attn_logits_soft_cap
        )
    if bias is not None:
        bias = bias.astype(dtype)
    seen = bias if mask is None else mask
    if takes_cudnn(name, flash_attention, query, key, value, seen):
        options = {"bias": bias, "mask": mask, "causal": is_causal, "scale": scale}
        return run_cudnn(query, key, value, **options)
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias=bias,
        mask=mask,
        scale=scale,
        is_causal=is_causal,
        implementation="xla",
    )


def _goes_round(query, key, value, others, causal) -> bool:
    """Whether devices divide the positions, and keys go round among them."""
    return all(x is None for x in others) and ring_fits(
        query, key, value, causal=causal, window=None
    )


def _four(x):
    """Bias or mask with leading axes of size 1 up to rank 4."""
    return None if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)


def _attend_capped(query, key, value, bias, mask, scale, is_causal, cap):
    """Attention whose logits are bounded, which no fused kernel offers."""
    groups = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(x, groups, axis=2) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = scale * jnp.einsum(
        "btnh,bsnh->bnts", query, key, preferred_element_type=jnp.float32
    )
    logits = logits / (1 + jnp.abs(logits) / cap)
    if bias is not None:
        logits = logits + bias
    seen = True if mask is None else mask
    if is_causal:
        seen = seen & jnp.tri(*logits.shape[-2:], dtype=bool)
    logits = jnp.where(seen, logits, jnp.finfo(logits.dtype).min)
    weights = shares(logits).astype(value.dtype)
    return jnp.einsum("bnts,bsnh->bnth", weights, value).swapaxes(1, 2)
