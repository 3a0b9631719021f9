"""Products of an input with a kernel whose entries are rounded to 8 bits.

Each of the two is multiplied by one number, a power of two that brings its largest
entry near the largest of its kind, rounded, multiplied on the units for 8 bits, and
divided by both numbers again. Inputs and kernels have 4 bits of exponent and 3 of
mantissa (e4m3), gradients 5 and 2 (e5m2). The numbers are of the arrays at hand, so
that there is nothing to keep between steps.

Replaces: ``x @ kernel`` of two matrices in bfloat16, and its two gradients.

Runs: in steps of ``fit`` that no user wrote (elsewhere derivatives may be wanted
forward), in layers whose policy says so (``"mixed_float8"``), where `pays` says so. The
rule is the same on all devices: those without units for 8 bits compute the same of the
same rounded numbers.

Gain: on an H200 (jax 0.11.2) steps of three gated networks of 2,048 and 8,192 features
take 15.0 in place of 23.2 ms of 16,384 tokens, those of Llama 3.2 1B 183.5 in place of
232.8 ms (``benchmarks/float8.py``). A product of 16,384 × 2,048 × 8,192 takes 0.36 in
place of 0.67 ms, rounding 16,384 × 8,192 numbers both ways 0.17 and finding the largest
of them 0.07 ms: `LEAST` is where the one is worth the other.

Source: Micikevicius et al., *FP8 Formats for Deep Learning*, 2022.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core import forward_context
from exburn.core.precision.matmul import in_float8
from exburn.runtime import portable
from exburn.runtime.kernels.float8_rounding import TILE, round_both_ways

#: What one over the sum of one over rows, terms and columns is at least, and what their
#: product is. Arithmetic goes with all three, rounding with each two of them.
LEAST = 600, 2**34
_ENTRY, _SLOPE = jnp.float8_e4m3fn, jnp.float8_e5m2
_SMALLEST = 2.0**-40  # of the largest entry: below, the scale no longer grows


def pays(rows: int, terms: int, columns: int) -> bool:
    """Whether a product of these sizes and its gradients are faster in 8 bits.

    Example:
        >>> pays(16_384, 2_048, 2_048), pays(16_384, 2_048, 512)
        (True, False)
    """
    sizes = rows, terms, columns
    if any(size < 1 or size % TILE for size in sizes):
        return False
    share, product = 1 / sum(1 / size for size in sizes), rows * terms * columns
    return share >= LEAST[0] and product >= LEAST[1]


def fits(x: jax.Array, kernel: jax.Array) -> bool:
    """Whether ``x @ kernel`` is computed in 8 bits here.

    Args:
        x: ``[rows, terms]``
        kernel: ``[terms, columns]``
    """
    ctx = forward_context.current()
    if ctx is None or not (ctx.in_fit and in_float8()):
        return False
    (rows, terms), columns = x.shape, kernel.shape[1]
    known = all(isinstance(size, int) for size in (rows, terms, columns))
    if not known or portable.current() is not None:
        return False
    return x.dtype == kernel.dtype == jnp.bfloat16 and pays(rows, terms, columns)


@jax.custom_vjp
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """``x @ kernel``, each rounded to 8 bits.

    A number that is not finite makes all of the result NaN. Gradients of the gradients
    are those of the exact product.

    Args:
        x: ``[rows, terms]``, bfloat16.
        kernel: ``[terms, columns]``, bfloat16.

    Returns:
        ``[rows, columns]``, bfloat16.

    Example:
        >>> x = jnp.full((2, 3), 1.1, jnp.bfloat16)
        >>> product(x, jnp.ones((3, 1), jnp.bfloat16)).tolist()
        [[3.375], [3.375]]
    """
    return _values(x, kernel)[0]


def _forward(x, kernel):
    y, kept = _values(x, kernel)
    return y, (x, kernel, kept)


def _backward(residuals, slope):
    return _gradients(*residuals, slope)


product.defvjp(_forward, _backward)


class _Kept(NamedTuple):
    """What the gradients read: the turned input, the kernel, and their scales."""

    turned: jax.Array
    kernel: jax.Array
    x_scale: jax.Array
    kernel_scale: jax.Array


@jax.custom_jvp
def _values(x, kernel):
    """The product, and what is kept for its gradients."""
    scales = _scale(x, _ENTRY), _scale(kernel, _ENTRY)
    here, turned = round_both_ways(x, scales[0], _ENTRY)
    rounded, columns = round_both_ways(kernel, scales[1], _ENTRY, rows=False)
    return _dot(here, columns, scales), _Kept(turned, rounded, *scales)


@jax.custom_jvp
def _gradients(x, kernel, kept, slope):
    """The gradients of both sides, by that of the product."""
    del x, kernel
    scale = _scale(slope, _SLOPE)
    here, turned = round_both_ways(slope, scale, _SLOPE)
    dx = _dot(here, kept.kernel, (scale, kept.kernel_scale))
    return dx, _dot(kept.turned, turned, (kept.x_scale, scale))


def _scale(x: jax.Array, kind: Any) -> jax.Array:
    """The power of two that brings the largest entry near the kind's largest."""
    most = jnp.max(jnp.abs(x)).astype(jnp.float32)
    exact = float(jnp.finfo(kind).max) / jnp.maximum(most, _SMALLEST)
    exponent = lax.bitcast_convert_type(exact, jnp.int32) & 0x7F800000
    power = lax.bitcast_convert_type(exponent, jnp.float32)
    return jnp.where(jnp.isfinite(most), power, jnp.nan)


def _dot(left: jax.Array, right: jax.Array, scales: tuple) -> jax.Array:
    """The product of the rows of two rounded matrices."""
    rows = (((1,), (1,)), ((), ()))
    y = lax.dot_general(left, right, rows, preferred_element_type=jnp.bfloat16)
    return y * (1 / (scales[0] * scales[1])).astype(y.dtype)


# Derivatives of these two, for gradients of gradients, are those of exact products.


@_values.defjvp
def _values_jvp(primals, tangents):
    y, kept = _values(*primals)
    slope = jax.jvp(jnp.matmul, primals, tangents)[1]
    return (y, kept), (slope, jax.tree.map(jnp.zeros_like, kept))


@_gradients.defjvp
def _gradients_jvp(primals, tangents):
    here, change = ((x, kernel, slope) for x, kernel, _, slope in (primals, tangents))
    return _gradients(*primals), jax.jvp(_exact_gradients, here, change)[1]


def _exact_gradients(x, kernel, slope):
    return slope @ kernel.T, x.T @ slope
