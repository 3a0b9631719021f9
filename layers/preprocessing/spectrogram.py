"""Sound as the strength of its frequencies over time."""

from __future__ import annotations

import math
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn import initializers
from exburn.config import epsilon
from exburn.core import forward_context
from exburn.core.checks import check_choice, check_count
from exburn.core.precision import is_float
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DTypeError, ShapeError
from exburn.layers.contract.layout import channel_axis, check_format
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.ops.fourier import stft
from exburn.runtime.kernels.conv.dispatch import convolve


@register_builtin
class MelSpectrogram(Layer):
    """The strengths of a sound's frequencies over time, in bands as wide as one hears.

    Each band is a triangle between its neighbours' middles, which are equally far apart
    on the scale ``mel(f) = 1127 ln(1 + f / 700)``. Decibels are ``10 log10(power /
    ref_power)``, and not less than the batch's loudest minus ``top_db``.

    Args:
        fft_length: Length of the Fourier transforms.
        sequence_stride: How many samples lie between two of them.
        sequence_length: Length of the window; ``fft_length`` by default.
        window: ``"hann"``, ``"hamming"``, the window's values, or None for none.
        sampling_rate: Samples a second.
        num_mel_bins: Number of bands.
        min_freq, max_freq: The lowest and the highest frequency of the bands, in hertz;
            up to half the sampling rate by default.
        power_to_db: Whether the result is in decibels.
        top_db: The range of the decibels.
        mag_exp: Exponent of the magnitudes: 2 for power.
        min_power: The least power that is told apart.
        ref_power: The power of 0 decibels.

    Shape:
        x: [..., samples] → [..., num_mel_bins, 1 + samples // sequence_stride]

    Raises:
        ArgumentError: A number is no positive one, or ``fft_length`` is less than
            ``sequence_length``.
        UnknownNameError: There is no such window.

    Example:
        >>> import numpy as np
        >>> tone = np.sin(np.arange(16000) * 2 * np.pi * 440 / 16000).astype("float32")
        >>> loudness = MelSpectrogram(num_mel_bins=40)(tone)
        >>> loudness.shape, int(loudness.mean(-1).argmax())
        ((40, 32), 7)

    Source: Stevens et al., *A Scale for the Measurement of the Psychological Magnitude
    Pitch*, 1937; the scale's formula is that of Young et al., *The HTK Book*.
    """

    built = True

    def __init__(
        self,
        fft_length: int = 2048,
        sequence_stride: int = 512,
        sequence_length: int | None = None,
        window: Any = "hann",
        sampling_rate: int = 16000,
        num_mel_bins: int = 128,
        min_freq: float = 20.0,
        max_freq: Any = None,
        power_to_db: bool = True,
        top_db: float = 80.0,
        mag_exp: float = 2.0,
        min_power: float = 1e-10,
        ref_power: float = 1.0,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = "MelSpectrogram"
        self.fft_length = check_count(op, "fft_length", fft_length)
        self.sequence_stride = check_count(op, "sequence_stride", sequence_stride)
        self.sequence_length = check_count(
            op,
            "sequence_length",
            fft_length if sequence_length is None else sequence_length,
        )
        if self.fft_length < self.sequence_length:
            raise ArgumentError(
                op,
                "fft_length is at least sequence_length",
                {"fft_length": fft_length, "sequence_length": sequence_length},
            )
        self.window = window
        self.sampling_rate = sampling_rate
        self.num_mel_bins = check_count(op, "num_mel_bins", num_mel_bins)
        self.min_freq = min_freq
        self.max_freq = max_freq or int(sampling_rate / 2)
        if not 0 <= self.min_freq < self.max_freq:
            raise ArgumentError(
                op,
                "frequencies rise from min_freq >= 0 to max_freq",
                {"min_freq": min_freq, "max_freq": self.max_freq},
            )
        self.power_to_db = bool(power_to_db)
        self.top_db = top_db
        self.mag_exp = mag_exp
        self.min_power = min_power
        self.ref_power = ref_power
        self._autocast = False  # half precision has no Fourier transform

    def call(self, x):
        dtype = jnp.promote_types(self.compute_dtype, jnp.float32)
        real, imaginary = stft(
            x.astype(dtype),
            self.sequence_length,
            self.sequence_stride,
            self.fft_length,
            self.window,
        )
        strength = jnp.sqrt(real**2 + imaginary**2) ** self.mag_exp
        bands = jnp.asarray(self._bands(strength.shape[-1]), dtype)
        y = strength @ bands  # [..., time, num_mel_bins]
        if self.power_to_db:
            y = self._decibels(y)
        return self.cast(y.swapaxes(-1, -2))

    def _bands(self, bins: int) -> np.ndarray:
        """The triangles ``[bins, num_mel_bins]``; none has the frequency 0 in it."""
        return mel_bands(
            self.num_mel_bins, bins, self.sampling_rate, self.min_freq, self.max_freq
        )

    def _decibels(self, power):
        y = 10 * jnp.log10(jnp.maximum(power, self.min_power))
        y = y - 10 * math.log10(max(abs(self.ref_power), self.min_power))
        ctx = forward_context.current()
        rows = None if ctx is None else ctx.row_mask
        heard = y
        if rows is not None and y.ndim > 2:  # rows that only fill the batch up
            heard = jnp.where(rows.reshape(-1, *[1] * (y.ndim - 1)), y, -jnp.inf)
        return jnp.maximum(y, heard.max() - self.top_db)


def mel_bands(
    count: int, bins: int, sampling_rate: float, lowest: float, highest: float
) -> np.ndarray:
    """How much each frequency of a Fourier transform counts in each band.

    Shape:
        [bins, count]

    Example:
        >>> mel_bands(2, 5, 8000, 0.0, 4000.0).round(2).tolist()
        [[0.0, 0.0], [0.6, 0.4], [0.0, 0.87], [0.0, 0.38], [0.0, 0.0]]
    """

    def mel(hertz):
        return 1127 * np.log1p(np.asarray(hertz) / 700)

    at = mel(np.linspace(0, sampling_rate / 2, bins))[:, None]
    edges = np.linspace(mel(lowest), mel(highest), count + 2)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    bands = np.minimum((at - low) / (middle - low), (high - at) / (high - middle))
    bands = np.maximum(bands, 0)
    bands[0] = 0
    return bands


_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


@register_builtin
class STFTSpectrogram(Layer):
    """A short-time Fourier transform as a convolution, whose kernels can be trained.

    Args:
        mode: ``"stft"`` has real and imaginary parts one after another, ``"real"`` and
            ``"imag"`` one of them, ``"angle"`` their angle, ``"magnitude"`` their
            length, ``"log"`` its logarithm, ``"psd"`` its square, of both sides of the
            spectrum.
        frame_length: Length of the window.
        frame_step: How many samples lie between two windows; half of ``frame_length``
            by default.
        fft_length: Number of samples that a window is filled up to, which sets the
            number of frequencies; by default the next power of two.
        window: Name of a window of SciPy's, its values, or None for none.
        periodic: Whether the window is periodic rather than symmetric.
        scaling: ``"density"`` divides the window by its L2 norm, ``"spectrum"`` by its
            sum, None by nothing.
        padding: ``"valid"`` or ``"same"``.
        expand_dims: Whether frequencies and channels have an axis each, as images.
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Shape:
        x: [batch, time, channels] → [batch, frames, channels * frequencies], or with
        ``expand_dims`` [batch, frames, frequencies, channels];
        channels first: [batch, channels, time] → [batch, channels * frequencies,
        frames], or [batch, channels, frames, frequencies]. There are
        ``fft_length // 2 + 1`` frequencies, twice as many for ``"stft"``.

    Raises:
        ArgumentError: An argument is none of the values above.
        DTypeError: The sound is no floats.
        ShapeError: Its rank is not 3.

    Example:
        >>> import numpy as np
        >>> x = np.sin(np.arange(64) * np.pi / 4)[None, :, None]
        >>> y = STFTSpectrogram("magnitude", frame_length=32)(x)
        >>> y.shape, int(y[0, 0].argmax())
        ((1, 3, 17), 4)

    Source: Allen, *Short Term Spectral Analysis, Synthesis, and Modification by
    Discrete Fourier Transform*, 1977.
    """

    def __init__(
        self,
        mode: str = "log",
        frame_length: int = 256,
        frame_step: int | None = None,
        fft_length: int | None = None,
        window: Any = "hann",
        periodic: bool = False,
        scaling: str | None = "density",
        padding: str = "valid",
        expand_dims: bool = False,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = "STFTSpectrogram"
        self.mode = check_choice(op, "mode", mode, _MODES)
        self.frame_length = check_count(op, "frame_length", frame_length, 2)
        frame_step = frame_length // 2 if frame_step is None else frame_step
        self.frame_step = check_count(op, "frame_step", frame_step)
        if self.frame_step > frame_length:
            raise ArgumentError(
                op,
                "frame_step is from 1 to frame_length",
                {"frame_step": frame_step, "frame_length": frame_length},
            )
        shortest = 1 << (self.frame_length - 1).bit_length()
        self.fft_length = check_count(
            op, "fft_length", shortest if fft_length is None else fft_length
        )
        if self.fft_length < self.frame_length:
            raise ArgumentError(
                op,
                "fft_length is at least frame_length",
                {"fft_length": fft_length, "frame_length": frame_length},
            )
        self.padding = check_choice(op, "padding", padding, ("valid", "same"))
        self.expand_dims = bool(expand_dims)
        self.data_format = check_format(op, data_format)
        self.window, self.periodic, self.scaling = window, bool(periodic), scaling
        self._initializers = {
            side: initializers.STFT(side, window, scaling, periodic)
            for side in ("real", "imag")
            if mode not in ("real", "imag") or mode == side
        }

    def build(self, input_shape):
        if len(input_shape) != 3:
            raise ShapeError(
                self.name,
                "a sound is [batch, time, channels]"
                if self.data_format == "channels_last"
                else "a sound is [batch, channels, time]",
                {"received": input_shape},
                hint="Add the missing axis: x[..., None] for one channel.",
            )
        axis = channel_axis(self.data_format)
        self.input_spec = InputSpec(ndim=3, axes={axis: input_shape[axis]})
        shape = (self.frame_length, 1, self.fft_length // 2 + 1)
        for side, initializer in self._initializers.items():
            weight = self.add_weight(shape, initializer, name=f"{side}_kernel")
            setattr(self, f"{side}_kernel", weight)

    def call(self, x):
        if not is_float(x.dtype):
            raise DTypeError(
                self.name,
                "a sound is floats",
                {"received": describe(x)},
                hint="Scale 16-bit samples: x / 32768.",
            )
        if self.data_format == "channels_last":
            x = x.swapaxes(1, 2)
        parts = [self._part(x, side) for side in self._initializers]
        y = self._combine(parts)  # [batch, channels, frames, frequencies]
        if self.data_format == "channels_last":
            if self.expand_dims:
                return jnp.moveaxis(y, 1, -1)
            y = y.swapaxes(1, 2)
            return y.reshape(*y.shape[:2], y.shape[2] * y.shape[3])
        if self.expand_dims:
            return y
        y = y.swapaxes(2, 3)
        return y.reshape(y.shape[0], y.shape[1] * y.shape[2], y.shape[3])

    def _part(self, x, side: str):
        """The real or the imaginary part of ``[batch, channels, time]``."""
        batch, channels, time = x.shape
        y = convolve(
            x.reshape(batch * channels, time, 1),
            self.cast(getattr(self, f"{side}_kernel")),
            (self.frame_step,),
            self.padding.upper(),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        return y.reshape(batch, channels, *y.shape[1:])

    def _combine(self, parts: list) -> Any:
        if self.mode in ("real", "imag"):
            return parts[0]
        real, imaginary = parts
        if self.mode == "angle":
            return jnp.arctan2(imaginary, real)
        if self.mode == "stft":
            return jnp.concatenate(parts, -1)
        power = real**2 + imaginary**2
        if self.mode == "psd":  # the first and, for even lengths, the last have no twin
            return power.at[..., 1:-1].multiply(2)
        length = jnp.sqrt(jnp.maximum(power, epsilon()))
        if self.mode == "magnitude":
            return length
        return jnp.log(jnp.maximum(length, epsilon()))
