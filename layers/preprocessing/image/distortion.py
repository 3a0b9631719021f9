"""Images seen from another side, or bent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.annotations import Factor
from exburn.core.checks import check_choice, check_float, check_rate
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
from exburn.layers.preprocessing.image.boxes import around_moved_corners
from exburn.layers.preprocessing.image.geometry import (
    FILL_MODES,
    INTERPOLATIONS,
    grid,
    sample,
)

__all__ = ["RandomElasticTransform", "RandomPerspective"]


@register_builtin
class RandomPerspective(ImageAugmentation):
    """Distorts some of the images as if they were seen from the side.

    Every corner but the first moves by a random part of its coordinates.

    Args:
        scale: Twice the largest part by which a corner moves, from 0 to 1.
        interpolation: ``"bilinear"`` or ``"nearest"``.
        fill_value: What is outside of the image.

    Example:
        >>> import numpy as np
        >>> RandomPerspective(scale=0.3)(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        scale: Factor = 1.0,
        interpolation: str = "bilinear",
        fill_value: float = 0.0,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = "RandomPerspective"
        self.factor = check_interval(op, "factor", factor)
        self.scale = check_rate(op, "scale", scale)
        self.interpolation = check_choice(
            op, "interpolation", interpolation, INTERPOLATIONS
        )
        self.fill_value = check_float(op, "fill_value", fill_value)

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        right = jnp.asarray(shape[1] - 1, jnp.float32)
        bottom = jnp.asarray(shape[0] - 1, jnp.float32)
        corners = jnp.array([[0, 0], [1, 0], [0, 1], [1, 1]], jnp.float32)
        corners = corners * jnp.stack([right, bottom])  # (x, y) of each
        moves = uniform(second, (-self.scale / 2, self.scale / 2), (4, 2))
        return {
            "change": happens(first, self.factor),
            "map": _projection(corners * (1 + moves), corners),
        }

    def transform(self, image, parameters):
        return self._project(image, parameters, self.interpolation)

    def transform_mask(self, mask, parameters):
        return self._project(mask, parameters, "nearest")

    def move_boxes(self, boxes, parameters, size):
        a, b, c, d, e, f, g, h = parameters["map"]
        ones = jnp.ones_like(a)
        back = jnp.linalg.inv(jnp.stack([a, b, c, d, e, f, g, h, ones]).reshape(3, 3))

        def move(x, y):
            x, y, depth = jnp.einsum(
                "ij,jn->in", back, jnp.stack([x, y, jnp.ones_like(x)])
            )
            return x / depth, y / depth

        moved = around_moved_corners(boxes, move)
        return jnp.where(parameters["change"], moved, boxes)

    def _project(self, image, parameters, interpolation: str):
        a, b, c, d, e, f, g, h = parameters["map"]
        y, x = grid(image.shape)
        depth = g * x + h * y + 1
        y, x = (d * x + e * y + f) / depth, (a * x + b * y + c) / depth
        seen = sample(image, y, x, interpolation, "constant", self.fill_value)
        return jnp.where(parameters["change"], seen, image)


def _projection(places, sources):
    """The projective map that leads from four places to where their values are."""
    x, y = places[:, 0], places[:, 1]
    one, none = jnp.ones_like(x), jnp.zeros_like(x)
    rows = [
        jnp.stack([*first, -to * x, -to * y], -1)
        for first, to in (
            ((x, y, one, none, none, none), sources[:, 0]),
            ((none, none, none, x, y, one), sources[:, 1]),
        )
    ]
    return jnp.linalg.solve(jnp.concatenate(rows), sources.T.reshape(8))


@register_builtin
class RandomElasticTransform(ImageAugmentation):
    """Bends some of the images by a smooth random field.

    Args:
        scale: Two numbers in [0, 1] between which the strength s is drawn: the field is
            noise smoothed by a Gaussian of deviation 0.05 s * the shorter side, times
            this deviation and 0.1 s * the longer side. One number x stands for
            ``(0, x)``.
        interpolation, fill_mode, fill_value: As in :class:`RandomRotation`.

    Example:
        >>> import numpy as np
        >>> RandomElasticTransform()(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)

    Source: Simard et al., *Best Practices for Convolutional Neural Networks Applied to
    Visual Document Analysis*, 2003.
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        scale: Factor = 1.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = "RandomElasticTransform"
        self.factor = check_interval(op, "factor", factor)
        self.scale = check_interval(op, "scale", scale)
        self.interpolation = check_choice(
            op, "interpolation", interpolation, INTERPOLATIONS
        )
        self.fill_mode = check_choice(op, "fill_mode", fill_mode, FILL_MODES)
        self.fill_value = check_float(op, "fill_value", fill_value)
        self.value_range = check_value_range(op, value_range)

    def draw(self, key, shape):
        first, second, third = jax.random.split(key, 3)
        rows, columns = (jnp.asarray(d, jnp.float32) for d in shape[:2])
        strength = uniform(second, self.scale)
        sigma = 0.05 * strength * jnp.minimum(rows, columns)
        reach = 0.1 * strength * jnp.maximum(rows, columns)
        noise = jax.random.normal(third, (2, *shape[:2]), jnp.float32)
        smooth = jnp.einsum(
            "ah,nhw,bw->nab",
            _gaussian(shape[0], sigma),
            noise,
            _gaussian(shape[1], sigma),
        )
        bend = happens(first, self.factor)
        return jnp.where(bend, smooth * sigma * reach, 0)  # [2, h, w]

    def transform(self, image, parameters):
        image = self._bend(image, parameters, self.interpolation)
        return jnp.clip(image, *self.value_range)

    def transform_mask(self, mask, parameters):
        return self._bend(mask, parameters, "nearest")

    def move_boxes(self, boxes, parameters, size):
        raise ArgumentError(
            self.name, "an elastic transform bends what is in a box beyond the box"
        )

    def _bend(self, image, field, interpolation: str):
        y, x = grid(image.shape)
        return sample(
            image,
            y + field[0],
            x + field[1],
            interpolation,
            self.fill_mode,
            self.fill_value,
        )


def _gaussian(size, sigma):
    """A matrix that smooths ``size`` values; its rows sum to 1."""
    place = jnp.arange(size, dtype=jnp.float32)
    gaps = (place[:, None] - place) / jnp.maximum(sigma, 1e-6)
    return jax.nn.softmax(-0.5 * gaps**2, -1)
