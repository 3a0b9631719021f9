"""A fixed number of bounding boxes for each image."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.layers.preprocessing.image.base import ImageFormatOptions, ImageLayer


@register_builtin
class MaxNumBoundingBoxes(ImageLayer):
    """The first boxes of each image, or all and as many more as are missing.

    Images, their labels and segmentation masks stay as they are.

    Args:
        max_number: Number of boxes an image.
        fill_value: The numbers of the boxes that are added, and their labels.

    Shape:
        boxes: [batch, n, 4] → [batch, max_number, 4];
        their labels: [batch, n] → [batch, max_number]

    Raises:
        ArgumentError: ``max_number`` is no positive integer.
        ShapeError: The boxes do not fit the images.

    Example:
        >>> import numpy as np
        >>> boxes = {"boxes": np.ones((1, 2, 4)), "labels": np.array([[7, 8]])}
        >>> data = {"images": np.ones((1, 4, 4, 3)), "bounding_boxes": boxes}
        >>> MaxNumBoundingBoxes(3)(data)["bounding_boxes"]["labels"].tolist()
        [[7, 8, -1]]
    """

    _needs_box_format = False

    def __init__(
        self,
        max_number: int,
        fill_value: float = -1,
        **kwargs: Unpack[ImageFormatOptions],
    ):
        super().__init__(**kwargs)
        self.max_number = check_count("MaxNumBoundingBoxes", "max_number", max_number)
        self.fill_value = int(fill_value)

    def transform_images(self, images, parameters):
        return images

    def transform_bounding_boxes(self, boxes, parameters, size, new_size):
        return {key: self._take(value) for key, value in boxes.items()}

    def _take(self, values):
        values = values[:, : self.max_number]
        missing = self.max_number - values.shape[1]
        pads = [(0, 0), (0, missing), *[(0, 0)] * (values.ndim - 2)]
        return jnp.pad(values, pads, constant_values=self.fill_value)
