"""Images and labels mixed with those of another row of the batch."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.annotations import Factor
from exburn.core.checks import check_number
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DTypeError, ShapeError
from exburn.layers.preprocessing.image.base import (
    ImageAugmentation,
    ImageOptions,
    as_float,
    check_interval,
    uniform,
)
from exburn.layers.preprocessing.image.boxes import clip_to_image_size, convert_format
from exburn.layers.preprocessing.image.erasing import box, in_box
from exburn.module.layer_options import LayerOptions


class Mixing(ImageAugmentation):
    """A mixture of each row with another; rows that are only padding take no part.

    A subclass draws its parameters, and says how two images mix and in which shares.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype
        labels: [batch, classes] → the same, as floats
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


def _rows_used() -> Any:
    """Which rows of the batch are no padding; None where all are."""
    ctx = forward_context.current()
    used = None if ctx is None else ctx.row_mask
    return None if used is None else jnp.asarray(used, bool)


def _partners(key, size: int):
    """For each row another one, so that every row is chosen once.

    Rows that are only padding are their own partners.
    """
    order = jax.random.uniform(key, (size,))
    rows, used = jnp.arange(size), _rows_used()
    if used is None:
        return jnp.argsort(order)
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

    def __init__(
        self,
        alpha: float = 0.2,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Unpack[ImageOptions],
    ):
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

    def __init__(
        self,
        factor: Factor = 1.0,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
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


@register_builtin
class Mosaic(ImageAugmentation):
    """Puts pieces of four images of the batch together, its own at the top left.

    The three others are drawn anew for each image; where the pieces meet is drawn, too,
    on whole pixels. Labels mix by the areas. Bounding boxes follow their images: each
    image has the boxes of all four, those of which nothing is left with label -1. A
    single image is put together with itself.

    Args:
        offset: Two numbers in [0, 1] between which the point where the pieces meet
            lies, as a share of width and height. One number x stands for ``(0, x)``.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype
        labels: [batch, classes] → the same
        boxes: [batch, n, 4] → [batch, 4 * n, 4]; their labels: the same

    Raises:
        ArgumentError: ``offset`` is out of range.
        DTypeError: The labels are no floats, as class numbers are none.
        ShapeError: They are not ``[batch, classes]``.

    Example:
        >>> import numpy as np
        >>> data = {"images": np.ones((4, 8, 8, 3)), "labels": np.eye(4)}
        >>> Mosaic()(data)["labels"].sum(-1).round(3).tolist()
        [1.0, 1.0, 1.0, 1.0]

    Source: Bochkovskiy et al., *YOLOv4: Optimal Speed and Accuracy of Object
    Detection*, 2020.
    """

    def __init__(
        self,
        offset: Factor = (0.25, 0.75),
        seed: Any = None,
        bounding_box_format: str | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(
            seed, data_format, bounding_box_format=bounding_box_format, **kwargs
        )
        self.offset = check_interval("Mosaic", "offset", offset)

    def parameters(self, images, training):
        """The four images of each row, their shares, and the point where they meet.

        ``rows`` and ``shares`` are ``[batch, 4]``; ``x`` and ``y``, ``[batch]``, count
        whole pixels from the left and from the top.
        """
        if not training:
            return None
        size, height, width = images.shape[:3]
        first, second, third = jax.random.split(self._key(), 3)
        x = jnp.rint(uniform(second, self.offset, (size,)) * width)
        y = jnp.rint(uniform(third, self.offset, (size,)) * height)
        rows = _with_others(first, size, 3)
        return {"rows": rows, "shares": _areas(x / width, y / height), "x": x, "y": y}

    def transform_images(self, images, parameters):
        if parameters is not None:
            images = _put_together(images, parameters)
        return self.cast(images)

    def transform_masks(self, masks, parameters):
        return masks if parameters is None else _put_together(masks, parameters)

    def transform_labels(self, labels, parameters):
        if parameters is None:
            return labels
        if not jnp.issubdtype(labels.dtype, jnp.floating):
            raise DTypeError(
                self.name,
                "labels are mixed by areas, so they must be floats",
                {"labels": describe(labels)},
                hint="Pass one-hot labels: exburn.utils.to_categorical(labels).",
            )
        if labels.ndim != 2:
            raise ShapeError(
                self.name,
                "labels must be [batch, classes]",
                {"labels": describe(labels)},
            )
        mixed = as_float(labels)[parameters["rows"]]  # [batch, 4, classes]
        return (mixed * parameters["shares"][..., None]).sum(1)

    def transform_bounding_boxes(self, boxes, parameters, size, new_size):
        if parameters is None:
            return boxes
        height, width = size
        form, rows = self.bounding_box_format, parameters["rows"]
        corners = convert_format(boxes["boxes"], form, "xyxy", *size)
        x, y = parameters["x"], parameters["y"]
        left, top = jnp.stack([x - width, x], -1), jnp.stack([y - height, y], -1)
        shift = jnp.stack([left[:, [0, 1, 0, 1]], top[:, [0, 0, 1, 1]]] * 2, -1)
        corners = corners[rows] + shift[:, :, None]  # [batch, 4, n, 4]
        labels = boxes["labels"][rows]
        count = 4 * corners.shape[2]
        clipped = clip_to_image_size(
            {
                "boxes": corners.reshape(-1, count, 4),
                "labels": labels.reshape(-1, count, *labels.shape[3:]),
            },
            *size,
        )
        return convert_format(clipped, "xyxy", form, *size)


def _with_others(key, size: int, others: int):
    """Each row, and some more for it, which may be any: ``[size, 1 + others]``.

    Rows that are only padding are drawn for none.
    """
    rows, used = jnp.arange(size), _rows_used()
    if used is None:
        drawn = jax.random.randint(key, (size, others), 0, size)
    else:
        places = jnp.argsort(~used, stable=True)  # the used rows come first
        count = jnp.maximum(used.sum(), 1)
        drawn = places[jax.random.randint(key, (size, others), 0, count)]
    return jnp.concatenate([rows[:, None], drawn], -1)


def _areas(left, above):
    """The shares of four pieces that meet at a point, in reading order: ``[batch, 4]``.

    Args:
        left: What part of the width lies left of the point, ``[batch]``.
        above: What part of the height lies above it.
    """
    columns = jnp.stack([left, 1 - left], -1)
    rows = jnp.stack([above, 1 - above], -1)
    return (rows[:, :, None] * columns[:, None, :]).reshape(-1, 4)


def _put_together(images, parameters):
    """Images, of each a piece of its four rows: ``[batch, height, width, channels]``.

    The first lies left of and above the point, moved so far that it ends there.
    """
    height, width = images.shape[1:3]
    x, y = (parameters[name].astype(jnp.int32)[:, None] for name in "xy")
    at_row, at_column = jnp.arange(height), jnp.arange(width)
    right, below = at_column >= x, at_row >= y  # [batch, width], [batch, height]
    piece = 2 * below[:, :, None] + right[:, None, :]  # [batch, height, width]
    batch = jnp.arange(images.shape[0])[:, None, None]
    rows = parameters["rows"][batch, piece]
    from_row = ((at_row - y) % height)[:, :, None]  # [batch, height, 1]
    from_column = ((at_column - x) % width)[:, None, :]  # [batch, 1, width]
    return images[rows, from_row, from_column]
