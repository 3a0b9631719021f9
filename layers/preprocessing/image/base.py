"""What layers on images share: the forms of their inputs, and random parameters.

Inside, images are ``[batch, height, width, channels]``; a random layer says how to draw
the parameters of one image and how to change one image by them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.core import forward_context
from exburn.core.checks import check_choice, check_optional, check_seed
from exburn.core.symbolic_shapes import describe
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.layout import check_format
from exburn.layers.preprocessing.image.boxes import (
    FORMATS,
    clip_to_image_size,
    convert_format,
)
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions, UnnamedOptions
from exburn.module.seed_generator import SeedOfLayer
from exburn.module.symbolic_tensor import has_symbol

_PARTS = ("images", "labels", "bounding_boxes", "segmentation_masks")


class UnnamedImageOptions(UnnamedOptions, total=False):
    """Options of image layers that list ``name`` themselves."""

    bounding_box_format: str | None


class ImageOptions(UnnamedImageOptions, total=False):
    """Keyword arguments that every layer of images takes."""

    name: str | None


class ImageFormatOptions(ImageOptions, total=False):
    """Options of image layers that do not list ``data_format``."""

    data_format: str | None


class ImageSeedOptions(ImageOptions, total=False):
    """Options of image layers that do not list ``seed``."""

    seed: Any


class AugmentationOptions(ImageFormatOptions, ImageSeedOptions, total=False):
    """Keyword arguments that every layer of images takes that may draw."""


class ImageLayer(Layer):
    """A layer on images, without weights.

    It takes one image or a batch, or a dictionary with ``"images"`` and with
    ``"labels"``, ``"segmentation_masks"`` and ``"bounding_boxes"`` that follow them.
    The boxes are a dictionary, too, with ``"boxes"`` and their ``"labels"``; what of
    them leaves the image is cut off, and a box of which nothing is left gets label -1.

    Args:
        data_format: ``"channels_last"`` or ``"channels_first"``.
        bounding_box_format: Format of the boxes, as in
            ``exburn.utils.bounding_boxes.convert_format``.

    Shape:
        images: [batch, height, width, channels] or [height, width, channels];
        boxes: [batch, n, 4] or [n, 4]; their labels: [batch, n] or [n]

    Raises:
        ShapeError: The rank of the images is neither 3 nor 4, or boxes do not fit them.
        ArgumentError: A dictionary has other entries, or boxes without a
            ``bounding_box_format``.
    """

    built = True
    _needs_box_format = True

    def __init__(
        self,
        data_format: str | None = None,
        bounding_box_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.data_format = check_format(type(self).__name__, data_format)
        op, name = type(self).__name__, "bounding_box_format"
        self.bounding_box_format = check_optional(
            check_choice, op, name, bounding_box_format, FORMATS
        )
        self._autocast = False  # casting is the last step

    # ------------------------------------------------------------------ to override
    def parameters(self, images, training: bool) -> Any:
        """What is to be done to each image; None if nothing is."""
        return {}

    def transform_images(self, images, parameters):
        """The images ``[batch, height, width, channels]`` after it."""
        raise NotImplementedError

    def transform_labels(self, labels, parameters):
        """The labels ``[batch, …]`` after it."""
        return labels

    def transform_masks(self, masks, parameters):
        """The segmentation masks ``[batch, height, width, channels]`` after it."""
        return masks

    def transform_boxes(self, boxes, parameters, size: tuple, new_size: tuple) -> Any:
        """The boxes after it, before they are cut; None where images keep their places.

        Args:
            boxes: [batch, n, 4], ``"xyxy"``.
            size: Height and width of the images.
            new_size: The same of the new ones.
        """
        return None

    def transform_bounding_boxes(self, boxes: dict, parameters, size, new_size) -> dict:
        """The boxes ``[batch, n, 4]``, and their labels, after it."""
        form = self.bounding_box_format
        corners = convert_format(boxes["boxes"], form, "xyxy", *size)
        corners = self.transform_boxes(corners, parameters, size, new_size)
        if corners is None:
            return boxes
        clipped = clip_to_image_size({**boxes, "boxes": corners}, *new_size)
        return convert_format(clipped, "xyxy", form, *new_size)

    # ------------------------------------------------------------------ the layer
    def call(self, inputs, training=True):
        if not isinstance(inputs, Mapping):
            return self._run({"images": inputs}, training)["images"]
        for key in inputs:
            if key not in _PARTS:
                raise ArgumentError(
                    self.name,
                    f"a dictionary of images has no entry {key!r}",
                    {"known": ", ".join(_PARTS)},
                )
        if "images" not in inputs:
            raise ArgumentError(self.name, 'the dictionary has no entry "images"')
        return self._run(dict(inputs), training)

    def _run(self, data: dict, training: bool) -> dict:
        images = jnp.asarray(data["images"])
        rank = images.ndim
        if rank not in (3, 4):
            raise ShapeError(
                self.name,
                "images have rank 4, or 3 for one image",
                {"received": describe(images)},
            )
        images = self._to_batch(images, rank)
        size = images.shape[1:3]
        parameters = self.parameters(images, training)
        images = self.transform_images(images, parameters)
        result = {"images": self._from_batch(images, rank)}
        if "labels" in data:
            labels = jnp.asarray(data["labels"])
            one = rank == 3
            labels = self.transform_labels(labels[None] if one else labels, parameters)
            result["labels"] = labels[0] if one else labels
        if "bounding_boxes" in data:
            boxes = self._check_boxes(data["bounding_boxes"], rank)
            if rank == 3:
                boxes = {key: value[None] for key, value in boxes.items()}
            boxes = self.transform_bounding_boxes(
                boxes, parameters, size, images.shape[1:3]
            )
            if rank == 3:
                boxes = {key: value[0] for key, value in boxes.items()}
            result["bounding_boxes"] = boxes
        if "segmentation_masks" in data:
            masks = jnp.asarray(data["segmentation_masks"])
            result["segmentation_masks"] = self._run_masks(masks, rank, parameters)
        return result

    def _check_boxes(self, boxes: Any, rank: int) -> dict:
        """Boxes and their labels as arrays."""
        if not isinstance(boxes, Mapping) or set(boxes) != {"boxes", "labels"}:
            raise ArgumentError(
                self.name,
                'bounding_boxes is a dictionary with "boxes" and "labels"',
                {"received": list(boxes) if isinstance(boxes, Mapping) else boxes},
            )
        if self._needs_box_format and self.bounding_box_format is None:
            raise ArgumentError(
                self.name,
                "bounding boxes need bounding_box_format",
                hint=f'{type(self).__name__}(…, bounding_box_format="xyxy"), or another'
                " of exburn.utils.bounding_boxes.",
            )
        try:
            places = jnp.asarray(boxes["boxes"], jnp.float32)
            labels = jnp.asarray(boxes["labels"])
        except (TypeError, ValueError) as error:  # JAX': lists of unequal length
            raise ShapeError(
                self.name,
                "all images of a batch have the same number of bounding boxes",
                {"cause": error},
                hint="Fill them up: boxes and labels of -1 are none, as of "
                "MaxNumBoundingBoxes.",
            ) from error
        fits = places.ndim == rank - 1 and places.shape[-1] == 4
        if not fits or labels.ndim not in (rank - 2, rank - 1):
            raise ShapeError(
                self.name,
                "boxes are [batch, n, 4] and their labels [batch, n]"
                if rank == 4
                else "boxes of one image are [n, 4] and their labels [n]",
                {"boxes": describe(places), "labels": describe(labels)},
            )
        return {"boxes": places, "labels": labels}

    def _run_masks(self, masks, rank: int, parameters):
        flat = masks.ndim == rank - 1  # no axis of channels
        if flat:
            masks = masks[..., None] if self._last else jnp.expand_dims(masks, -3)
        masks = self._to_batch(masks, rank)
        masks = self._from_batch(self.transform_masks(masks, parameters), rank)
        return masks.squeeze(-1 if self._last else -3) if flat else masks

    @property
    def _last(self) -> bool:
        return self.data_format == "channels_last"

    def _to_batch(self, images, rank: int):
        batch = images if rank == 4 else images[None]
        return batch if self._last else jnp.moveaxis(batch, 1, -1)

    def _from_batch(self, images, rank: int):
        images = images if self._last else jnp.moveaxis(images, -1, 1)
        return images if rank == 4 else images[0]


class ImageAugmentation(ImageLayer):
    """A random change of images, different for each image and active in training.

    A subclass writes ``draw``, the random parameters of one image, and ``transform``,
    the image after the change; ``move_boxes``, if that moves what is in the image. As
    in Keras, a call outside of a model, or an eager call of a model with it, augments
    unless it is given ``training=False``.

    Args:
        seed: Folded into the layer's random key.
        factor: Two numbers in [0, 1] between which the probability is drawn; one
            number x stands for ``(0, x)``.
        value_range: The lowest and the highest value of a pixel.

    Shape:
        images: [batch, h, w, channels] → the same, in the compute dtype

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The rank of the images is neither 3 nor 4.
    """

    seed_generator = SeedOfLayer()

    def __init__(
        self,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Unpack[ImageOptions],
    ):
        super().__init__(data_format, **kwargs)
        self.seed = check_seed(type(self).__name__, seed)

    # ------------------------------------------------------------------ to override
    def draw(self, key: jax.Array, shape: tuple) -> Any:
        """Random parameters of one image ``[height, width, channels]``."""
        return {}

    def transform(self, image: jax.Array, parameters: Any) -> jax.Array:
        """One image, of floats, after the change."""
        raise NotImplementedError

    def transform_mask(self, mask: jax.Array, parameters: Any) -> jax.Array:
        """One segmentation mask after the change; colours do not matter to it."""
        return mask

    def move_boxes(self, boxes: jax.Array, parameters: Any, size: tuple) -> Any:
        """Boxes ``[n, 4]`` of one image, ``"xyxy"``, after the change.

        None if the change moves nothing. What leaves the image, the caller cuts off.
        """
        return None

    # ------------------------------------------------------------------ the layer
    @maps_datasets
    def __call__(self, inputs, training=None, **kwargs):
        if has_symbol(inputs) or forward_context.current() is not None:
            return super().__call__(inputs, training=training, **kwargs)
        if training is False:
            return super().__call__(inputs, training=False, **kwargs)
        graphdef, _ = nnx.split(self)
        return _augment(graphdef, self.random_key(), inputs)

    def parameters(self, images, training):
        if not training:
            return None
        shape = images.shape[1:]
        keys = jax.random.split(self._key(), images.shape[0])
        return jax.vmap(lambda key: self.draw(key, shape))(keys)

    def _key(self) -> jax.Array:
        key = self.random_key()
        return key if self.seed is None else jax.random.fold_in(key, self.seed)

    def transform_images(self, images, parameters):
        if parameters is not None:
            images = jax.vmap(self.transform)(as_float(images), parameters)
        return self.cast(images)

    def transform_masks(self, masks, parameters):
        if parameters is None:
            return masks
        return jax.vmap(self.transform_mask)(masks, parameters)

    def transform_boxes(self, boxes, parameters, size, new_size):
        if parameters is None:
            return None
        move = functools.partial(self.move_boxes, size=size)
        return jax.vmap(move)(boxes, parameters)


@functools.partial(jax.jit, static_argnames="graphdef")
def _augment(graphdef, key, inputs):
    """One compiled call outside of a model; ``graphdef`` holds the layer's settings."""
    layer = nnx.merge(graphdef, nnx.State({}))
    ctx = forward_context.Context(training=True, key=key)
    with forward_context.forward(ctx):
        return layer._call_arrays((inputs,), {"training": True})


def as_float(images):
    """Images in at least 32 bits, so that colours keep their digits until the end."""
    return images.astype(jnp.promote_types(images.dtype, jnp.float32))


def check_interval(
    op: str,
    argument: str,
    value: Any,
    low: float = 0.0,
    high: float = 1.0,
    *,
    symmetric: bool = False,
) -> tuple[float, float]:
    """The ends of a range from a pair or one number x.

    x stands for ``(0, x)``, or for ``(-x, x)`` if the range is symmetric.
    """
    pair = value
    if isinstance(value, int | float):
        pair = (-abs(value), abs(value)) if symmetric else (0, value)
    numbers = isinstance(pair, list | tuple) and len(pair) == 2
    if not numbers or not all(isinstance(v, int | float) for v in pair):
        raise ArgumentError(op, f"{argument} is a number or two, received {value!r}")
    first, last = sorted(float(v) for v in pair)
    if not low <= first <= last <= high:
        raise ArgumentError(
            op, f"{argument} is in [{low:g}, {high:g}], received {value!r}"
        )
    return first, last


def check_value_range(op: str, value: Any) -> tuple[float, float]:
    """The lowest and the highest value of a pixel."""
    numbers = isinstance(value, list | tuple) and len(value) == 2
    if not numbers or not value[0] < value[1]:
        raise ArgumentError(op, f"value_range is (lowest, highest), received {value!r}")
    return float(value[0]), float(value[1])


def uniform(key, interval: tuple[float, float], shape=()):
    """Uniform numbers of 32 bits between two."""
    low, high = interval
    return low + (high - low) * jax.random.uniform(key, shape, jnp.float32)


def happens(key, chance: tuple[float, float]):
    """Whether a change is made, with a probability drawn between two."""
    first, second = jax.random.split(key)
    return jax.random.uniform(first) < uniform(second, chance)


def rescale(images, source: tuple[float, float], target: tuple[float, float]):
    """Values of one range in another."""
    if source == target:
        return images
    factor = (target[1] - target[0]) / (source[1] - source[0])
    return (images - source[0]) * factor + target[0]
