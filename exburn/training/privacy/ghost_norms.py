"""Norms of weights' gradients by what the gradients are products of: ghost norms.

A layer that multiplies inputs ``a`` with a weight at several positions has the gradient
``sum_t a_t g_tᵀ``, where ``g`` is the gradient of its output. Its squared norm is also
``sum_ts (a_t · a_s) (g_t · g_s)``. What takes less memory is computed.

Sources: I. Goodfellow, "Efficient Per-Example Gradient Computations", 2015; X. Li et
al., "Large Language Models Can Be Strong Differentially Private Learners", 2021; Z. Bu,
J. Mao, S. Xu, "Scalable and Efficient Training of Large Convolutional Neural Networks
with Differential Privacy", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_PRECISE = lax.Precision.HIGHEST


def squared_norm(parts: list[jax.Array], slope: jax.Array) -> jax.Array:
    """Squared norm of ``sum_t a_t g_tᵀ`` for each of the parts, added up.

    Args:
        parts: ``[groups, positions, in]`` each: inputs that have weights of their own,
            such as those of the offsets of a window.
        slope: ``[groups, positions, out]``

    Example:
        >>> a = jax.random.normal(jax.random.key(0), (1, 5, 3))
        >>> g = jax.random.normal(jax.random.key(1), (1, 5, 4))
        >>> squares = squared_norm([a], g), jnp.sum(jnp.square(a[0].T @ g[0]))
        >>> bool(jnp.allclose(*squares, rtol=1e-5))
        True
    """
    slope = slope.astype(jnp.float32)
    positions, width = parts[0].shape[1:]
    if positions == 1:
        return _dot(_squares(parts), jnp.sum(slope**2, axis=(1, 2)))
    if 2 * positions**2 <= width * slope.shape[2]:
        inner = sum(_between(part.astype(jnp.float32)) for part in parts)
        return jnp.sum(inner * _between(slope))
    total = jnp.float32(0)
    for part in parts:
        gradient = jnp.einsum(
            "kti,kto->kio", part.astype(jnp.float32), slope, precision=_PRECISE
        )
        total = total + jnp.sum(jnp.square(gradient))
    return total


def _squares(parts: list[jax.Array]) -> jax.Array:
    return sum(
        (jnp.sum(jnp.square(part.astype(jnp.float32)), axis=(1, 2)) for part in parts),
        jnp.float32(0),
    )


def _dot(one: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.sum(one * other)


def _between(rows: jax.Array) -> jax.Array:
    """Products of positions with each other, ``[groups, positions, positions]``."""
    return jnp.einsum("kti,ksi->kts", rows, rows, precision=_PRECISE)


def of_dot(equation: Any, at: int, x: jax.Array, slope: jax.Array) -> jax.Array:
    """Of a product of matrices, ``lax.dot_general``.

    Args:
        at: Place of the weight among the operands.
    """
    (contracted, batched) = equation.params["dimension_numbers"]
    own, groups = contracted[1 - at], batched[1 - at]
    free = [axis for axis in range(x.ndim) if axis not in (*own, *groups)]
    lead = [x.shape[axis] for axis in groups]
    count = math.prod(lead)
    width = math.prod(x.shape[axis] for axis in own)
    rows = lax.transpose(x, (*groups, *free, *own)).reshape(count, -1, width)
    # Of an output: the groups, the free axes of the left one, those of the right one.
    rest, first = slope.ndim - len(groups) - len(free), len(groups)
    theirs = [*range(first, first + rest)] if at == 0 else [*range(slope.ndim)][-rest:]
    theirs = theirs if rest else []
    ours = [axis for axis in range(first, slope.ndim) if axis not in theirs]
    order = [*range(first), *ours, *theirs]
    slope = lax.transpose(slope, order).reshape(count, rows.shape[1], -1)
    return squared_norm([rows], slope)


def of_convolution(equation: Any, at: int, x: jax.Array, slope: jax.Array) -> jax.Array:
    """Of ``lax.conv_general_dilated``: each offset of the window is a product."""
    params = equation.params
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    # [rows, channels, *sizes]
    x = lax.transpose(x, numbers.lhs_spec)
    slope = lax.transpose(slope, numbers.out_spec)
    kernel = equation.invars[at].aval.shape
    window = [kernel[axis] for axis in numbers.rhs_spec[2:]]
    pads = [
        (low, high, spread - 1)
        for (low, high), spread in zip(
            params["padding"], params["lhs_dilation"], strict=True
        )
    ]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *pads])
    parts = [
        _in_groups(part, groups)
        for part in _offsets(
            x, window, slope.shape[2:], params["window_strides"], params["rhs_dilation"]
        )
    ]
    return squared_norm(parts, _in_groups(slope, groups))


def _offsets(
    x: jax.Array, window: Any, sizes: Any, strides: Any, dilation: Any
) -> Iterator[jax.Array]:
    """What each offset of a window sees of images ``[rows, channels, *sizes]``."""
    for offset in np.ndindex(*window):
        begin = [o * d for o, d in zip(offset, dilation, strict=True)]
        end = [
            b + (n - 1) * s + 1 for b, n, s in zip(begin, sizes, strides, strict=True)
        ]
        yield lax.slice(x, (0, 0, *begin), (*x.shape[:2], *end), (1, 1, *strides))


def _in_groups(images: jax.Array, groups: int) -> jax.Array:
    """Images ``[rows, channels, *sizes]`` as ``[groups, positions, channels]``."""
    rows, channels = images.shape[:2]
    split = images.reshape(rows, groups, channels // groups, -1)
    return split.transpose(1, 0, 3, 2).reshape(groups, -1, channels // groups)


def of_lookup(equation: Any, at: int, x: jax.Array, slope: jax.Array) -> jax.Array:
    """Of rows of a table, ``lax.gather``: those of a row that was read often add up."""
    size = equation.invars[at].aval.shape[0]
    places = x.reshape(-1)
    slope = slope.reshape(len(places), -1).astype(jnp.float32)
    if equation.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        inside = (places >= 0) & (places < size)
        slope = jnp.where(inside[:, None], slope, 0.0)
    places = jnp.clip(places, 0, size - 1)
    order = jnp.argsort(places)
    places, slope = places[order], slope[order]
    changes = jnp.concatenate([jnp.zeros(1, bool), places[1:] != places[:-1]])
    sums = jax.ops.segment_sum(
        slope, jnp.cumsum(changes), len(places), indices_are_sorted=True
    )
    return jnp.sum(jnp.square(sums))


NORMS: dict[str, Callable[[Any, int, jax.Array, jax.Array], jax.Array]] = {
    "dot_general": of_dot,
    "conv_general_dilated": of_convolution,
    "gather": of_lookup,
}


def computes(equation: Any, at: int) -> bool:
    """Whether the norm of an operand's gradient can be computed here."""
    name, params = equation.primitive.name, equation.params
    kinds = {v.aval.dtype for v in (equation.invars[at], *equation.outvars)}
    if name not in NORMS or kinds != {jnp.dtype(jnp.float32)}:
        return False
    if name == "conv_general_dilated":
        return at == 1 and params["batch_group_count"] == 1
    if name == "dot_general":
        return equation.invars[1 - at].aval.dtype == jnp.float32
    numbers, table = params["dimension_numbers"], equation.invars[at].aval.shape
    offsets = (*range(len(equation.outvars[0].aval.shape))[1 - len(table) :],)
    return (
        at == 0
        and equation.invars[1].aval.shape[-1] == 1
        and numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
        and numbers.offset_dims == offsets
        and tuple(params["slice_sizes"]) == (1, *table[1:])
    )
