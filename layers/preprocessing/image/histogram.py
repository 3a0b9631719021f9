"""Images whose values fill the range that they may have."""

from __future__ import annotations

import jax.numpy as jnp

from exburn.arguments import check_count
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageLayer,
    check_value_range,
    rescale,
)
from exburn.registry import register_builtin

__all__ = ["AutoContrast", "Equalization"]

_BYTES = (0.0, 255.0)


class ImageCorrection(ImageAugmentation):
    """A change of each image that is not random, and not only made in training."""

    def __call__(self, inputs, training=None, **kwargs):
        return ImageLayer.__call__(self, inputs, training=training, **kwargs)

    def parameters(self, images, training):
        return {}


@register_builtin
class AutoContrast(ImageCorrection):
    """Stretches the values of each channel over the whole range of values.

    It does so in training and in inference.

    Args:
        value_range: The lowest and the highest value of a pixel.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype

    Raises:
        ArgumentError: ``value_range`` is not (lowest, highest).
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> AutoContrast()(np.array([[[10], [20], [30]]]))[..., 0].tolist()
        [[0.0, 127.5, 255.0]]
    """

    def __init__(self, value_range=(0, 255), **kwargs):
        super().__init__(**kwargs)
        self.value_range = check_value_range("AutoContrast", value_range)

    def transform(self, image, parameters):
        lowest, highest = self.value_range
        low = image.min((0, 1), keepdims=True)
        span = image.max((0, 1), keepdims=True) - low
        flat = span == 0  # one value only: left as it is
        unit = (image - low) / jnp.where(flat, 1, span)
        stretched = jnp.clip(unit, 0, 1) * (highest - lowest) + lowest
        return jnp.where(flat, image, stretched)


@register_builtin
class Equalization(ImageCorrection):
    """Spreads the values of each channel so that all are about equally frequent.

    It does so in training and in inference, for each image by itself.

    Args:
        value_range: The lowest and the highest value of a pixel.
        bins: Number of bins of the histogram.
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype

    Raises:
        ArgumentError: ``value_range`` is not (lowest, highest).
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> Equalization()(np.array([[[10], [11], [12]]]))[..., 0].tolist()
        [[0.0, 128.0, 255.0]]
    """

    def __init__(self, value_range=(0, 255), bins=256, data_format=None, **kwargs):
        super().__init__(data_format=data_format, **kwargs)
        self.value_range = check_value_range("Equalization", value_range)
        self.bins = check_count("Equalization", "bins", bins)

    def transform(self, image, parameters):
        values = rescale(image, self.value_range, _BYTES)
        places = (values / 255 * (self.bins - 1)).astype(jnp.int32)
        places = jnp.clip(places, 0, self.bins - 1)  # [h, w, channels]
        channel = jnp.arange(image.shape[-1])
        counts = jnp.zeros((self.bins, image.shape[-1]), jnp.int32)
        counts = counts.at[places, channel].add(1)
        below = counts.cumsum(0)
        total = below[-1]
        first = jnp.where(below > 0, below, total).min(0)  # count of the lowest value
        rest = total - first
        table = (below - first) * 255 / jnp.maximum(rest, 1)
        table = jnp.clip(jnp.round(table), *_BYTES).astype(values.dtype)
        equalized = jnp.where(rest > 0, table[places, channel], values)
        return rescale(equalized, _BYTES, self.value_range)
