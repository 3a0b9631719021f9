"""Query, key and value of one input by one product, and attention out of it.

An attention layer's projections are joined where they are plain dense layers of one
input. On a GPU the heads of short rows read that product where it is: see
`exburn.runtime.kernels.short_attention`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from exburn.layers.contract.key_value_cache import current_cache
from exburn.layers.core.einsum_dense import EinsumDense
from exburn.runtime.kernels import short_attention
from exburn.runtime.kernels.qkv_projection import joined, joint_product, split
from exburn.runtime.sharding.current import divides_features


def project(layer: Any, query, key, value, same: bool):
    """Heads of query, key and value; by one product if the input is one.

    Args:
        layer: A ``ProjectedAttention``.
        query, key, value: ``[batch, positions, width]``
        same: Whether the three are one array.

    Returns:
        ``[batch, positions, heads, size]`` each.
    """
    parts = layer.query, layer.key, layer.value
    if not (same and _joins(parts)):
        return parts[0](query), parts[1](key), parts[2](value)
    biases = _biases(layer, parts) if layer.use_bias else None
    kernels, cache = _kernels(layer, parts), current_cache()
    product, offset, heads = joined(query, kernels, biases), 0, []
    for piece, part in zip(split(product, kernels), parts, strict=True):
        heads.append(piece.reshape(*piece.shape[:-1], *part.kernel.shape[1:]))
        if cache is not None:
            cache.note_part(heads[-1], product, offset)
        offset += piece.shape[-1]
    return heads


def attends_short(layer: Any, x, training: bool) -> bool:
    """Whether `attend_short` is what the heads read, if each reads all of its row.

    Args:
        layer: A ``ProjectedAttention``.
        x: The input of its query, key and value.
        training: Whether it drops weights, if it ever does.
    """
    heads, key_heads, key_size, value_size = layer._heads
    return (
        short_attention.fits(x, heads, key_size)
        and (heads, key_size) == (key_heads, value_size)
        and (layer.use_bias and layer.rotary is None and layer._is_own)
        and not (training and layer.dropout)
        and not (layer.sliding_window or layer.flash_attention or layer.logit_soft_cap)
        and layer.query_norm is None is layer.key_norm
        and _joins((layer.query, layer.key, layer.value))
    )


def attend_short(layer: Any, x) -> jax.Array:
    """What heads read of short rows, ``[batch, positions, heads, size]``."""
    (heads, _, size, _), parts = layer._heads, (layer.query, layer.key, layer.value)
    product, scale = joint_product(x, _kernels(layer, parts)), layer.scale
    scale = 1 / math.sqrt(size) if scale is None else scale
    bias = jnp.concatenate(_biases(layer, parts))
    out: Any = short_attention.attend(product, bias, heads, scale)
    return out.reshape(*x.shape[:-1], heads, size)


def _joins(parts: tuple) -> bool:
    # Kernels that are divided by heads would be gathered to be joined.
    return not divides_features() and all(
        type(p) is EinsumDense and p.activity_regularizer is None and p._ranges is None
        for p in parts
    )


def _kernels(layer: Any, parts: tuple) -> list[jax.Array]:
    """The kernel of each projection, ``[in, columns]``."""
    return [layer.cast(p.kernel).reshape(p.kernel.shape[0], -1) for p in parts]


def _biases(layer: Any, parts: tuple) -> list[jax.Array]:
    """The bias of each projection, ``[columns]``."""
    return [layer.cast(p.bias).ravel() for p in parts]
