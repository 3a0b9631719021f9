"""Images moved, turned, stretched and mirrored."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax.scipy import ndimage

from exburn.core.annotations import Factor
from exburn.core.checks import check_choice, check_float
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageOptions,
    check_interval,
    uniform,
)
from exburn.layers.preprocessing.image.boxes import around_moved_corners

__all__ = [
    "RandomFlip",
    "RandomRotation",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
]

FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
INTERPOLATIONS = ("bilinear", "nearest")


def sample(image, y, x, interpolation: str, fill_mode: str, fill_value: float):
    """The values of an image ``[h, w, channels]`` at places ``y, x``, each [h, w]."""
    order = 1 if interpolation == "bilinear" else 0

    def plane(channel):
        return ndimage.map_coordinates(channel, (y, x), order, fill_mode, fill_value)

    return jax.vmap(plane, -1, -1)(image)


def grid(shape: tuple):
    """The row and the column of every pixel, to be broadcast."""
    rows = jnp.arange(shape[0], dtype=jnp.float32)[:, None]
    columns = jnp.arange(shape[1], dtype=jnp.float32)[None, :]
    return rows, columns


def affine(image, matrix, interpolation: str, fill_mode: str, fill_value: float):
    """An image whose pixel (x, y) comes from (a0 x + a1 y + a2, b0 x + b1 y + b2)."""
    y, x = grid(image.shape)
    a0, a1, a2, b0, b1, b2 = matrix
    y, x = b0 * x + b1 * y + b2, a0 * x + a1 * y + a2
    return sample(image, y, x, interpolation, fill_mode, fill_value)


def affine_boxes(boxes, matrix):
    """Upright boxes ``[n, 4]`` around what they hold in the image after ``affine``."""
    a0, a1, a2, b0, b1, b2 = matrix
    area = a0 * b1 - a1 * b0  # that a pixel comes from
    area = jnp.where(jnp.abs(area) < 1e-6, 1e-6, area)

    def move(x, y):
        x, y = x - a2, y - b2
        return (b1 * x - a1 * y) / area, (a0 * y - b0 * x) / area

    return around_moved_corners(boxes, move)


class AffineAugmentation(ImageAugmentation):
    """A random affine map of each image; a subclass draws its matrix.

    Args:
        fill_mode: What is outside of the image: ``"reflect"`` (dcba|abcd|dcba),
            ``"constant"``, ``"wrap"`` (abcd|abcd|abcd), ``"nearest"`` (aaaa|abcd|dddd)
            or ``"mirror"`` (dcb|abcd|cba).
        interpolation: ``"bilinear"`` or ``"nearest"``.
        fill_value: The constant.
    """

    def __init__(
        self,
        fill_mode: str,
        interpolation: str,
        fill_value: float,
        seed: Any,
        data_format: str | None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = type(self).__name__
        self.fill_mode = check_choice(op, "fill_mode", fill_mode, FILL_MODES)
        self.interpolation = check_choice(
            op, "interpolation", interpolation, INTERPOLATIONS
        )
        self.fill_value = check_float(op, "fill_value", fill_value)

    def transform(self, image, parameters):
        return affine(
            image, parameters, self.interpolation, self.fill_mode, self.fill_value
        )

    def transform_mask(self, mask, parameters):
        return affine(mask, parameters, "nearest", self.fill_mode, self.fill_value)

    def move_boxes(self, boxes, parameters, size):
        return affine_boxes(boxes, parameters)


def _matrix(*entries):
    return jnp.stack([jnp.asarray(e, jnp.float32) for e in entries])


@register_builtin
class RandomRotation(AffineAugmentation):
    """Turns each image around its middle by a random angle.

    Args:
        factor: Two numbers between which the angle is drawn, as parts of a full turn;
            one number x stands for ``(-x, x)``. Positive angles turn anticlockwise.

    Example:
        >>> import numpy as np
        >>> image = np.arange(4.0).reshape(2, 2, 1)
        >>> RandomRotation((0.25, 0.25))(image)[..., 0].round().tolist()
        [[1.0, 3.0], [0.0, 2.0]]
    """

    def __init__(
        self,
        factor: Factor,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(
            fill_mode=fill_mode,
            interpolation=interpolation,
            fill_value=fill_value,
            seed=seed,
            data_format=data_format,
            **kwargs,
        )
        self.factor = check_interval(
            "RandomRotation", "factor", factor, -1, 1, symmetric=True
        )

    def draw(self, key, shape):
        angle = 2 * jnp.pi * uniform(key, self.factor)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        x, y = (shape[1] - 1) / 2, (shape[0] - 1) / 2
        return _matrix(
            cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos
        )


@register_builtin
class RandomZoom(AffineAugmentation):
    """Zooms each image in or out around its middle.

    Args:
        height_factor: Two numbers between which the change of the height that is seen
            is drawn: 0.2 shows 20 % more rows, -0.2 shows 20 % less. One number x
            stands for ``(-x, x)``.
        width_factor: The same for the width; None keeps the proportions.

    Example:
        >>> import numpy as np
        >>> RandomZoom(0.2)(np.ones((4, 8, 8, 1))).shape
        (4, 8, 8, 1)
    """

    def __init__(
        self,
        height_factor: Factor,
        width_factor: Factor | None = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(
            fill_mode=fill_mode,
            interpolation=interpolation,
            fill_value=fill_value,
            seed=seed,
            data_format=data_format,
            **kwargs,
        )
        self.height_factor = _check_zoom("height_factor", height_factor)
        self.width_factor = None
        if width_factor is not None:
            self.width_factor = _check_zoom("width_factor", width_factor)

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        rows = columns = 1 + uniform(first, self.height_factor)
        if self.width_factor is not None:
            columns = 1 + uniform(second, self.width_factor)
        x, y = (shape[1] - 1) / 2, (shape[0] - 1) / 2
        return _matrix(columns, 0, x * (1 - columns), 0, rows, y * (1 - rows))


def _check_zoom(argument: str, value) -> tuple[float, float]:
    interval = check_interval("RandomZoom", argument, value, -1, 1, symmetric=True)
    if -1 in (value if isinstance(value, list | tuple) else (value,)):
        raise ArgumentError(
            "RandomZoom",
            f"{argument} is above -1, of which nothing is seen, received {value!r}",
        )
    return interval


@register_builtin
class RandomTranslation(AffineAugmentation):
    """Moves each image by a random part of its size.

    Args:
        height_factor: Two numbers between which the shift is drawn, as parts of the
            height; positive ones move down. One number x stands for ``(-x, x)``.
        width_factor: The same for the width; positive ones move to the right.

    Example:
        >>> import numpy as np
        >>> image = np.array([[[1.0], [2.0]], [[3.0], [4.0]]])
        >>> move = RandomTranslation((0.5, 0.5), 0, fill_mode="constant")
        >>> move(image)[..., 0].tolist()
        [[0.0, 0.0], [1.0, 2.0]]
    """

    def __init__(
        self,
        height_factor: Factor,
        width_factor: Factor | None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(
            fill_mode=fill_mode,
            interpolation=interpolation,
            fill_value=fill_value,
            seed=seed,
            data_format=data_format,
            **kwargs,
        )
        op = "RandomTranslation"
        self.height_factor = check_interval(
            op, "height_factor", height_factor, -1, 1, symmetric=True
        )
        self.width_factor = check_interval(
            op, "width_factor", width_factor, -1, 1, symmetric=True
        )

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        down = uniform(first, self.height_factor) * shape[0]
        right = uniform(second, self.width_factor) * shape[1]
        return _matrix(1, 0, -right, 0, 1, -down)


@register_builtin
class RandomShear(AffineAugmentation):
    """Slants each image along its rows and columns.

    Args:
        x_factor: Two numbers in [0, 1] between which the slant along x is drawn; one
            number x stands for ``(0, x)``. The direction is random.
        y_factor: The same along y.

    Example:
        >>> import numpy as np
        >>> RandomShear(0.3)(np.ones((4, 8, 8, 1))).shape
        (4, 8, 8, 1)
    """

    def __init__(
        self,
        x_factor: Factor = 0.0,
        y_factor: Factor = 0.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(
            fill_mode=fill_mode,
            interpolation=interpolation,
            fill_value=fill_value,
            seed=seed,
            data_format=data_format,
            **kwargs,
        )
        self.x_factor = check_interval("RandomShear", "x_factor", x_factor)
        self.y_factor = check_interval("RandomShear", "y_factor", y_factor)

    def draw(self, key, shape):
        first, second, third = jax.random.split(key, 3)
        sign = jnp.where(jax.random.bernoulli(first), 1.0, -1.0)
        x = sign * uniform(second, self.x_factor)
        y = sign * uniform(third, self.y_factor)
        return _matrix(1, x, 0, y, 1, 0)


_MODES = ("horizontal", "vertical", "horizontal_and_vertical")


@register_builtin
class RandomFlip(ImageAugmentation):
    """Mirrors half of the images.

    Args:
        mode: ``"horizontal"`` exchanges left and right, ``"vertical"`` top and bottom;
            ``"horizontal_and_vertical"`` decides each by itself.

    Raises:
        ArgumentError: ``mode`` is none of these.
        ShapeError: The rank of the images is neither 3 nor 4.

    Example:
        >>> import numpy as np
        >>> RandomFlip("horizontal")(np.ones((4, 8, 8, 1))).shape
        (4, 8, 8, 1)
    """

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        self.mode = check_choice("RandomFlip", "mode", mode, _MODES)

    def draw(self, key, shape):
        flips = jax.random.bernoulli(key, shape=(2,))
        return flips & jnp.array(["horizontal" in self.mode, "vertical" in self.mode])

    def transform(self, image, parameters):
        image = jnp.where(parameters[0], image[:, ::-1], image)
        return jnp.where(parameters[1], image[::-1], image)

    def transform_mask(self, mask, parameters):
        return self.transform(mask, parameters)

    def move_boxes(self, boxes, parameters, size):
        height, width = size
        left, top, right, bottom = jnp.moveaxis(boxes, -1, 0)
        left, right = (
            jnp.where(parameters[0], width - right, left),
            jnp.where(parameters[0], width - left, right),
        )
        top, bottom = (
            jnp.where(parameters[1], height - bottom, top),
            jnp.where(parameters[1], height - top, bottom),
        )
        return jnp.stack([left, top, right, bottom], -1)
