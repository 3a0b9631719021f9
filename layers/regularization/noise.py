"""Dropout and noise: layers that are random in training and idle otherwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax.core import Tracer

from exburn.core.checks import check_number, check_rate, check_seed, is_known
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import checked_sizes
from exburn.errors import ArgumentError
from exburn.layers.contract.layout import check_format, spatial_axes
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.seed_generator import SeedOfLayer

__all__ = [
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
]


class Noise(Layer):
    """A layer that is random in training.

    Keys are a function of the seed of the run, the step and the layer's path; ``seed``
    is folded in.

    Args:
        seed: Folded into the layer's random key.

    Shape:
        x: any → the same
    """

    supports_masking = True
    strength = "rate"  # the attribute that says how much; a layer with 0 draws nothing
    seed_generator = SeedOfLayer(lambda layer: not layer._has_strength(0))

    def __init__(self, seed: Any = None, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.seed = check_seed(type(self).__name__, seed)

    def _has_strength(self, value: float) -> bool:
        """Whether the strength has a value, and is no argument of a program, of any."""
        return is_known(getattr(self, self.strength), value)

    def _key(self) -> jax.Array:
        key = self.random_key()
        return key if self.seed is None else jax.random.fold_in(key, self.seed)


@register_builtin
class Dropout(Noise):
    """Sets a random share of the inputs to zero in training and scales the others up.

    ``y = x * keep / (1 - rate)`` where ``keep`` is 1 with probability ``1 - rate``

    Args:
        rate: Share of the inputs to drop, from 0 to 1.
        noise_shape: Shape of ``keep``; it is shared along axes of size 1, and None
            stands for the input's size. ``(None, 1, None)`` shares it over time.

    Raises:
        ArgumentError: ``rate`` is not between 0 and 1.

    Example:
        >>> import numpy as np
        >>> x = np.ones((1, 1000))
        >>> y = Dropout(0.5)(x, training=True)
        >>> sorted(set(np.ravel(y).tolist()))
        [0.0, 2.0]
        >>> bool((Dropout(0.5)(x) == x).all())
        True

    Source: Srivastava et al., *Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting*, 2014.
    """

    kept_as = {"rate": lambda v: check_rate("Dropout", "rate", v)}
    _lane_width = None  # of a sweep's lane, which has the first of the features

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(seed, **kwargs)
        self.rate = rate
        self.noise_shape = _check_noise_shape(type(self).__name__, noise_shape)

    def call(self, inputs, training=False):
        if not training or self._has_strength(0):
            return inputs
        x = self.cast(inputs)
        if self._has_strength(1):
            return jnp.zeros_like(x)
        shape = self._noise_shape(x)
        keep, share = self._keep_mask(self.rate, shape, self.seed, self._lane_width)
        if isinstance(self.rate, Tracer):
            keep &= self.rate < 1
        return jnp.where(keep, x / share, 0)

    def _noise_shape(self, x):
        return _fill(self.noise_shape, x.shape)


class SpatialDropout(Dropout):
    """Dropout of whole channels.

    Args:
        rate: Share of the channels to drop, from 0 to 1.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
    """

    rank = 1

    def __init__(
        self,
        rate: float,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(rate, seed=seed, **kwargs)
        self.data_format = check_format(type(self).__name__, data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _noise_shape(self, x):
        axes = spatial_axes(self.rank, self.data_format)
        return tuple(1 if i in axes else d for i, d in enumerate(x.shape))


@register_builtin
class SpatialDropout1D(SpatialDropout):
    """Drops whole channels of a sequence.

    Shape:
        x: [batch, time, channels] → the same

    Example:
        >>> import numpy as np
        >>> y = np.array(SpatialDropout1D(0.5)(np.ones((4, 6, 3)), training=True))
        >>> bool((y == y[:, :1]).all())
        True

    Source: Tompson et al., *Efficient Object Localization Using Convolutional
    Networks*, 2015.
    """

    rank = 1

    def __init__(self, rate: float, seed: Any = None, **kwargs: Unpack[LayerOptions]):
        super().__init__(rate, "channels_last", seed, **kwargs)


@register_builtin
class SpatialDropout2D(SpatialDropout):
    """Drops whole channels of an image.

    Shape:
        x: [batch, height, width, channels] → the same

    Example:
        >>> import numpy as np
        >>> SpatialDropout2D(0.5)(np.ones((2, 4, 4, 3)), training=True).shape
        (2, 4, 4, 3)
    """

    rank = 2


@register_builtin
class SpatialDropout3D(SpatialDropout):
    """Drops whole channels of a volume.

    Shape:
        x: [batch, depth, height, width, channels] → the same

    Example:
        >>> import numpy as np
        >>> SpatialDropout3D(0.5)(np.ones((2, 4, 4, 4, 3)), training=True).shape
        (2, 4, 4, 4, 3)
    """

    rank = 3


@register_builtin
class GaussianNoise(Noise):
    """Adds normal noise in training.

    ``y = x + stddev * n`` with ``n`` standard normal

    Args:
        stddev: Standard deviation of the noise.

    Raises:
        ArgumentError: ``stddev`` is negative.

    Example:
        >>> import numpy as np
        >>> y = GaussianNoise(0.1)(np.zeros((100, 100)), training=True)
        >>> bool(0.09 < np.std(y) < 0.11)
        True
    """

    strength = "stddev"
    kept_as = {"stddev": lambda v: check_number("GaussianNoise", "stddev", v)}

    def __init__(self, stddev: float, seed: Any = None, **kwargs: Unpack[LayerOptions]):
        super().__init__(seed, **kwargs)
        self.stddev = stddev

    def call(self, inputs, training=False):
        if not training or self._has_strength(0):
            return inputs
        x = self.cast(inputs)
        return x + self.stddev * jax.random.normal(self._key(), x.shape, x.dtype)


@register_builtin
class GaussianDropout(Noise):
    """Multiplies by normal noise around 1 in training.

    ``y = x * (1 + sqrt(rate / (1 - rate)) * n)`` with ``n`` standard normal, which has
    the mean and variance of dropout at the same rate

    Args:
        rate: Rate of the dropout that the noise matches, at least 0 and below 1.

    Raises:
        ArgumentError: ``rate`` is out of range.

    Example:
        >>> import numpy as np
        >>> y = GaussianDropout(0.5)(np.ones((100, 100)), training=True)
        >>> bool(0.9 < np.std(y) < 1.1)
        True

    Source: Srivastava et al., *Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting*, 2014.
    """

    kept_as = {
        "rate": lambda v: check_rate("GaussianDropout", "rate", v, below_one=True)
    }

    def __init__(self, rate: float, seed: Any = None, **kwargs: Unpack[LayerOptions]):
        super().__init__(seed, **kwargs)
        self.rate = rate

    def call(self, inputs, training=False):
        if not training or self._has_strength(0):
            return inputs
        x = self.cast(inputs)
        noise = jax.random.normal(self._key(), x.shape, x.dtype)
        variance = self.rate / (1 - self.rate)
        root = jnp.sqrt if isinstance(variance, Tracer) else math.sqrt
        return x * (1 + root(variance) * noise)


@register_builtin
class AlphaDropout(Noise):
    """Dropout that keeps mean and variance of self-normalizing networks (SELU).

    Dropped entries take SELU's lower limit, and the result is scaled and shifted to the
    mean and variance of the input.

    Args:
        rate: Share of the inputs to drop, at least 0 and below 1.
        noise_shape: As in :class:`Dropout`.

    Raises:
        ArgumentError: ``rate`` is out of range.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 200))
        >>> y = AlphaDropout(0.3)(x, training=True)
        >>> bool(abs(np.mean(y)) < 0.05 and abs(np.std(y) - 1) < 0.05)
        True

    Source: Klambauer et al., *Self-Normalizing Neural Networks*, 2017.
    """

    kept_as = {"rate": lambda v: check_rate("AlphaDropout", "rate", v, below_one=True)}

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(seed, **kwargs)
        self.rate = rate
        self.noise_shape = _check_noise_shape("AlphaDropout", noise_shape)

    def call(self, inputs, training=False):
        if not training or self._has_strength(0):
            return inputs
        x = self.cast(inputs)
        shape = _fill(self.noise_shape, x.shape)
        keep, share = self._keep_mask(self.rate, shape, self.seed)
        rate = 1 - share
        limit = -1.6732632423543772 * 1.0507009873554805  # SELU at minus infinity
        scale = (share * (1 + rate * limit**2)) ** -0.5
        return jnp.where(keep, x, limit) * scale - scale * limit * rate


def _check_noise_shape(op: str, noise_shape) -> tuple | None:
    if noise_shape is None:
        return None
    sizes = checked_sizes(op, noise_shape)
    if 0 in sizes:
        raise ArgumentError(
            op, f"noise_shape holds integers >= 1 and None, received {noise_shape!r}"
        )
    return sizes


def _fill(noise_shape: tuple | None, shape: tuple) -> tuple:
    if noise_shape is None:
        return shape
    # a noise shape of lower rank broadcasts from the right, as arrays do
    own = shape[len(shape) - len(noise_shape) :]
    return tuple(d if n is None else n for n, d in zip(noise_shape, own, strict=True))
