"""Images whose values fill the range that they may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.core.precision import is_float
from exburn.core.registry import register_builtin
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.layers.contract.layout import check_sizes
from exburn.layers.preprocessing.image.base import (
    AugmentationOptions,
    ImageAugmentation,
    ImageLayer,
    ImageSeedOptions,
    check_value_range,
    rescale,
)

__all__ = [
    "AutoContrast",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "Equalization",
]

_BYTES = (0.0, 255.0)


class ImageCorrection(ImageAugmentation):
    """A change of each image that is not random, and not only made in training."""

    @maps_datasets
    def __call__(self, inputs, training=None, **kwargs):
        return ImageLayer.__call__(self, inputs, training=training, **kwargs)

    def parameters(self, images, training):
        return {}


@register_builtin
class AutoContrast(ImageCorrection):
    """Stretches the values of each channel over the whole range of values.

    It does so in training and in inference.

    Raises:
        ArgumentError: ``value_range`` is not (lowest, highest).
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> AutoContrast()(np.array([[[10], [20], [30]]]))[..., 0].tolist()
        [[0.0, 127.5, 255.0]]
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        **kwargs: Unpack[AugmentationOptions],
    ):
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
        bins: Number of bins of the histogram.

    Raises:
        ArgumentError: ``value_range`` is not (lowest, highest).
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> Equalization()(np.array([[[10], [11], [12]]]))[..., 0].tolist()
        [[0.0, 128.0, 255.0]]
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        bins: int = 256,
        data_format: str | None = None,
        **kwargs: Unpack[ImageSeedOptions],
    ):
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


@register_builtin
class ContrastLimitedAdaptiveHistogramEqualization(ImageCorrection):
    """Spreads the values of each part of an image, so that they are about as frequent.

    The image is divided into tiles. A value's new one is interpolated between those
    that the four nearest tiles give it, each by the share of its pixels that are as
    dark or darker. Before, counts above the limit are handed out to all values alike,
    which keeps the noise of even tiles small. It does so in training and in inference.

    Args:
        clip_limit: How many times as frequent as on average a value counts at most; 0
            for no limit.
        tile_grid_size: Number of tiles along the height and along the width.

    Shape:
        images: [batch, h, w, channels] → the same, floats in the compute dtype

    Example:
        >>> import numpy as np
        >>> dark = np.arange(16).reshape(4, 4, 1)
        >>> equalize = ContrastLimitedAdaptiveHistogramEqualization(
        ...     clip_limit=0, tile_grid_size=(1, 1)
        ... )
        >>> equalize(dark)[..., 0].tolist()[0]
        [0, 17, 34, 51]

    Source: Zuiderveld, *Contrast Limited Adaptive Histogram Equalization*, 1994.
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        clip_limit: float = 4.0,
        tile_grid_size: Sequence[int] = (8, 8),
        data_format: str | None = None,
        **kwargs: Unpack[ImageSeedOptions],
    ):
        super().__init__(data_format=data_format, **kwargs)
        op = "ContrastLimitedAdaptiveHistogramEqualization"
        self.value_range = check_value_range(op, value_range)
        self.clip_limit = float(clip_limit)
        self.tile_grid_size = check_sizes(op, "tile_grid_size", tile_grid_size, 2)

    def transform_images(self, images, parameters):
        equalized = super().transform_images(images, parameters)
        whole = not is_float(images.dtype)
        return equalized.astype(images.dtype) if whole else equalized

    def transform(self, image, parameters):
        values = rescale(image, self.value_range, _BYTES)
        places = jnp.clip(values.astype(jnp.int32), 0, 255)  # [h, w, channels]
        rows, columns, channels = image.shape
        y = _Tiles(rows, self.tile_grid_size[0])
        x = _Tiles(columns, self.tile_grid_size[1])
        channel = jnp.arange(channels)
        counts = jnp.zeros((y.count, x.count, channels, 256), values.dtype)
        # the image is continued by its mirror image until the tiles are equal
        seen = places[y.mirrored][:, x.mirrored]
        tile = y.numbers[:, None, None], x.numbers[:, None], channel
        counts = counts.at[(*tile, seen)].add(1)
        table = self._table(counts, y.length * x.length)
        result = 0
        for row, row_share in y.neighbours():
            along = 0
            for column, column_share in x.neighbours():
                tile = row[:, None, None], column[:, None], channel
                along = along + column_share[:, None] * table[(*tile, places)]
            result = result + row_share[:, None, None] * along
        return rescale(result, _BYTES, self.value_range)

    def _table(self, counts, pixels):
        """The new value of each value ``[..., 256]`` of tiles of so many pixels."""
        if self.clip_limit > 0:
            clipped_counts = jnp.minimum(counts, self.clip_limit * pixels / 256)
            counts = (
                clipped_counts + (counts - clipped_counts).sum(-1, keepdims=True) / 256
            )
        below = counts.cumsum(-1)
        first = below[..., :1]
        rest = pixels - first
        table = (below - first) * 255 / jnp.where(rest == 0, 1, rest)
        return jnp.clip(table, *_BYTES)


class _Tiles:
    """The tiles along one axis of an image."""

    def __init__(self, size: int, count: int):
        self.size, self.count = size, count
        self.length = (size + count - 1) // count
        places = jnp.arange(self.length * count)
        self.numbers = places // self.length
        back = places % (2 * size)
        self.mirrored = jnp.minimum(back, 2 * size - 1 - back)

    def neighbours(self):
        """Numbers of the tiles before and after each place, and their shares."""
        at = (jnp.arange(self.size) - self.length / 2) / self.length
        before = jnp.floor(at)
        share = at - before
        for number, weight in ((before, 1 - share), (before + 1, share)):
            yield jnp.clip(number, 0, self.count - 1).astype(jnp.int32), weight
