"""Images and labels mixed with those of another row of the batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.checks import check_number
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DTypeError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    as_float,
    check_interval,
    uniform,
)
from exburn.layers.preprocessing.image.erasing import box, in_box


class Mixing(ImageAugmentation):
    """A mixture of each row with another; rows that are only padding take no part.

    A subclass draws its parameters, and says how two images mix and in which shares.
    """

    def share(self, parameters, shape: tuple):
        """The share of the own row, for each row."""
        raise NotImplementedError

    def mix(self, own, other, parameters):
        """One image of two."""
        raise NotImplementedError

    def parameters(self, images, training):
        if not training:
            return None
        partners, others = jax.random.split(self._key())
        keys = jax.random.split(others, images.shape[0])
        shape = images.shape[1:]
        drawn = jax.vmap(lambda key: self.draw(key, shape))(keys)
        share = jax.vmap(lambda p: self.share(p, shape))(drawn)
        return {
            "partner": _partners(partners, images.shape[0]),
            "own": drawn,
            "share": share,
        }

    def transform_images(self, images, parameters):
        if parameters is not None:
            images = as_float(images)
            images = jax.vmap(self.mix)(
                images, images[parameters["partner"]], parameters["own"]
            )
        return self.cast(images)

    def transform_labels(self, labels, parameters):
        whole = not jnp.issubdtype(labels.dtype, jnp.floating)
        if whole and (labels.ndim < 2 or labels.shape[-1] == 1):
            raise DTypeError(
                self.name,
                "class numbers cannot be mixed",
                {"labels": describe(labels)},
                hint="Pass one-hot labels: exburn.utils.to_categorical(labels).",
            )
        labels = as_float(labels)
        if parameters is None:
            return labels
        share = parameters["share"].reshape(-1, *[1] * (labels.ndim - 1))
        return share * labels + (1 - share) * labels[parameters["partner"]]


def _partners(key, size: int):
    """For each row another one, so that every row is chosen once.

    Rows that are only padding are their own partners.
    """
    order = jax.random.uniform(key, (size,))
    rows = jnp.arange(size)
    ctx = forward_context.current()
    used = None if ctx is None else ctx.row_mask
    if used is None:
        return jnp.argsort(order)
    used = jnp.asarray(used, bool)
    shuffled = jnp.argsort(jnp.where(used, order, 2.0))  # the used rows come first
    return jnp.where(used, shuffled[jnp.cumsum(used) - 1], rows)


def beta(key, alpha):
    """A number from Beta(alpha, alpha): one of two gamma variates over their sum."""
    first, second = jax.random.loggamma(key, alpha, (2,))
    return jax.nn.sigmoid(first - second)


@register_builtin
class MixUp(Mixing):
    """Blends each image, and its label, with another of the batch.

    ``y = w * x + (1 - w) * x[partner]`` with ``w ~ Beta(alpha, alpha)``

    It takes ``{"images": …, "labels": …}`` with one-hot labels, or images alone. In
    training an image has its partner's bounding boxes, too.

    Args:
        alpha: How evenly images mix: small values leave most of them as they are.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        seed: Folded into the layer's random key.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype
        labels: [batch, classes] → the same, as floats

    Raises:
        ArgumentError: ``alpha`` is not positive.
        DTypeError: The labels are class numbers.

    Example:
        >>> import numpy as np
        >>> data = {"images": np.ones((4, 8, 8, 3)), "labels": np.eye(4)}
        >>> MixUp()(data)["labels"].sum(-1).round(3).tolist()
        [1.0, 1.0, 1.0, 1.0]

    Source: Zhang et al., *mixup: Beyond Empirical Risk Minimization*, 2018.
    """

    def __init__(self, alpha=0.2, data_format=None, seed=None, **kwargs):
        super().__init__(seed, data_format, **kwargs)
        self.alpha = check_number("MixUp", "alpha", alpha, open_low=True)

    def draw(self, key, shape):
        return beta(key, self.alpha)

    def share(self, parameters, shape):
        return parameters

    def mix(self, own, other, parameters):
        return parameters * own + (1 - parameters) * other

    def transform_bounding_boxes(self, boxes, parameters, size, new_size):
        if parameters is None:
            return boxes
        partner = parameters["partner"]
        return {k: jnp.concatenate([v, v[partner]], 1) for k, v in boxes.items()}

    def transform_masks(self, masks, parameters):
        masks = as_float(masks)
        if parameters is None:
            return masks
        return jax.vmap(self.mix)(
            masks, masks[parameters["partner"]], parameters["own"]
        )


@register_builtin
class CutMix(Mixing):
    """Puts a rectangle of another image of the batch into each image.

    The labels mix by the areas. It takes ``{"images": …, "labels": …}`` with one-hot
    labels, or images alone.

    Args:
        factor: Two numbers in [0, 1] between which a is drawn; the share of the own
            image is drawn from ``Beta(a, a)``. One number x stands for ``(0, x)``.
        seed: Folded into the layer's random key.
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype
        labels: [batch, classes] → the same, as floats

    Raises:
        ArgumentError: ``factor`` is out of range.
        DTypeError: The labels are class numbers.

    Example:
        >>> import numpy as np
        >>> data = {"images": np.ones((4, 8, 8, 3)), "labels": np.eye(4)}
        >>> CutMix()(data)["labels"].sum(-1).round(3).tolist()
        [1.0, 1.0, 1.0, 1.0]

    Source: Yun et al., *CutMix: Regularization Strategy to Train Strong Classifiers
    with Localizable Features*, 2019.
    """

    def __init__(self, factor=1.0, seed=None, data_format=None, **kwargs):
        super().__init__(seed, data_format, **kwargs)
        self.factor = check_interval("CutMix", "factor", factor)

    def draw(self, key, shape):
        first, second, third = jax.random.split(key, 3)
        alpha = uniform(first, self.factor) + 1e-6
        share = beta(second, alpha)
        return box(third, shape, jnp.sqrt(1 - share))

    def share(self, parameters, shape):
        return 1 - in_box(parameters, shape).mean()

    def move_boxes(self, boxes, parameters, size):
        raise ArgumentError(
            self.name, "a rectangle of another image has no bounding boxes"
        )

    def mix(self, own, other, parameters):
        return jnp.where(in_box(parameters, own.shape), other, own)

    def transform_masks(self, masks, parameters):
        if parameters is None:
            return masks
        return jax.vmap(self.mix)(
            masks, masks[parameters["partner"]], parameters["own"]
        )
