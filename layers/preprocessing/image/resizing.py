"""Images of another size."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageLayer,
    ImageOptions,
    UnnamedImageOptions,
    as_float,
)
from exburn.ops import image as ops
from exburn.ops.warping import round_to

_METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


@register_builtin
class Resizing(ImageLayer):
    """Images of a given size. Integers stay integers.

    Args:
        height: Rows of the result.
        width: Columns of the result.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"lanczos3"`` or
            ``"lanczos5"``.
        crop_to_aspect_ratio: Cuts out the middle that has the new proportions, instead
            of distorting.
        pad_to_aspect_ratio: Adds borders that make the new proportions.
        fill_mode: ``"constant"``.
        fill_value: Value of the borders.
        antialias: Whether images that shrink are smoothed first.

    Shape:
        images: [batch, h, w, channels] → [batch, height, width, channels], in the
        compute dtype if they are floats

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> Resizing(2, 3)(np.ones((4, 8, 8, 1), "uint8")).shape
        (4, 2, 3, 1)
    """

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(data_format, **kwargs)
        op = "Resizing"
        self.height = check_count(op, "height", height)
        self.width = check_count(op, "width", width)
        self.interpolation = check_choice(op, "interpolation", interpolation, _METHODS)
        self.crop_to_aspect_ratio = bool(crop_to_aspect_ratio)
        self.pad_to_aspect_ratio = bool(pad_to_aspect_ratio)
        self.fill_mode = check_choice(op, "fill_mode", fill_mode, ("constant",))
        self.fill_value = fill_value
        self.antialias = bool(antialias)

    def transform_images(self, images, parameters):
        resized = self._resize(images, self.interpolation)
        if jnp.issubdtype(images.dtype, jnp.floating):
            return self.cast(resized)
        return round_to(resized, images.dtype)

    def transform_masks(self, masks, parameters):
        return self._resize(masks, "nearest").astype(masks.dtype)

    def transform_bounding_boxes(self, boxes, parameters, size, new_size):
        places = boxes["boxes"]
        absent = (places == 0).all(-1) | (places == -1).all(-1)  # only fills a row
        result = super().transform_bounding_boxes(boxes, parameters, size, new_size)
        return {**result, "boxes": jnp.where(absent[..., None], 0, result["boxes"])}

    def transform_boxes(self, boxes, parameters, size, new_size):
        old = jnp.stack([jnp.asarray(side, jnp.float32) for side in size[::-1]])
        new = jnp.asarray(new_size[::-1], jnp.float32)  # width and height
        factor, start = new / old, jnp.zeros(2)
        if self.pad_to_aspect_ratio:
            factor = jnp.full(2, factor.min())
            start = (new - old * factor) // 2
        elif self.crop_to_aspect_ratio:
            factor = jnp.full(2, factor.max())
            start = -((old * factor - new) // 2)
        return boxes * jnp.tile(factor, 2) + jnp.tile(start, 2)

    def _resize(self, images, interpolation: str):
        return ops.resize(
            as_float(images),
            (self.height, self.width),
            interpolation,
            self.antialias,
            self.crop_to_aspect_ratio,
            self.pad_to_aspect_ratio,
            self.fill_mode,
            self.fill_value,
            "channels_last",
        )


def fit(images, height: int, width: int, interpolation: str = "bilinear"):
    """The largest window in the middle with the new proportions, resized."""
    return ops.resize(
        as_float(images),
        (height, width),
        interpolation,
        crop_to_aspect_ratio=True,
        data_format="channels_last",
    )


def fit_boxes(boxes, size: tuple, new_size: tuple):
    """Boxes ``[..., 4]``, ``"xyxy"``, of images that ``fit`` has resized."""
    (height, width), (rows, columns) = size, new_size
    high = max(min(height, int(width * rows / columns)), 1)
    wide = max(min(width, int(height * columns / rows)), 1)
    start = jnp.array([(width - wide) // 2, (height - high) // 2] * 2)
    return (boxes - start) * jnp.array([columns / wide, rows / high] * 2)


@register_builtin
class CenterCrop(ImageLayer):
    """The middle of images. Images that are too small are cut and resized.

    Args:
        height: Rows of the result.
        width: Columns of the result.

    Shape:
        images: [batch, h, w, channels] → [batch, height, width, channels], in the
        compute dtype

    Raises:
        ArgumentError: A size is no integer >= 1.
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> image = np.arange(16).reshape(4, 4, 1)
        >>> CenterCrop(2, 2)(image)[..., 0].tolist()
        [[5.0, 6.0], [9.0, 10.0]]
    """

    def __init__(
        self,
        height: int,
        width: int,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(data_format, **kwargs)
        self.height = check_count("CenterCrop", "height", height)
        self.width = check_count("CenterCrop", "width", width)

    def transform_images(self, images, parameters):
        return self.cast(self._crop(images, "bilinear"))

    def transform_masks(self, masks, parameters):
        return self._crop(masks, "nearest").astype(masks.dtype)

    def transform_boxes(self, boxes, parameters, size, new_size):
        rows, columns = size[0] - self.height, size[1] - self.width
        if rows < 0 or columns < 0:
            return fit_boxes(boxes, size, new_size)
        return boxes - jnp.array([columns // 2, rows // 2] * 2)

    def _crop(self, images, interpolation: str):
        rows, columns = images.shape[1] - self.height, images.shape[2] - self.width
        if rows < 0 or columns < 0:
            return fit(images, self.height, self.width, interpolation)
        top, left = rows // 2, columns // 2
        return images[:, top : top + self.height, left : left + self.width]


@register_builtin
class RandomCrop(ImageAugmentation):
    """A window of images, at a random place that differs from image to image.

    Outside of training, and where the images are too small, it is the largest window in
    the middle that has the new proportions, resized.

    Args:
        height: Rows of the result.
        width: Columns of the result.

    Shape:
        images: [batch, h, w, channels] → [batch, height, width, channels], in the
        compute dtype

    Raises:
        ArgumentError: A size is no integer >= 1.
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> RandomCrop(2, 3)(np.ones((4, 8, 8, 1))).shape
        (4, 2, 3, 1)
    """

    def __init__(
        self,
        height: int,
        width: int,
        seed: Any = None,
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Unpack[UnnamedImageOptions],
    ):
        super().__init__(seed, data_format, name=name, **kwargs)
        self.height = check_count("RandomCrop", "height", height)
        self.width = check_count("RandomCrop", "width", width)

    def parameters(self, images, training):
        rows, columns = images.shape[1] - self.height, images.shape[2] - self.width
        if rows < 0 or columns < 0:
            return None
        return super().parameters(images, training)

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        rows, columns = shape[0] - self.height + 1, shape[1] - self.width + 1
        return {
            "top": jax.random.randint(first, (), 0, rows),
            "left": jax.random.randint(second, (), 0, columns),
        }

    def transform(self, image, parameters):
        start = (parameters["top"], parameters["left"], 0)
        return lax.dynamic_slice(
            image, start, (self.height, self.width, image.shape[2])
        )

    def transform_mask(self, mask, parameters):
        return self.transform(mask, parameters)

    def move_boxes(self, boxes, parameters, size):
        top, left = parameters["top"], parameters["left"]
        return boxes - jnp.stack([left, top, left, top])

    def transform_boxes(self, boxes, parameters, size, new_size):
        if parameters is None:
            return fit_boxes(boxes, size, new_size)
        return super().transform_boxes(boxes, parameters, size, new_size)

    def transform_images(self, images, parameters):
        if parameters is None:
            return self.cast(fit(images, self.height, self.width))
        return super().transform_images(images, parameters)

    def transform_masks(self, masks, parameters):
        if parameters is None:
            masks_ = fit(masks, self.height, self.width, "nearest")
            return masks_.astype(masks.dtype)
        return super().transform_masks(masks, parameters)
