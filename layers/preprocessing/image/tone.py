"""Images brighter, darker, inverted, or with fewer shades."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.annotations import Factor
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageFormatOptions,
    ImageOptions,
    check_interval,
    check_value_range,
    happens,
    rescale,
    uniform,
)

__all__ = [
    "RandomBrightness",
    "RandomContrast",
    "RandomInvert",
    "RandomPosterization",
    "Solarization",
]

_BYTES = (0.0, 255.0)


@register_builtin
class RandomBrightness(ImageAugmentation):
    """Makes each image brighter or darker by a random amount.

    ``y = clip(x + shift * (highest - lowest))``

    Args:
        factor: Two numbers in [-1, 1] between which ``shift`` is drawn; one number x
            stands for ``(-x, x)``. -1 is black, 1 is white.

    Example:
        >>> import numpy as np
        >>> brighter = RandomBrightness((0.2, 0.2))
        >>> brighter(np.full((1, 1, 3), 100.0)).round().tolist()
        [[[151.0, 151.0, 151.0]]]
    """

    def __init__(
        self,
        factor: Factor,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        **kwargs: Unpack[ImageFormatOptions],
    ):
        super().__init__(seed, **kwargs)
        self.factor = check_interval(
            "RandomBrightness", "factor", factor, -1, 1, symmetric=True
        )
        self.value_range = check_value_range("RandomBrightness", value_range)

    def draw(self, key, shape):
        low, high = self.value_range
        return uniform(key, self.factor) * (high - low)

    def transform(self, image, parameters):
        return jnp.clip(image + parameters, *self.value_range)


@register_builtin
class RandomContrast(ImageAugmentation):
    """Brings the values of each channel closer to their mean, or away from it.

    ``y = clip((x - mean) * factor + mean)``

    Args:
        factor: Two numbers (lower, upper) in [0, 1]: the factor is drawn between
            ``1 - lower`` and ``1 + upper``. One number stands for both.

    Example:
        >>> import numpy as np
        >>> RandomContrast(0.5)(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Factor,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        **kwargs: Unpack[ImageFormatOptions],
    ):
        super().__init__(seed, **kwargs)
        pair = (factor, factor) if isinstance(factor, int | float) else factor
        self.factor = check_interval("RandomContrast", "factor", pair)
        self.value_range = check_value_range("RandomContrast", value_range)

    def draw(self, key, shape):
        lower, upper = self.factor
        return uniform(key, (1 - lower, 1 + upper))

    def transform(self, image, parameters):
        mean = image.mean((0, 1), keepdims=True)
        return jnp.clip((image - mean) * parameters + mean, *self.value_range)


@register_builtin
class RandomInvert(ImageAugmentation):
    """Exchanges light and dark in some of the images.

    ``y = lowest + highest - x``

    Example:
        >>> import numpy as np
        >>> RandomInvert((1.0, 1.0))(np.full((1, 1, 1), 55)).tolist()
        [[[200.0]]]
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        self.factor = check_interval("RandomInvert", "factor", factor)
        self.value_range = check_value_range("RandomInvert", value_range)

    def draw(self, key, shape):
        return happens(key, self.factor)

    def transform(self, image, parameters):
        return jnp.where(parameters, sum(self.value_range) - image, image)


@register_builtin
class RandomPosterization(ImageAugmentation):
    """Keeps only the first bits of each value.

    Args:
        factor: How many of 8 bits are kept; or two numbers between which they are
            drawn, both included.

    Example:
        >>> import numpy as np
        >>> image = np.array([[[0], [100], [255]]])
        >>> RandomPosterization(1)(image)[..., 0].tolist()
        [[0.0, 0.0, 128.0]]
    """

    def __init__(
        self,
        factor: Factor,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = "RandomPosterization"
        pair = factor if isinstance(factor, list | tuple) else (factor, factor)
        if len(pair) != 2:
            raise ArgumentError(op, f"factor is an integer or two, received {factor!r}")
        low, high = sorted(check_count(op, "factor", v) for v in pair)
        if high > 8:
            raise ArgumentError(op, f"factor is from 1 to 8, received {factor!r}")
        self.factor = (low, high)
        self.value_range = check_value_range(op, value_range)

    def draw(self, key, shape):
        low, high = self.factor
        return 8 - jax.random.randint(key, (), low, high + 1)

    def transform(self, image, parameters):
        values = rescale(image, self.value_range, _BYTES)
        step = jnp.exp2(parameters.astype(values.dtype))
        levels = jnp.floor(jnp.clip(values, *_BYTES) / step) * step
        return rescale(levels, _BYTES, self.value_range)


@register_builtin
class Solarization(ImageAugmentation):
    """Inverts the values above a threshold, after adding to all of them.

    Args:
        addition_factor: Two numbers in [0, 1] between which the addition is drawn, as
            part of the range of values; one number x stands for ``(0, x)``.
        threshold_factor: The same for the threshold.

    Example:
        >>> import numpy as np
        >>> image = np.array([[[10], [200]]])
        >>> Solarization(threshold_factor=(0.5, 0.5))(image)[..., 0].tolist()
        [[10.0, 55.0]]
    """

    def __init__(
        self,
        addition_factor: Factor = 0.0,
        threshold_factor: Factor = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        **kwargs: Unpack[ImageFormatOptions],
    ):
        super().__init__(seed, **kwargs)
        op = "Solarization"
        self.addition_factor = check_interval(op, "addition_factor", addition_factor)
        self.threshold_factor = check_interval(op, "threshold_factor", threshold_factor)
        self.value_range = check_value_range(op, value_range)

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        return {
            "addition": uniform(first, self.addition_factor) * 255,
            "threshold": uniform(second, self.threshold_factor) * 255,
        }

    def transform(self, image, parameters):
        values = rescale(image, self.value_range, _BYTES) + parameters["addition"]
        values = jnp.clip(values, *_BYTES)
        values = jnp.where(values < parameters["threshold"], values, 255 - values)
        return rescale(values, _BYTES, self.value_range)
