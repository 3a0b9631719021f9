"""Random initializers: drawn in float32 by NumPy, so that nothing is compiled."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.checks import check_float
from exburn.core.methods import overridable
from exburn.errors import ArgumentError, DTypeError
from exburn.initializers.contract import (
    Initializer,
    as_dtype,
    as_shape,
    fresh_generator,
    seeded_generator,
)

__all__ = ["RandomInitializer", "RandomNormal", "RandomUniform", "TruncatedNormal"]

_SLICE = 1 << 18  # values drawn at a time: they stay in the processor's cache


class RandomInitializer(Initializer):
    """Base of the initializers that draw random numbers.

    Args:
        seed: With an integer, every call returns the same values, whatever generator
            the engine offers. A ``SeedGenerator`` is asked for a new seed each time. By
            default the values belong to the model's seed and the weight's path, or, in
            a call by hand, are new every time.

    Raises:
        ArgumentError: ``seed`` is something else.
        DTypeError: A dtype is asked for that is not a float.

    Subclasses define ``draw``.

    Example:
        >>> class Signs(RandomInitializer):
        ...     def draw(self, shape, dtype, rng):
        ...         return np.where(rng.random(shape) < 0.5, -1, 1).astype(dtype)
        >>> sorted(set(np.ravel(Signs(seed=1)((4, 4))).tolist()))
        [-1.0, 1.0]
    """

    def __init__(self, seed: Any = None):
        if isinstance(seed, dict):
            seed = registry.deserialize(seed)
        if isinstance(seed, np.integer):
            seed = int(seed)
        valid = seed is None or isinstance(seed, int) or hasattr(seed, "next")
        if not valid or isinstance(seed, bool):
            raise ArgumentError(
                type(self).__name__,
                f"seed must be an integer or a SeedGenerator, received {seed!r}",
            )
        self.seed = seed

    @overridable
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

    @property
    def apart(self) -> bool:
        """Whether a thread can draw: it needs nothing but a generator of its own."""
        own = type(self).__module__.startswith("exburn.")
        return own and not hasattr(self.seed, "next")

    def _generator(self, rng: np.random.Generator | None) -> np.random.Generator:
        if isinstance(self.seed, int):
            return seeded_generator(self.seed)
        if self.seed is not None:
            words = np.asarray(self.seed.next(), np.uint32)
            return seeded_generator(int.from_bytes(words.tobytes(), "little"))
        return fresh_generator() if rng is None else rng

    def get_config(self) -> dict[str, Any]:
        return {"seed": registry.serialize(self.seed)}


def normal(rng, shape, dtype, stddev, mean=0.0) -> np.ndarray:
    value = rng.standard_normal(shape, dtype)
    value *= stddev
    if mean:
        value += mean
    return value


def uniform(rng, shape, dtype, low, high) -> np.ndarray:
    value = rng.random(shape, dtype)
    value *= high - low
    value += low
    return value


def truncated_normal(rng, shape, dtype, stddev, mean=0.0) -> np.ndarray:
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

    Raises:
        ArgumentError: ``stddev`` is negative, or a number is none.

    Example:
        >>> round(float(RandomNormal(stddev=0.01, seed=1)((1000,)).std()), 3)
        0.01
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None):
        super().__init__(seed)
        op = type(self).__name__
        self.mean = check_float(op, "mean", mean)
        self.stddev = check_float(op, "stddev", stddev)

    def draw(self, shape, dtype, rng):
        return normal(rng, shape, dtype, self.stddev, self.mean)

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

    Raises:
        ArgumentError: ``stddev`` is negative, or a number is none.

    Example:
        >>> bool(abs(TruncatedNormal(stddev=0.1)((1000,))).max() <= 0.2)
        True
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None):
        super().__init__(seed)
        op = type(self).__name__
        self.mean = check_float(op, "mean", mean)
        self.stddev = check_float(op, "stddev", stddev)

    def draw(self, shape, dtype, rng):
        return truncated_normal(rng, shape, dtype, self.stddev, self.mean)

    def get_config(self):
        return {"mean": self.mean, "stddev": self.stddev, **super().get_config()}


@registry.register_builtin
class RandomUniform(RandomInitializer):
    """Draws from a uniform distribution.

    ``w ~ U(minval, maxval)``

    Args:
        minval: Lower bound.
        maxval: Upper bound.

    Raises:
        ArgumentError: A bound is no number.

    Example:
        >>> value = RandomUniform(0.0, 1.0, seed=3)((2, 500))
        >>> bool(value.min() >= 0), bool(value.max() <= 1), value.shape
        (True, True, (2, 500))
    """

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: Any = None):
        super().__init__(seed)
        op = type(self).__name__
        self.minval = check_float(op, "minval", minval)
        self.maxval = check_float(op, "maxval", maxval)

    def draw(self, shape, dtype, rng):
        return uniform(rng, shape, dtype, self.minval, self.maxval)

    def get_config(self):
        return {"minval": self.minval, "maxval": self.maxval, **super().get_config()}
