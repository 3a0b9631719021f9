"""Random initializers: drawn in float32 by NumPy, so that nothing is compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn import registry
from exburn.errors import ArgumentError, DTypeError, ShapeError
from exburn.initializers.base import Initializer, as_dtype, as_shape
from exburn.initializers.base import fresh_generator, seeded_generator

__all__ = [
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "LecunNormal",
    "LecunUniform",
    "Orthogonal",
    "RandomInitializer",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "compute_fans",
]

# Standard deviation of a standard normal distribution cut off at ±2.
_TRUNCATED_STD = 0.87962566103423978
_SLICE = 1 << 18  # values drawn at a time: they stay in the processor's cache


class RandomInitializer(Initializer):
    """Base of the initializers that draw random numbers.

    Args:
        seed: With an integer, every call returns the same values, whatever generator
            the engine offers. A ``SeedGenerator`` is asked for a new seed on every call.
            By default the values belong to the model's seed and the weight's path, or,
            in a call by hand, are new every time.

    Raises:
        ArgumentError: ``seed`` is something else.
        DTypeError: A dtype is asked for that is not a float.

    Subclasses define ``draw``.
    """

    def __init__(self, seed: Any = None):
        if isinstance(seed, dict):
            seed = registry.deserialize(seed)
        if isinstance(seed, np.integer):
            seed = int(seed)
        known = seed is None or isinstance(seed, int) or hasattr(seed, "next")
        if not known or isinstance(seed, bool):
            raise ArgumentError(
                type(self).__name__,
                f"seed must be an integer or a SeedGenerator, received {seed!r}",
            )
        self.seed = seed

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        shape, dtype = as_shape(self, shape), as_dtype(self, dtype)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise DTypeError(
                type(self).__name__,
                f"random values are floats, but {dtype.name} was asked for",
                hint="Pass a dtype such as float32, or another initializer.",
            )
        work = np.dtype(np.float64 if dtype == np.float64 else np.float32)
        return self.draw(shape, work, self._generator(rng)).astype(dtype, copy=False)

    def draw(
        self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator
    ) -> np.ndarray:
        """The values, in float32 or float64."""
        raise ArgumentError(type(self).__name__, "the class must define draw()")

    def _generator(self, rng: np.random.Generator | None) -> np.random.Generator:
        if isinstance(self.seed, int):
            return seeded_generator(self.seed)
        if self.seed is not None:
            words = self.seed.next()
            if jnp.issubdtype(words.dtype, jax.dtypes.prng_key):
                words = jax.random.key_data(words)
            words = np.asarray(words).ravel().astype(np.uint32)
            return seeded_generator(int.from_bytes(words.tobytes(), "little"))
        return fresh_generator() if rng is None else rng

    def get_config(self) -> dict[str, Any]:
        return {"seed": registry.serialize(self.seed)}


def _normal(rng, shape, dtype, stddev, mean=0.0) -> np.ndarray:
    value = rng.standard_normal(shape, dtype)
    value *= stddev
    if mean:
        value += mean
    return value


def _uniform(rng, shape, dtype, low, high) -> np.ndarray:
    value = rng.random(shape, dtype)
    value *= high - low
    value += low
    return value


def _truncated(rng, shape, dtype, stddev, mean=0.0) -> np.ndarray:
    """Normal values; those two deviations or more away are drawn again."""
    value = np.empty(math.prod(shape), dtype)
    for start in range(0, value.size, _SLICE):
        part = value[start : start + _SLICE]
        rng.standard_normal(out=part, dtype=dtype)
        bad = np.flatnonzero(np.abs(part) >= 2)
        while bad.size:
            part[bad] = rng.standard_normal(bad.size, dtype)
            bad = bad[np.abs(part[bad]) >= 2]
        part *= stddev
        if mean:
            part += mean
    return value.reshape(shape)


@registry.register_builtin
class RandomNormal(RandomInitializer):
    """Draws from a normal distribution.

    ``w ~ N(mean, stddev²)``

    Args:
        mean: Mean of the values.
        stddev: Their standard deviation.
        seed: See :class:`RandomInitializer`.

    Example:
        >>> RandomNormal(stddev=0.01, seed=1)((1000,)).std().round(3)
        np.float32(0.01)
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None):
        super().__init__(seed)
        self.mean, self.stddev = float(mean), float(stddev)

    def draw(self, shape, dtype, rng):
        return _normal(rng, shape, dtype, self.stddev, self.mean)

    def get_config(self):
        return {"mean": self.mean, "stddev": self.stddev, **super().get_config()}


@registry.register_builtin
class TruncatedNormal(RandomInitializer):
    """Draws from a normal distribution, again for values that lie far out.

    Values two or more ``stddev`` away from ``mean`` are drawn again, so the values'
    own standard deviation is ``0.8796 · stddev``.

    Args:
        mean: Mean of the values.
        stddev: Standard deviation before truncation.
        seed: See :class:`RandomInitializer`.

    Example:
        >>> bool(np.abs(TruncatedNormal(stddev=0.1)((1000,))).max() <= 0.2)
        True
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None):
        super().__init__(seed)
        self.mean, self.stddev = float(mean), float(stddev)

    def draw(self, shape, dtype, rng):
        return _truncated(rng, shape, dtype, self.stddev, self.mean)

    def get_config(self):
        return {"mean": self.mean, "stddev": self.stddev, **super().get_config()}


@registry.register_builtin
class RandomUniform(RandomInitializer):
    """Draws from a uniform distribution.

    ``w ~ U(minval, maxval)``

    Args:
        minval: Lower bound.
        maxval: Upper bound.
        seed: See :class:`RandomInitializer`.

    Example:
        >>> value = RandomUniform(0.0, 1.0, seed=3)((2, 500))
        >>> bool(value.min() >= 0), bool(value.max() <= 1), value.shape
        (True, True, (2, 500))
    """

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: Any = None):
        super().__init__(seed)
        self.minval, self.maxval = float(minval), float(maxval)

    def draw(self, shape, dtype, rng):
        return _uniform(rng, shape, dtype, self.minval, self.maxval)

    def get_config(self):
        return {"minval": self.minval, "maxval": self.maxval, **super().get_config()}


def compute_fans(
    shape: Sequence[int],
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Number of inputs and outputs that a weight of this shape connects.

    The last two axes are inputs and outputs, those before them the receptive field of a
    convolution, which counts for both.

    Args:
        shape: Shape of the weight.
        input_axes: Axes whose sizes multiply to the inputs, for other layouts.
        output_axes: Axes whose sizes multiply to the outputs.

    Example:
        >>> compute_fans((784, 256)), compute_fans((3, 3, 16, 32))
        ((784, 256), (144, 288))
    """
    if input_axes is not None and output_axes is not None:
        fan_in = math.prod(shape[axis] for axis in input_axes)
        return fan_in, math.prod(shape[axis] for axis in output_axes)
    if len(shape) < 2:
        size = math.prod(shape)
        return size, size
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


@registry.register_builtin
class VarianceScaling(RandomInitializer):
    """Draws with a variance that keeps signals at one scale from layer to layer.

    ``Var(w) = scale / n`` with n the number of inputs, outputs, or their mean.

    Args:
        scale: Factor of the variance.
        mode: What n is: ``"fan_in"``, ``"fan_out"`` or ``"fan_avg"``.
        distribution: ``"truncated_normal"`` (cut off at two deviations, and widened so
            that the variance holds), ``"untruncated_normal"`` or ``"uniform"``.
        seed: See :class:`RandomInitializer`.
        input_axes: Axes that count as inputs, together with ``output_axes``; by default
            see :func:`compute_fans`.
        output_axes: Axes that count as outputs.

    Raises:
        ArgumentError: An argument is none of the values above.
        ShapeError: The weight has no such axes.

    Example:
        >>> init = VarianceScaling(2.0, "fan_in", "untruncated_normal", seed=0)
        >>> init((200, 300)).std().round(2)
        np.float32(0.1)

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ):
        super().__init__(seed)
        op = type(self).__name__
        if not scale > 0:
            raise ArgumentError(op, f"scale must be above 0, received {scale!r}")
        modes = ("fan_in", "fan_out", "fan_avg")
        if mode not in modes:
            raise ArgumentError(op, f"mode must be one of {modes}, received {mode!r}")
        distribution = str(distribution).lower()
        if distribution == "normal":
            distribution = "truncated_normal"
        known = ("truncated_normal", "untruncated_normal", "uniform")
        if distribution not in known:
            raise ArgumentError(
                op, f"distribution must be one of {known}, received {distribution!r}"
            )
        if (input_axes is None) != (output_axes is None):
            raise ArgumentError(op, "input_axes and output_axes go together: pass both")
        self.scale, self.mode, self.distribution = float(scale), mode, distribution
        self.input_axes = None if input_axes is None else tuple(input_axes)
        self.output_axes = None if output_axes is None else tuple(output_axes)

    def draw(self, shape, dtype, rng):
        try:
            fan_in, fan_out = compute_fans(shape, self.input_axes, self.output_axes)
        except IndexError:
            axes = {"input_axes": self.input_axes, "output_axes": self.output_axes}
            raise ShapeError(
                type(self).__name__, f"a weight of shape {shape} lacks these axes", axes
            ) from None
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        variance = self.scale / max(1.0, n[self.mode])
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return _uniform(rng, shape, dtype, -limit, limit)
        if self.distribution == "untruncated_normal":
            return _normal(rng, shape, dtype, math.sqrt(variance))
        return _truncated(rng, shape, dtype, math.sqrt(variance) / _TRUNCATED_STD)

    def get_config(self):
        config: dict[str, Any] = {}
        if type(self)._fixed is None:
            config = {"scale": self.scale, "mode": self.mode}
            config["distribution"] = self.distribution
        for key in ("input_axes", "output_axes"):
            axes = getattr(self, key)
            config[key] = None if axes is None else list(axes)
        return {**super().get_config(), **config}

    _fixed: tuple[float, str, str] | None = None


class _FixedScaling(VarianceScaling):
    """A variance scaling whose scale, mode and distribution the class decides."""

    def __init__(
        self,
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ):
        assert self._fixed is not None
        super().__init__(*self._fixed, seed, input_axes, output_axes)


@registry.register_builtin
class GlorotUniform(_FixedScaling):
    """Uniform, keeping the variance of signals and gradients (Xavier).

    ``w ~ U(-a, a)`` with ``a = √(6 / (fan_in + fan_out))``

    Args:
        seed, input_axes, output_axes: See :class:`VarianceScaling`.

    Example:
        >>> value = GlorotUniform(seed=0)((100, 200))
        >>> bool(np.abs(value).max() <= (6 / 300) ** 0.5)
        True

    Source: Glorot & Bengio, *Understanding the Difficulty of Training Deep Feedforward
    Neural Networks*, 2010.
    """

    _fixed = (1.0, "fan_avg", "uniform")


@registry.register_builtin
class GlorotNormal(_FixedScaling):
    """Truncated normal, keeping the variance of signals and gradients (Xavier).

    ``Var(w) = 2 / (fan_in + fan_out)``

    Args:
        seed, input_axes, output_axes: See :class:`VarianceScaling`.

    Example:
        >>> GlorotNormal(seed=0)((100, 100)).std().round(2)
        np.float32(0.1)

    Source: Glorot & Bengio, *Understanding the Difficulty of Training Deep Feedforward
    Neural Networks*, 2010.
    """

    _fixed = (1.0, "fan_avg", "truncated_normal")


@registry.register_builtin
class HeNormal(_FixedScaling):
    """Truncated normal for layers followed by ReLU (Kaiming).

    ``Var(w) = 2 / fan_in``

    Args:
        seed, input_axes, output_axes: See :class:`VarianceScaling`.

    Example:
        >>> HeNormal(seed=0)((200, 300)).std().round(2)
        np.float32(0.1)

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    _fixed = (2.0, "fan_in", "truncated_normal")


@registry.register_builtin
class HeUniform(_FixedScaling):
    """Uniform for layers followed by ReLU (Kaiming).

    ``w ~ U(-a, a)`` with ``a = √(6 / fan_in)``

    Args:
        seed, input_axes, output_axes: See :class:`VarianceScaling`.

    Example:
        >>> bool(np.abs(HeUniform(seed=0)((600, 10))).max() <= 0.1)
        True

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    _fixed = (2.0, "fan_in", "uniform")


@registry.register_builtin
class LecunNormal(_FixedScaling):
    """Truncated normal with variance one over the inputs; goes with SELU.

    ``Var(w) = 1 / fan_in``

    Args:
        seed, input_axes, output_axes: See :class:`VarianceScaling`.

    Example:
        >>> LecunNormal(seed=0)((100, 300)).std().round(2)
        np.float32(0.1)

    Source: LeCun et al., *Efficient BackProp*, 1998.
    """

    _fixed = (1.0, "fan_in", "truncated_normal")


@registry.register_builtin
class LecunUniform(_FixedScaling):
    """Uniform with variance one over the inputs.

    ``w ~ U(-a, a)`` with ``a = √(3 / fan_in)``

    Args:
        seed, input_axes, output_axes: See :class:`VarianceScaling`.

    Example:
        >>> bool(np.abs(LecunUniform(seed=0)((300, 10))).max() <= 0.1)
        True

    Source: LeCun et al., *Efficient BackProp*, 1998.
    """

    _fixed = (1.0, "fan_in", "uniform")


@registry.register_builtin
class Orthogonal(RandomInitializer):
    """A random matrix with orthonormal rows or columns, whichever are fewer.

    All axes but the last are taken together as rows: ``QᵀQ = gain² · I`` if there are
    at least as many rows as columns, else ``QQᵀ = gain² · I``.

    Args:
        gain: Factor of the matrix.
        seed: See :class:`RandomInitializer`.

    Raises:
        ShapeError: The weight has fewer than two axes.

    Example:
        >>> q = Orthogonal(seed=0)((4, 3))
        >>> bool(np.allclose(q.T @ q, np.eye(3), atol=1e-5))
        True

    Source: Saxe et al., *Exact Solutions to the Nonlinear Dynamics of Learning in Deep
    Linear Neural Networks*, 2014; drawn as in Stewart, *The Efficient Generation of
    Random Orthogonal Matrices*, 1980.
    """

    def __init__(self, gain: float = 1.0, seed: Any = None):
        super().__init__(seed)
        self.gain = float(gain)

    def draw(self, shape, dtype, rng):
        if len(shape) < 2:
            raise ShapeError(
                type(self).__name__,
                f"the weight needs at least two axes, received shape {shape}",
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q = _orthonormal(rng, max(rows, columns), min(rows, columns), dtype)
        q *= self.gain
        return (q if rows >= columns else q.T).reshape(shape)

    def get_config(self):
        return {"gain": self.gain, **super().get_config()}


def _orthonormal(rng, rows, columns, dtype, block=64) -> np.ndarray:
    """The Q of a Gaussian matrix's QR decomposition with a positive diagonal of R.

    What a Householder reflection leaves below and right of its pivot is Gaussian again,
    and independent of it. So column i of one triangle of fresh normal values already
    holds the i-th reflection, nothing has to be decomposed, and Q is the product of the
    reflections, taken ``block`` at a time as ``I - V T Vᵀ``: ten to thirty times faster
    than ``np.linalg.qr``, which also works in float64 throughout.
    """
    v = np.tril(rng.standard_normal((rows, columns), dtype))
    diagonal = np.einsum("ii->i", v[:columns])
    sign = np.copysign(dtype.type(1), diagonal)
    diagonal += sign * np.sqrt(np.einsum("ij,ij->j", v, v))
    diagonal[diagonal == 0] = 1  # a pivot of exactly 0 in the last row
    v *= np.sqrt(2 / np.einsum("ij,ij->j", v, v))
    q = np.zeros((rows, columns), dtype)
    np.einsum("ii->i", q[:columns])[:] = -sign
    for start in reversed(range(0, columns, block)):
        part = v[start:, start : start + block]
        t = np.linalg.inv(np.triu(part.T @ part, 1) + np.eye(part.shape[1]))
        rest = q[start:, start:]
        rest -= part @ (t.astype(dtype) @ (part.T @ rest))
    return q
