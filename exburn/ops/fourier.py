"""Fourier transforms, whole and windowed. Complex numbers are pairs of real arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.annotations import Tensor
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, ShapeError
from exburn.initializers.windows import window as window_values
from exburn.ops.contract import op, op_on_lists

__all__ = [
    "extract_sequences",
    "fft",
    "fft2",
    "ifft2",
    "irfft",
    "istft",
    "polar",
    "rfft",
    "stft",
    "view_as_complex",
    "view_as_real",
]


def _pair(value) -> tuple[jax.Array, jax.Array]:
    return value.real, value.imag


def _complex(x) -> jax.Array:
    real, imag = map(jnp.asarray, x)
    if real.shape != imag.shape:
        raise ShapeError(
            "complex numbers",
            "real and imaginary parts must have the same shape",
            {"real": real.shape, "imag": imag.shape},
        )
    kind = jnp.result_type(real, imag, jnp.float32)
    return jax.lax.complex(real.astype(kind), imag.astype(kind))


@op_on_lists("x")
def fft(x: Sequence[Tensor]) -> tuple[jax.Array, jax.Array]:
    """Discrete Fourier transform along the last axis.

    Args:
        x: Real and imaginary parts.

    Shape:
        x: [..., n] and [..., n] → [..., n] and [..., n]

    Example:
        >>> [part.tolist() for part in fft(([1.0, 0.0], [0.0, 0.0]))]
        [[1.0, 1.0], [0.0, 0.0]]
    """
    return _pair(jnp.fft.fft(_complex(x)))


@op_on_lists("x")
def fft2(x: Sequence[Tensor]) -> tuple[jax.Array, jax.Array]:
    """Discrete Fourier transform along the last two axes.

    Args:
        x: Real and imaginary parts.

    Shape:
        x: [..., m, n] and [..., m, n] → [..., m, n] and [..., m, n]

    Example:
        >>> real, imaginary = fft2((np.ones((2, 2)), np.zeros((2, 2))))
        >>> real.tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    return _pair(jnp.fft.fft2(_complex(x)))


@op_on_lists("x")
def ifft2(x: Sequence[Tensor]) -> tuple[jax.Array, jax.Array]:
    """The inverse of :func:`fft2`.

    Args:
        x: Real and imaginary parts.

    Shape:
        x: [..., m, n] and [..., m, n] → [..., m, n] and [..., m, n]

    Example:
        >>> real, imaginary = ifft2((np.full((2, 2), 4.0), np.zeros((2, 2))))
        >>> real.tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    return _pair(jnp.fft.ifft2(_complex(x)))


@op_on_lists("x")
def irfft(x: Sequence[Tensor], fft_length: int | None = None) -> jax.Array:
    """The inverse of :func:`rfft`.

    Args:
        x: Real and imaginary parts.
        fft_length: Length of the result, ``2 * (n - 1)`` by default.

    Shape:
        x: [..., n] and [..., n] → [..., fft_length]

    Example:
        >>> irfft(rfft([1.0, 2.0, 3.0, 4.0])).round(4).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    return jnp.fft.irfft(_complex(x), fft_length)


@op
def rfft(x: Tensor, fft_length: int | None = None) -> tuple[jax.Array, jax.Array]:
    """Discrete Fourier transform of real numbers along the last axis.

    Args:
        x: Real numbers.
        fft_length: Length that ``x`` is cut or padded to.

    Returns:
        Real and imaginary parts.

    Shape:
        x: [..., n] → [..., fft_length // 2 + 1], twice

    Example:
        >>> [part.tolist() for part in rfft([1.0, 1.0])]
        [[2.0, 0.0], [0.0, 0.0]]
    """
    return _pair(jnp.fft.rfft(x, fft_length))


@op
def extract_sequences(
    x: Tensor, sequence_length: int, sequence_stride: int
) -> jax.Array:
    """Overlapping stretches of the last axis.

    Args:
        sequence_length: Length of each.
        sequence_stride: Distance of their beginnings.

    Shape:
        x: [..., n] → [..., 1 + (n - length) // stride, length]

    Raises:
        ArgumentError: Length or stride is no positive integer.

    Example:
        >>> extract_sequences([1, 2, 3, 4], 2, 1).tolist()
        [[1, 2], [2, 3], [3, 4]]
    """
    sequence_length = check_count(
        "extract_sequences", "sequence_length", sequence_length
    )
    sequence_stride = check_count(
        "extract_sequences", "sequence_stride", sequence_stride
    )
    count = 1 + (x.shape[-1] - sequence_length) // sequence_stride
    begin = jnp.arange(count) * sequence_stride
    return x[..., begin[:, None] + np.arange(sequence_length)]


@op
def stft(
    x: Tensor,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: Any = "hann",
    center: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """Short-time Fourier transform: that of many windowed stretches.

    Args:
        x: Real numbers.
        sequence_length: Length of each stretch.
        sequence_stride: Distance of their beginnings.
        fft_length: Length that each is padded to with zeros.
        window: Name of a window function, its values, or ``None``.
        center: Whether ``x`` is padded by reflection, so that stretch t is centred
            at ``t * stride``.

    Returns:
        Real and imaginary parts.

    Shape:
        x: [..., n] → [..., stretches, fft_length // 2 + 1], twice

    Raises:
        ArgumentError: ``fft_length`` is less than ``sequence_length``, or length or
            stride is no positive integer.
        UnknownNameError: There is no such window.

    Example:
        >>> real, imag = stft(np.ones(16, "float32"), 4, 2, 4)
        >>> real.shape
        (9, 3)
    """
    sequence_length = check_count("stft", "sequence_length", sequence_length)
    sequence_stride = check_count("stft", "sequence_stride", sequence_stride)
    taper = _window("stft", window, sequence_length, fft_length)
    if center:
        x = _reflect(x, fft_length // 2)
    frames = extract_sequences(x, fft_length, sequence_stride)
    return _pair(jnp.fft.rfft(frames * jnp.asarray(taper, frames.dtype)))


def _reflect(x, edge: int):
    """The last axis with so many values more on both sides, mirrored at its ends."""
    size = x.shape[-1]
    if isinstance(size, int):
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(edge, edge)], "reflect")
    # an unknown size is no trouble to indices, and is to jnp.pad
    period = 2 * size - 2
    places = jnp.abs(jnp.arange(size + 2 * edge) - edge) % period
    return x[..., jnp.minimum(places, period - places)]


@op_on_lists("x")
def istft(
    x: Sequence[Tensor],
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: Any = "hann",
    center: bool = True,
) -> jax.Array:
    """The inverse of :func:`stft`: overlapping stretches, added and evened out.

    Args:
        x: Real and imaginary parts.
        sequence_length, sequence_stride, fft_length, window, center: As in ``stft``.
        length: Length of the result; all that the stretches cover by default.

    Shape:
        x: [..., stretches, fft_length // 2 + 1], twice → [..., length]

    Raises:
        ArgumentError: ``fft_length`` is less than ``sequence_length``, or length or
            stride is no positive integer.
        UnknownNameError: There is no such window.

    Example:
        >>> parts = stft(np.ones(16, "float32"), 8, 4, 8)
        >>> istft(parts, 8, 4, 8).shape
        (16,)
    """
    sequence_length = check_count("istft", "sequence_length", sequence_length)
    sequence_stride = check_count("istft", "sequence_stride", sequence_stride)
    taper = _window("istft", window, sequence_length, fft_length)
    frames = jnp.fft.irfft(_complex(x), fft_length)
    taper = jnp.asarray(taper, frames.dtype)
    count = frames.shape[-2]
    total = (count - 1) * sequence_stride + fft_length
    places = jnp.arange(count)[:, None] * sequence_stride + np.arange(fft_length)
    zeros = jnp.zeros((*frames.shape[:-2], total), frames.dtype)
    signal = zeros.at[..., places].add(frames * taper)
    weight = jnp.zeros(total, frames.dtype).at[places].add(taper**2)
    signal = jnp.where(
        weight > 1e-11, signal / jnp.where(weight > 1e-11, weight, 1), signal
    )
    begin = fft_length // 2 if center else 0
    if length is not None:
        end = begin + length
    else:
        end = total - begin
    return signal[..., begin:end]


def _window(op: str, window, length: int, fft_length: int) -> np.ndarray:
    """The window in the middle of ``fft_length`` values."""
    if fft_length < length:
        raise ArgumentError(
            op,
            "fft_length must be at least sequence_length",
            {"fft_length": fft_length, "sequence_length": length},
        )
    if window is None:
        values = np.ones(length)
    elif isinstance(window, str):
        values = window_values(window, length)
    else:
        values = np.asarray(window)
        if values.shape != (length,):
            raise ArgumentError(
                op, f"the window needs {length} values, its shape is {values.shape}"
            )
    before = (fft_length - length) // 2
    return np.pad(values, (before, fft_length - length - before))


@op
def polar(abs_: Tensor, angle: Tensor) -> jax.Array:
    """Complex numbers of given length and angle.

    Args:
        abs_: Lengths.
        angle: Angles in radians.

    Example:
        >>> polar([2.0], [0.0]).tolist()
        [(2+0j)]
    """
    return jax.lax.complex(abs_ * jnp.cos(angle), abs_ * jnp.sin(angle))


@op
def view_as_complex(x: Tensor) -> jax.Array:
    """Pairs of real and imaginary parts as complex numbers.

    Args:
        x: Pairs of real and imaginary parts ``[…, 2]``.

    Shape:
        x: [..., 2] → [...]

    Raises:
        ShapeError: The last axis has not size 2.

    Example:
        >>> view_as_complex([[1.0, 2.0]]).tolist()
        [(1+2j)]
    """
    if x.shape[-1] != 2:
        raise ShapeError(
            "view_as_complex", f"the last axis has size 2, received {x.shape}"
        )
    x = x if x.dtype == jnp.float64 else x.astype(jnp.float32)
    return jax.lax.complex(x[..., 0], x[..., 1])


@op
def view_as_real(x: Tensor) -> jax.Array:
    """Complex numbers as pairs of real and imaginary parts.

    Args:
        x: Complex numbers.

    Shape:
        x: [...] → [..., 2]

    Example:
        >>> view_as_real(jnp.array([1 + 2j])).tolist()
        [[1.0, 2.0]]
    """
    return jnp.stack([x.real, x.imag], -1)
