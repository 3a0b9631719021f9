"""Self-attention of short rows by one kernel of Triton each way, out of the product.

Query, key and value of all heads stand side by side in the joint product of an input. A
program reads those of one row and head where they are, adds the bias, and writes what
the head reads to its place in the output. XLA copies them into an order that cuBLAS
takes, multiplies, writes the scores, reads them for the softmax, multiplies, and copies
the result back.

Replaces: `plain_attend`, and the forms of `layers/attention/scaled_dot_product.py`.

Runs: where `fits` says so: on NVIDIA GPUs, within ``fit``, float32, rows of 64 tokens,
heads of 64 numbers, from 64 heads of all rows on. Attention with a mask, dropout, a
window, rotated heads or returned scores is not asked for here
(`layers/contract/projected_attention.py`).

Gain: on an H200 a vision transformer of 6 blocks (128 rows of 64 tokens, 3 heads) takes
2.43 instead of 2.72 ms a step, 1.12 × the scan (``benchmarks/vit_variants.py``).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.runtime.cached_trace import traced_once
from exburn.runtime.kernels.dispatch import by_rows, device_part, options, runs_kernels
from exburn.runtime.kernels.memory_bound import has_known_sizes

# What was measured: tokens of a row, and numbers of a head. Triton takes powers of two.
_TOKENS, _SIZES = (64,), (64,)
_PROGRAMS = 64  # at least, one for each row and head: half of what a GPU runs at once


def fits(x: Any, heads: int, size: int) -> bool:
    """Whether the kernels take the self-attention of ``x``, ``[batch, tokens, width]``.

    Only within ``fit``: elsewhere somebody may want derivatives forward (``jax.jvp``),
    which the kernels do not have.

    Args:
        x: The input that query, key and value are projected from.
        heads: Number of heads.
        size: Numbers of a head.

    Example:
        >>> fits(jnp.ones((32, 64, 192)), 3, 64)
        False
    """
    ctx = forward_context.current()
    if ctx is None or not ctx.in_fit or x.ndim != 3 or not has_known_sizes(x):
        return False
    if x.dtype != jnp.float32 or x.shape[1] not in _TOKENS or size not in _SIZES:
        return False
    part = device_part(x)
    return part is not None and part.shape[0] * heads >= _PROGRAMS and runs_kernels()


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def attend(product: jax.Array, bias: jax.Array, heads: int, scale: float) -> jax.Array:
    """``softmax(scale · Q Kᵀ) V`` for each head.

    Args:
        product: ``[batch, positions, 3 · width]``: query, key and value, each of them
            all heads side by side, without their bias.
        bias: ``[3 · width]``
        heads: Number of heads.
        scale: Factor of the scores.

    Returns:
        ``[batch, positions, width]``
    """
    return _values(product, bias, heads, scale)


def _forward(product, bias, heads, scale):
    return _values(product, bias, heads, scale), (product, bias)


def _backward(heads, scale, residuals, slopes):
    return _gradients(*residuals, slopes, heads, scale)


attend.defvjp(_forward, _backward)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _values(product, bias, heads, scale):
    run = by_rows(_call_ahead, (0, None), 0, heads=heads, scale=scale)
    return run(product, bias)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _gradients(product, bias, slopes, heads, scale):
    run = by_rows(_call_back, (0, None, 0), (0, None), heads=heads, scale=scale)
    return run(product, bias, slopes)


# Derivatives of these two, for gradients of gradients, are XLA's.


@_values.defjvp
def _values_jvp(heads, scale, primals, tangents):
    plain = functools.partial(plain_attend, heads=heads, scale=scale)
    return _values(*primals, heads, scale), jax.jvp(plain, primals, tangents)[1]


@_gradients.defjvp
def _gradients_jvp(heads, scale, primals, tangents):
    def plain(product, bias, slopes):
        call = functools.partial(plain_attend, heads=heads, scale=scale)
        return jax.vjp(call, product, bias)[1](slopes)

    return _gradients(*primals, heads, scale), jax.jvp(plain, primals, tangents)[1]


def plain_attend(product, bias, heads, scale):
    """The same in XLA's operations."""
    batch, positions, _ = product.shape
    # [batch, positions, 3, heads, size]
    parts = (product + bias).reshape(batch, positions, 3, heads, -1)
    query, key, value = (parts[:, :, i] for i in range(3))
    scores = jnp.einsum("btnh,bsnh->bnts", query * scale, key)
    out = jnp.einsum("bnts,bsnh->bnth", jax.nn.softmax(scores), value)
    return out.swapaxes(1, 2).reshape(batch, positions, -1)


@traced_once("heads", "scale")
def _call_ahead(product, bias, heads, scale):
    from jax.experimental import pallas as pl

    batch, positions, columns = product.shape
    size = columns // (3 * heads)
    parts, weight, one = _specs(positions, size)
    out = pl.pallas_call(
        functools.partial(_attend, scale=scale),
        grid=(batch, heads),
        in_specs=[parts, weight],
        out_specs=one,
        out_shape=jax.ShapeDtypeStruct((batch, positions, heads, size), product.dtype),
        **options(warps=_warps(positions)),
    )(
        product.reshape(batch, positions, 3, heads, size),
        bias.reshape(3, heads, size),
    )
    return out.reshape(batch, positions, heads * size)


@traced_once("heads", "scale")
def _call_back(product, bias, slopes, heads, scale):
    from jax.experimental import pallas as pl

    batch, positions, columns = product.shape
    size = columns // (3 * heads)
    parts, weight, one = _specs(positions, size)
    shape = batch, positions, 3, heads, size
    sums = pl.BlockSpec((None, 3, None, size), lambda i, j: (i, 0, j, 0))
    gradient, of_bias = pl.pallas_call(
        functools.partial(_differentiate, scale=scale),
        grid=(batch, heads),
        in_specs=[parts, weight, one],
        out_specs=[parts, sums],
        out_shape=[
            jax.ShapeDtypeStruct(shape, product.dtype),
            jax.ShapeDtypeStruct((batch, 3, heads, size), jnp.float32),
        ],
        **options(warps=_warps(positions)),
    )(
        product.reshape(shape),
        bias.reshape(3, heads, size),
        slopes.reshape(batch, positions, heads, size),
    )
    return gradient.reshape(product.shape), of_bias.sum(0).reshape(columns)


def _warps(positions: int) -> int:
    return max(2, min(positions // 16, 8))


def _specs(positions: int, size: int):
    """Blocks of a row's head: query, key and value; their biases; one of the three."""
    from jax.experimental import pallas as pl

    return (
        pl.BlockSpec((None, positions, 3, None, size), lambda i, j: (i, 0, 0, j, 0)),
        pl.BlockSpec((3, None, size), lambda i, j: (0, j, 0)),
        pl.BlockSpec((None, positions, None, size), lambda i, j: (i, 0, j, 0)),
    )


def _read(parts, bias):
    """Query, key and value of a head, ``[positions, size]`` each."""
    return (parts[:, i, :] + bias[i, :][None] for i in range(3))


def _dot(a, b, over: tuple[int, int]):
    """The product of two matrices, summed over an axis of each."""
    return jax.lax.dot_general(a, b, (((over[0],), (over[1],)), ((), ())))


def _weights(query, key, scale):
    scores = _dot(query * scale, key, (1, 1))
    powers = jnp.exp(scores - jnp.max(scores, axis=1)[:, None])
    return powers / jnp.sum(powers, axis=1)[:, None]


def _attend(parts, bias, out, *, scale) -> None:
    query, key, value = _read(parts, bias)
    out[:, :] = _dot(_weights(query, key, scale), value, (1, 0))


def _differentiate(parts, bias, slopes, gradient, sums, *, scale) -> None:
    query, key, value = _read(parts, bias)
    weights, slope = _weights(query, key, scale), slopes[:, :]
    of_value = _dot(weights, slope, (0, 0))
    pull = weights * _dot(slope, value, (1, 1))
    pull = (pull - weights * jnp.sum(pull, axis=1)[:, None]) * scale
    results = _dot(pull, key, (1, 0)), _dot(pull, query, (0, 0)), of_value
    for i, result in enumerate(results):
        gradient[:, i, :] = result
        sums[i, :] = jnp.sum(result, axis=0)
