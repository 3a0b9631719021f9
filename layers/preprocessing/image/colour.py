"""Images in other colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.annotations import Factor
from exburn.core.checks import check_rate
from exburn.core.registry import register_builtin
from exburn.errors import ShapeError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageOptions,
    check_interval,
    check_value_range,
    rescale,
    uniform,
)
from exburn.layers.preprocessing.image.tone import RandomBrightness, RandomContrast
from exburn.ops import image as ops

__all__ = [
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomGrayscale",
    "RandomHue",
    "RandomSaturation",
]

_UNIT = (0.0, 1.0)


class ColourAugmentation(ImageAugmentation):
    """A random change of the colours of images with three channels.

    Shape:
        images: [batch, h, w, 3] → the same, in the compute dtype

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: There are not 3 channels.
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
        op = type(self).__name__
        self.factor = check_interval(op, "factor", factor)
        self.value_range = check_value_range(op, value_range)

    def parameters(self, images, training):
        check_rgb(self.name, images)
        return super().parameters(images, training)


def check_rgb(name: str, images) -> None:
    if images.shape[-1] != 3:
        raise ShapeError(
            name, f"images have 3 channels, red, green and blue, not {images.shape[-1]}"
        )


def grey(image):
    """The brightness of each pixel ``[h, w, 1]``, as the eye weighs the colours."""
    return ops.rgb_to_grayscale(image, data_format="channels_last")


def in_hsv(image, value_range: tuple[float, float], change):
    """The image after ``change(hue, saturation) -> (hue, saturation)``."""
    unit = jnp.clip(rescale(image, value_range, _UNIT), 0, 1)
    hsv = ops.rgb_to_hsv(unit, data_format="channels_last")
    hue, saturation = change(hsv[..., 0], hsv[..., 1])
    hsv = jnp.stack([hue - jnp.floor(hue), jnp.clip(saturation, 0, 1), hsv[..., 2]], -1)
    unit = ops.hsv_to_rgb(hsv, data_format="channels_last")
    return rescale(unit, _UNIT, value_range)


@register_builtin
class RandomHue(ColourAugmentation):
    """Turns the colours of each image around the colour circle.

    Args:
        factor: Two numbers in [0, 1] between which the turn is drawn, as part of half a
            turn, in a random direction; one number x stands for ``(0, x)``.

    Example:
        >>> import numpy as np
        >>> image = np.array([[[255.0, 0.0, 0.0]]])
        >>> RandomHue((1.0, 1.0))(image).round().tolist()
        [[[0.0, 255.0, 255.0]]]
    """

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        sign = jnp.where(jax.random.bernoulli(first), 0.5, -0.5)
        return sign * uniform(second, self.factor)

    def transform(self, image, parameters):
        return in_hsv(image, self.value_range, lambda h, s: (h + parameters, s))


@register_builtin
class RandomSaturation(ColourAugmentation):
    """Makes the colours of each image paler or stronger.

    The saturation is multiplied by ``f / (1 - f)``.

    Args:
        factor: Two numbers in [0, 1] between which f is drawn: 0 is grey, 0.5 changes
            nothing, 1 is as strong as can be. One number x stands for ``(0, x)``.

    Example:
        >>> import numpy as np
        >>> image = np.array([[[200.0, 100.0, 100.0]]])
        >>> RandomSaturation((0.0, 0.0))(image).round().tolist()
        [[[200.0, 200.0, 200.0]]]
    """

    def draw(self, key, shape):
        share = uniform(key, self.factor)
        return share / (1 - share + 1e-7)

    def transform(self, image, parameters):
        return in_hsv(image, self.value_range, lambda h, s: (h, s * parameters))


@register_builtin
class RandomColorDegeneration(ColourAugmentation):
    """Blends each image with its grey version.

    ``y = x + f * (grey(x) - x)``

    Args:
        factor: Two numbers in [0, 1] between which f is drawn; one number x stands for
            ``(0, x)``.

    Example:
        >>> import numpy as np
        >>> image = np.array([[[100.0, 0.0, 0.0]]])
        >>> RandomColorDegeneration((1.0, 1.0))(image).round().tolist()
        [[[30.0, 30.0, 30.0]]]
    """

    def draw(self, key, shape):
        return uniform(key, self.factor)

    def transform(self, image, parameters):
        return jnp.clip(image + parameters * (grey(image) - image), *self.value_range)


@register_builtin
class RandomGrayscale(ImageAugmentation):
    """Takes the colours out of some of the images; they keep three channels.

    Args:
        factor: The probability, from 0 to 1.

    Shape:
        images: [batch, h, w, 3] → the same, in the compute dtype

    Raises:
        ArgumentError: ``factor`` is out of range.
        ShapeError: There are not 3 channels.

    Example:
        >>> import numpy as np
        >>> RandomGrayscale(1.0)(np.array([[[100.0, 0.0, 0.0]]])).round().tolist()
        [[[30.0, 30.0, 30.0]]]
    """

    def __init__(
        self,
        factor: Factor = 0.5,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        self.factor = check_rate("RandomGrayscale", "factor", factor)

    def parameters(self, images, training):
        check_rgb(self.name, images)
        return super().parameters(images, training)

    def draw(self, key, shape):
        return jax.random.bernoulli(key, self.factor)

    def transform(self, image, parameters):
        return jnp.where(parameters, grey(image), image)


@register_builtin
class RandomColorJitter(ImageAugmentation):
    """Changes brightness, contrast, saturation and hue of each image, in this order.

    Args:
        brightness_factor: As in :class:`RandomBrightness`; None leaves it out.
        contrast_factor: As in :class:`RandomContrast`; None leaves it out.
        saturation_factor: As in :class:`RandomSaturation`; None leaves it out.
        hue_factor: As in :class:`RandomHue`; None leaves it out.

    Shape:
        images: [batch, h, w, 3] → the same, in the compute dtype

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: There are not 3 channels, and colours are to be changed.

    Example:
        >>> import numpy as np
        >>> jitter = RandomColorJitter(brightness_factor=0.2, hue_factor=0.1)
        >>> jitter(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        brightness_factor: Factor | None = None,
        contrast_factor: Factor | None = None,
        saturation_factor: Factor | None = None,
        hue_factor: Factor | None = None,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        self.value_range = check_value_range("RandomColorJitter", value_range)
        chosen = (
            (RandomBrightness, brightness_factor),
            (RandomContrast, contrast_factor),
            (RandomSaturation, saturation_factor),
            (RandomHue, hue_factor),
        )
        self.steps = [
            cls(factor, self.value_range)
            for cls, factor in chosen
            if factor is not None
        ]

    def parameters(self, images, training):
        if any(isinstance(step, ColourAugmentation) for step in self.steps):
            check_rgb(self.name, images)
        return super().parameters(images, training)

    def draw(self, key, shape):
        keys = jax.random.split(key, max(len(self.steps), 1))
        return [step.draw(k, shape) for step, k in zip(self.steps, keys, strict=False)]

    def transform(self, image, parameters):
        for step, values in zip(self.steps, parameters, strict=True):
            image = step.transform(image, values)
        return image
