"""Images blurred and sharpened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.annotations import Factor, Sizes
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.contract.layout import check_sizes
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageOptions,
    check_interval,
    check_value_range,
    happens,
    uniform,
)

__all__ = ["RandomGaussianBlur", "RandomSharpness"]


def shifted_sum(image, weights, axis: int):
    """The sum of shifted copies of an image, one a weight; borders are repeated.

    Weights that differ from image to image make a convolution slow; this is as fast as
    one pass over the image.
    """
    reach = len(weights) // 2
    pads = [(0, 0)] * image.ndim
    pads[axis] = (reach, reach)
    padded = jnp.pad(image, pads, mode="edge")
    size = image.shape[axis]
    total = 0
    for i, weight in enumerate(weights):
        part = [slice(None)] * image.ndim
        part[axis] = slice(i, i + size)
        total = total + weight * padded[tuple(part)]
    return total


@register_builtin
class RandomGaussianBlur(ImageAugmentation):
    """Smooths some of the images by a Gaussian.

    Args:
        kernel_size: Width and height of the window, odd; one number for both.
        sigma: Two numbers between which the deviations along x and y are drawn; one
            number x stands for ``(0, x)``.

    Example:
        >>> import numpy as np
        >>> RandomGaussianBlur(kernel_size=5)(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Factor = 1.0,
        kernel_size: Sizes = 3,
        sigma: Factor = 1.0,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = "RandomGaussianBlur"
        self.factor = check_interval(op, "factor", factor)
        self.kernel_size = check_sizes(op, "kernel_size", kernel_size, 2)
        if any(size % 2 == 0 for size in self.kernel_size):
            raise ArgumentError(op, f"kernel_size is odd, received {kernel_size!r}")
        self.sigma = check_interval(op, "sigma", sigma, 0, math.inf)
        self.value_range = check_value_range(op, value_range)

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        return {
            "blur": happens(first, self.factor),
            "sigma": uniform(second, self.sigma, (2,)) + 1e-6,  # along x, y
        }

    def transform(self, image, parameters):
        blurred = image
        for axis, place in ((1, 0), (0, 1)):
            size = self.kernel_size[place]
            reach = size // 2
            taps = jnp.arange(-reach, reach + 1) / parameters["sigma"][place]
            weights = jax.nn.softmax(-0.5 * taps**2)
            blurred = shifted_sum(blurred, [weights[i] for i in range(size)], axis)
        blurred = jnp.where(parameters["blur"], blurred, image)
        return jnp.clip(blurred, *self.value_range)


@register_builtin
class RandomSharpness(ImageAugmentation):
    """Blends each image with its blurred version, or away from it.

    ``y = clip(x + (1 - 2 f) * (blurred(x) - x))``

    Args:
        factor: Two numbers in [0, 1] between which f is drawn: 0 is blurred, 0.5
            changes nothing, 1 is sharper. One number x stands for ``(0, x)``.

    Example:
        >>> import numpy as np
        >>> RandomSharpness((0.8, 1.0))(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)
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
        self.factor = check_interval("RandomSharpness", "factor", factor)
        self.value_range = check_value_range("RandomSharpness", value_range)

    def draw(self, key, shape):
        return 1 - 2 * uniform(key, self.factor)

    def transform(self, image, parameters):
        # the window [[1, 1, 1], [1, 5, 1], [1, 1, 1]] / 13
        ones = (1 / 13,) * 3
        blurred = shifted_sum(shifted_sum(image, (1, 1, 1), 0), ones, 1)
        blurred = blurred + image * (4 / 13)
        return jnp.clip(image + parameters * (blurred - image), *self.value_range)
