"""Window functions, and the convolution kernels of a short-time Fourier transform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exburn.core import registry
from exburn.errors import ArgumentError, ShapeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.initializers.contract import Initializer, as_dtype, as_shape


def _cosines(*weights: float) -> Callable[[np.ndarray], np.ndarray]:
    """A sum of cosines; ``t`` runs from -1 to 1 over the window."""
    return lambda t: sum(a * np.cos(k * np.pi * t) for k, a in enumerate(weights))  # type: ignore[return-value]


def _triangle(t: np.ndarray) -> np.ndarray:
    size = len(t)
    return 1 - np.abs(t) * (size - 1) / (size + size % 2)


def _parzen(t: np.ndarray) -> np.ndarray:
    far = np.abs(t) * (len(t) - 1) / len(t)
    near = 1 - 6 * far**2 + 6 * far**3
    return np.where(np.abs(t) <= 0.5, near, 2 * (1 - far) ** 3)


def _tukey(t: np.ndarray) -> np.ndarray:
    outside = np.maximum(np.abs(t) - 0.5, 0)
    return 0.5 * (1 + np.cos(2 * np.pi * outside))


def _taylor(t: np.ndarray, lobes: int = 4, level: float = 30.0) -> np.ndarray:
    a2 = (np.arccosh(10 ** (level / 20)) / np.pi) ** 2
    m = np.arange(1, lobes)
    width = lobes**2 / (a2 + (lobes - 0.5) ** 2)
    value = np.ones_like(t)
    peak = 1.0
    for i in m:
        others = m[m != i]
        top = np.prod(1 - i**2 / width / (a2 + (m - 0.5) ** 2))
        factor = (-1) ** (i + 1) * top / np.prod(1 - i**2 / others**2)
        value += factor * np.cos(np.pi * i * t * (len(t) - 1) / len(t))
        peak += factor
    return value / peak


_windows: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "barthann": lambda t: 0.62 - 0.24 * np.abs(t) + 0.38 * np.cos(np.pi * t),
    "bartlett": lambda t: 1 - np.abs(t),
    "blackman": _cosines(0.42, 0.5, 0.08),
    "blackmanharris": _cosines(0.35875, 0.48829, 0.14128, 0.01168),
    "bohman": lambda t: (
        (1 - np.abs(t)) * np.cos(np.pi * t) + np.sin(np.pi * np.abs(t)) / np.pi
    ),
    "boxcar": np.ones_like,
    "cosine": lambda t: np.cos(np.pi / 2 * t * (len(t) - 1) / len(t)),
    "exponential": lambda t: np.exp(-np.abs(t) * (len(t) - 1) / 2),
    "flattop": _cosines(0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
    "hamming": _cosines(0.54, 0.46),
    "hann": _cosines(0.5, 0.5),
    "lanczos": np.sinc,
    "nuttall": _cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "parzen": _parzen,
    "taylor": _taylor,
    "triang": _triangle,
    "tukey": _tukey,
}


@api_boundary
def window(name: str, length: int, periodic: bool = True) -> np.ndarray:
    """The values of a window function, in float64.

    Args:
        name: For example ``"hann"``; the names are those of ``scipy.signal.windows``
            for windows without parameters.
        length: Number of values.
        periodic: Whether the window continues periodically, as the Fourier transform
            takes it to; otherwise it is symmetric.

    Raises:
        UnknownNameError: There is no such window.

    Example:
        >>> window("hann", 4).round(3).tolist()
        [0.0, 0.5, 1.0, 0.5]

    Source: Harris, *On the Use of Windows for Harmonic Analysis with the DFT*, 1978.
    """
    if name not in _windows:
        raise unknown_name("window", name, _windows, op="window")
    if length <= 1:
        return np.ones(length)
    size = length + 1 if periodic else length
    return _windows[name](np.linspace(-1, 1, size))[:length]


@registry.register_builtin
class STFT(Initializer):
    """Kernel of a Conv1D that computes one part of a short-time Fourier transform.

    ``w[t, 0, f] = win[t] · cos(-2π t f / n) / scale``, or sin for the imaginary part.

    Args:
        side: ``"real"`` or ``"imag"``.
        window: Name of a window, its values, or ``None`` for none; see :func:`window`.
        scaling: Divides the window by its L2 norm (``"density"``), by the sum of its
            absolute values (``"spectrum"``), or by nothing (``None``).
        periodic: Whether the window is periodic rather than symmetric.

    Shape:
        The weight is ``[frame length, 1, n // 2 + 1]`` for transforms of n values.

    Raises:
        ArgumentError: An argument is none of the values above.
        ShapeError: The weight or the window has another shape.

    Example:
        >>> STFT("real", window=None)((4, 1, 3)).round(3).tolist()[2]
        [[1.0, -1.0, 1.0]]
    """

    def __init__(
        self,
        side: str = "real",
        window: Any = "hann",
        scaling: str | None = "density",
        periodic: bool = False,
    ):
        if side not in ("real", "imag"):
            raise ArgumentError("STFT", f"side must be 'real' or 'imag', not {side!r}")
        if isinstance(window, str) and window not in _windows:
            raise unknown_name("window", window, _windows, op="STFT")
        if scaling not in ("density", "spectrum", None):
            raise ArgumentError(
                "STFT",
                f"scaling must be 'density', 'spectrum' or None, not {scaling!r}",
            )
        self.side, self.window = side, window
        self.scaling, self.periodic = scaling, bool(periodic)

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        shape, dtype = as_shape(self, shape), as_dtype(self, dtype)
        if len(shape) != 3 or shape[1] != 1 or shape[2] < 2:
            raise ShapeError(
                "STFT",
                f"the weight must be [frame length, 1, >= 2], received shape {shape}",
            )
        length, _, bins = shape
        turns = np.outer(np.arange(length), np.arange(bins)) / (2 * (bins - 1))
        wave = np.cos if self.side == "real" else np.sin
        kernel = wave(-2 * np.pi * turns)
        if self.window is not None:
            kernel *= self._window(length)[:, None]
        return kernel[:, None, :].astype(dtype)

    def _window(self, length: int) -> np.ndarray:
        if isinstance(self.window, str):
            value = window(self.window, length, self.periodic)
        else:
            value = np.asarray(self.window, np.float64)
        if value.shape != (length,):
            raise ShapeError(
                "STFT", f"the window has shape {value.shape}, not {(length,)}"
            )
        if self.scaling == "density":
            return value / np.sqrt(np.sum(value**2))
        if self.scaling == "spectrum":
            return value / np.sum(np.abs(value))
        return value

    def get_config(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "window": registry.serialize(self.window),
            "scaling": self.scaling,
            "periodic": self.periodic,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> STFT:
        return cls(**{**config, "window": registry.deserialize(config["window"])})
