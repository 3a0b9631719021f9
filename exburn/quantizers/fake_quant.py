"""Rounding that stays in floats, for training that gets used to it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes

from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary

__all__ = [
    "compute_float8_amax_history",
    "compute_float8_scale",
    "fake_quant_with_min_max_vars",
    "quantize_and_dequantize",
]


@api_boundary
def fake_quant_with_min_max_vars(
    inputs: Any,
    min_vals: Any,
    max_vals: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
) -> jax.Array:
    """Rounds to the steps of a range, which is shifted so that 0 is one of them.

    The gradient is that of clipping: it goes to the inputs within the range, and to
    the ends of the range for inputs beyond them.

    Args:
        inputs: Any floats.
        min_vals, max_vals: Ends of the range; one of each, or one for each entry along
            ``axis``.
        num_bits: Bits of a step's number, from 2 to 16.
        narrow_range: Whether the lowest number is left out.
        axis: The axis with ranges of its own.

    Raises:
        ArgumentError: ``num_bits`` is out of range.

    Example:
        >>> x = jnp.array([-2.0, 0.1, 0.3, 3.0])
        >>> fake_quant_with_min_max_vars(x, -1.0, 0.75, num_bits=3).tolist()
        [-1.0, 0.0, 0.25, 0.75]

    Source: Jacob et al., *Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference*, 2018.
    """
    if not 2 <= num_bits <= 16:
        raise ArgumentError(
            "fake_quant_with_min_max_vars",
            f"num_bits must be from 2 to 16, received {num_bits!r}",
        )
    x = jnp.asarray(inputs)
    least, most = jnp.asarray(min_vals), jnp.asarray(max_vals)
    if axis is None:
        return _fake_quant(
            x, least.reshape(()), most.reshape(()), num_bits, narrow_range
        )
    moved = jnp.moveaxis(x, axis, -1)
    return jnp.moveaxis(
        _fake_quant(moved, least, most, num_bits, narrow_range), -1, axis
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _fake_quant(x, least, most, bits, narrow):
    return _round(x, least, most, bits, narrow)[0]


def _round(x, least, most, bits, narrow):
    kind = jnp.promote_types(jnp.result_type(least, most), jnp.float32)
    least, most = least.astype(kind), most.astype(kind)
    low, high = int(narrow), 2**bits - 1
    step, per_step = (most - least) / (high - low), (high - low) / (most - least)
    zero = jnp.round(jnp.clip(low - least / step, low, high))
    bottom, top = (low - zero) * step, (high - zero) * step
    shift = jnp.floor(-bottom * per_step + 0.5)
    clipped = jnp.clip(x.astype(kind), bottom, top)
    number = jnp.floor((clipped - bottom) * per_step - shift + 0.5)
    return (number * step).astype(x.dtype), bottom, top


def _forward(x, least, most, bits, narrow):
    out, bottom, top = _round(x, least, most, bits, narrow)
    return out, (x, bottom, top, least, most)


def _backward(bits, narrow, saved, upstream):
    x, bottom, top, least, most = saved
    axes = tuple(range(x.ndim - least.ndim))

    def where(mask):
        return jnp.where(mask, upstream, 0)

    return (
        where((x >= bottom) & (x <= top)),
        where(x <= bottom).sum(axes).astype(least.dtype),
        where(x >= top).sum(axes).astype(most.dtype),
    )


_fake_quant.defvjp(_forward, _backward)


@api_boundary
def compute_float8_scale(
    amax: Any, scale: Any, dtype_max: Any, margin: int = 0
) -> jax.Array:
    """The scale with which the largest magnitude just fits.

    Args:
        amax: The largest magnitude of late; where it is 0 or not finite, the scale
            stays.
        scale: The scale so far.
        dtype_max: The largest number of the dtype.
        margin: Powers of two to keep free.

    Example:
        >>> compute_float8_scale(jnp.float32(896.0), jnp.float32(1.0), 448.0).item()
        2.0
    """
    amax, scale = jnp.asarray(amax), jnp.asarray(scale)
    usable = (amax > 0) & jnp.isfinite(amax)
    return jnp.where(usable, amax * 2.0**margin / dtype_max, scale)


@api_boundary
def compute_float8_amax_history(x: Any, amax_history: Any) -> jax.Array:
    """The largest magnitudes of the last arrays, with this one's as the newest.

    Args:
        x: An array.
        amax_history: The magnitudes so far, the newest first.

    Example:
        >>> compute_float8_amax_history(jnp.array([1.0, -3.0]), jnp.zeros(3)).tolist()
        [3.0, 0.0, 0.0]
    """
    history = jnp.roll(jnp.asarray(amax_history), -1, axis=0)
    return history.at[0].set(jnp.max(jnp.abs(jnp.asarray(x))).astype(history.dtype))


@api_boundary
def quantize_and_dequantize(
    inputs: Any, scale: Any, quantized_dtype: Any, compute_dtype: Any
) -> jax.Array:
    """Rounds ``inputs / scale`` to a small float and back.

    Args:
        inputs: Any floats.
        scale: Divides the inputs, and multiplies the result.
        quantized_dtype: For example ``"float8_e4m3fn"``.
        compute_dtype: Dtype of the result.

    Example:
        >>> x = jnp.array([1.1, 900.0])
        >>> quantize_and_dequantize(x, 1.0, "float8_e4m3fn", "float32").tolist()
        [1.125, 448.0]
    """
    largest = float(ml_dtypes.finfo(quantized_dtype).max)
    scale = jnp.asarray(scale, compute_dtype)
    small = jnp.clip(jnp.asarray(inputs) / scale, -largest, largest)
    return small.astype(quantized_dtype).astype(compute_dtype) * scale
