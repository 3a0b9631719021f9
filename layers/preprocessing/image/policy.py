"""Several random changes of images one after another, chosen at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core.annotations import Factor
from exburn.core.checks import check_choice, check_count, check_number
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageOptions,
    check_interval,
    check_value_range,
)
from exburn.layers.preprocessing.image.boxes import clip_to_image_size
from exburn.layers.preprocessing.image.colour import RandomColorDegeneration, check_rgb
from exburn.layers.preprocessing.image.filtering import RandomSharpness
from exburn.layers.preprocessing.image.geometry import (
    INTERPOLATIONS,
    RandomRotation,
    RandomShear,
    RandomTranslation,
    affine,
    affine_boxes,
)
from exburn.layers.preprocessing.image.histogram import AutoContrast, Equalization
from exburn.layers.preprocessing.image.tone import (
    RandomBrightness,
    RandomContrast,
    RandomPosterization,
    Solarization,
)


class Policy(ImageAugmentation):
    """Changes chosen from a list of moves and of changes of colours."""

    def __init__(
        self,
        value_range: Sequence[float],
        factor: Factor,
        interpolation: str,
        seed: Any,
        data_format: str | None,
        colours: Any,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(seed, data_format, **kwargs)
        op = type(self).__name__
        self.value_range = bounds = check_value_range(op, value_range)
        self.factor = f = check_interval(op, "factor", factor)
        self.interpolation = check_choice(
            op, "interpolation", interpolation, INTERPOLATIONS
        )
        self.moves = [
            RandomShear(f, f),
            RandomTranslation(f, f),
            RandomRotation(f),
        ]
        self.tones = [
            RandomPosterization(max(1, int(8 * f[1])), bounds),
            Solarization(f, f, bounds),
            AutoContrast(bounds),
            Equalization(bounds),
        ]
        if colours:
            self.tones = [
                *self.tones,
                RandomBrightness(f, bounds),
                RandomColorDegeneration(f, bounds),
                RandomContrast(f, bounds),
                RandomSharpness(f, bounds),
            ]
        self.colours = bool(colours)

    def parameters(self, images, training):
        if self.colours:
            check_rgb(self.name, images)
        return super().parameters(images, training)

    @property
    def choices(self) -> int:
        return len(self.moves) + len(self.tones)

    def draw_step(self, key, shape, choices: int):
        """The number of a change, and the parameters of every one.

        All of them come from one key, because only one of them will be used.
        """
        first, second = jax.random.split(key)
        drawn = [layer.draw(second, shape) for layer in (*self.moves, *self.tones)]
        choice = jax.random.randint(first, (), 0, choices)
        n = len(self.moves)
        still = jnp.array([1, 0, 0, 0, 1, 0], jnp.float32)
        # the moves are one kind of map: all of them cost one look-up of the pixels
        matrix = jnp.stack([*drawn[:n], still])[jnp.minimum(choice, n)]
        return {"choice": choice, "matrix": matrix, "tones": drawn[n:]}

    def step(self, image, parameters):
        """One change of one image."""
        image = affine(image, parameters["matrix"], self.interpolation, "reflect", 0.0)
        chosen = parameters["choice"] - len(self.moves)
        result = image
        for i, (tone, drawn) in enumerate(
            zip(self.tones, parameters["tones"], strict=True)
        ):
            result = jnp.where(chosen == i, tone.transform(image, drawn), result)
        return result

    def run(self, image, parameters):
        """The changes of one image, one after another."""
        change = lambda image, step: (self.step(image, step), None)  # noqa: E731
        return lax.scan(change, image, parameters)[0]


@register_builtin
class RandAugment(Policy):
    """Makes a few random changes of each image, one after another.

    They are chosen from shear, translation, rotation, brightness, colour degeneration,
    contrast, sharpness, posterization, solarization, auto-contrast and equalization.

    Args:
        num_ops: How many changes are made.
        factor: How strong they are, in [0, 1]: two numbers between which the strengths
            are drawn; one number x stands for ``(0, x)``.
        interpolation: ``"bilinear"`` or ``"nearest"``.

    Shape:
        images: [batch, h, w, 3] → the same, in the compute dtype

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: There are not 3 channels.

    Example:
        >>> import numpy as np
        >>> RandAugment(num_ops=1)(np.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)

    Source: Cubuk et al., *RandAugment: Practical Automated Data Augmentation with a
    Reduced Search Space*, 2020.
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_ops: int = 2,
        factor: Factor = 0.5,
        interpolation: str = "bilinear",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(
            value_range, factor, interpolation, seed, data_format, True, **kwargs
        )
        self.num_ops = check_count("RandAugment", "num_ops", num_ops, 0)

    def draw(self, key, shape):
        keys = jax.random.split(key, self.num_ops)
        return jax.vmap(lambda k: self.draw_step(k, shape, self.choices))(keys)

    def transform(self, image, parameters):
        return self.run(image, parameters)

    def transform_mask(self, mask, parameters):
        def move(mask, matrix):
            return affine(mask, matrix, "nearest", "reflect", 0.0), None

        return lax.scan(move, mask, parameters["matrix"])[0]

    def move_boxes(self, boxes, parameters, size):
        def move(boxes, matrix):
            boxes = clip_to_image_size({"boxes": affine_boxes(boxes, matrix)}, *size)
            start, end = jnp.split(boxes["boxes"], 2, -1)
            empty = (start == end).any(-1, keepdims=True)
            # a box that has left the image is a point: no turn gives it an area again
            return jnp.concatenate([start, jnp.where(empty, start, end)], -1), None

        return lax.scan(move, boxes, parameters["matrix"])[0]


@register_builtin
class AugMix(Policy):
    """Mixes each image with several chains of random changes of it.

    ``y = w x + (1 - w) * sum(v_i * chain_i(x))``, with ``w ~ Beta(alpha, alpha)`` and
    ``v ~ Dirichlet(alpha)``

    Args:
        num_chains: Number of chains.
        chain_depth: Largest number of changes in a chain.
        factor: How strong they are, as in :class:`RandAugment`.
        alpha: How evenly the chains and the image mix.
        all_ops: Whether the changes of brightness, colour, contrast and sharpness are
            among them.
        interpolation: ``"bilinear"`` or ``"nearest"``.

    Shape:
        images: [batch, h, w, 3] → the same, in the compute dtype

    Raises:
        ArgumentError: An argument is out of range, or there are segmentation masks,
            which cannot follow a mixture.
        ShapeError: There are not 3 channels.

    Example:
        >>> import numpy as np
        >>> AugMix(num_chains=2, chain_depth=1)(np.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)

    Source: Hendrycks et al., *AugMix: A Simple Data Processing Method to Improve
    Robustness and Uncertainty*, 2020.
    """

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_chains: int = 3,
        chain_depth: int = 3,
        factor: Factor = 0.3,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: str = "bilinear",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(
            value_range, factor, interpolation, seed, data_format, all_ops, **kwargs
        )
        self.num_chains = check_count("AugMix", "num_chains", num_chains)
        self.chain_depth = check_count("AugMix", "chain_depth", chain_depth)
        self.alpha = check_number("AugMix", "alpha", alpha, open_low=True)
        self.all_ops = bool(all_ops)

    def draw(self, key, shape):
        first, second = jax.random.split(key)
        keys = jax.random.split(second, (self.num_chains, self.chain_depth))
        # n gamma variates over their sum are a Dirichlet one, and for n = 2 a Beta one
        logs = jax.random.loggamma(first, self.alpha, (self.num_chains + 2,))
        # the last choice is no change
        step = lambda k: self.draw_step(k, shape, self.choices + 1)  # noqa: E731
        return {
            "own": jax.nn.sigmoid(logs[0] - logs[1]),
            "shares": jax.nn.softmax(logs[2:]),
            "steps": jax.vmap(jax.vmap(step))(keys),
        }

    def transform(self, image, parameters):
        chains = jax.vmap(self.run, (None, 0))(image, parameters["steps"])
        mixed = jnp.einsum("n,n...->...", parameters["shares"], chains)
        own = parameters["own"]
        return jnp.clip(own * image + (1 - own) * mixed, *self.value_range)

    def transform_mask(self, mask, parameters):
        raise ArgumentError(
            self.name, "a mixture of several distortions has no segmentation mask"
        )
