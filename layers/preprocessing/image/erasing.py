"""Images of which a part is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.annotations import Factor
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageOptions,
    check_interval,
    check_value_range,
    happens,
    uniform,
)
from exburn.layers.preprocessing.image.geometry import grid


@register_builtin
class RandomErasing(ImageAugmentation):
    """Overwrites a rectangle in some of the images.

    Args:
        scale: Two numbers in [0, 1]; the width and the height of the rectangle, as
            parts of the image's, are the roots of numbers drawn between them.
        fill_value: A number, or one for each of three channels; None for noise.

    Example:
        >>> import numpy as np
        >>> erase = RandomErasing((1.0, 1.0), scale=(0.25, 0.25), fill_value=0)
        >>> float(erase(np.ones((8, 8, 1))).sum())
        48.0

    Source: Zhong et al., *Random Erasing Data Augmentation*, 2020.
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        scale: Factor = (0.02, 0.33),
        fill_value: Any = None,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = "RandomErasing"
        self.factor = check_interval(op, "factor", factor)
        self.scale = check_interval(op, "scale", scale)
        self.fill_value = fill_value
        if isinstance(fill_value, list | tuple):
            if len(fill_value) != 3:
                raise ArgumentError(
                    op, f"fill_value is a number or three, received {fill_value!r}"
                )
            self.fill_value = tuple(fill_value)
        self.value_range = check_value_range(op, value_range)

    def draw(self, key, shape):
        first, second, third, noise = jax.random.split(key, 4)
        sides = jnp.sqrt(uniform(second, self.scale, (2,)))
        return {
            "erase": happens(first, self.factor),
            "box": box(third, shape, sides),
            "noise": noise,
        }

    def transform(self, image, parameters):
        fill = self.fill_value
        if fill is None:
            noise = jax.random.normal(parameters["noise"], image.shape, image.dtype)
            fill = noise * self.value_range[1]
        fill = jnp.clip(jnp.asarray(fill, image.dtype), *self.value_range)
        inside = in_box(parameters["box"], image.shape) & parameters["erase"]
        return jnp.where(inside, fill, image)


def box(key, shape: tuple, sides):
    """Rows and columns ``(top, bottom, left, right)`` of a box at a random place.

    Args:
        sides: Its height and width as parts of the image's.
    """
    size = jnp.stack([jnp.asarray(d, jnp.float32) for d in shape[:2]])
    length = size * sides
    start = jax.random.uniform(key, (2,)) * (size - length)
    end = start + length
    return jnp.stack([start[0], end[0], start[1], end[1]])


def in_box(edges, shape: tuple):
    """Which pixels ``[h, w, 1]`` are inside."""
    y, x = grid(shape)
    top, bottom, left, right = edges
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return inside[..., None]
