"""The form in which a network takes images, and the names of its classes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from exburn import ops
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.pretrained import rank_classes
from exburn.applications.scaling import Scaling
from exburn.core.checks import (
    check_choice,
    check_count,
    check_flag,
    check_float,
    check_optional,
)
from exburn.errors import ArgumentError, ShapeError

IMAGENET_CLASSES = 1000


@dataclasses.dataclass(frozen=True)
class ImageFormat:
    """The form of a network's images, and the names of its outputs.

    Args:
        op: Name of the network, for errors.
        sides: Height and width; ``None`` for any.
        channels: Number of channels.
        scaling: What is done to pixels from 0 to 255.
        classes: Number of classes.
        has_top: Whether the network has a classifier.
        labels: Their names; ``None`` for ImageNet's, or none.
        crop: Share of an image's shorter side that is kept; ``None`` for the whole
            image, whatever its form.
        interpolation: ``"bilinear"`` or ``"bicubic"``.
        channels_last: Whether the network takes its channels last.

    Raises:
        ArgumentError: The labels are not as many as the classes, or a value is out of
            range.
    """

    op: str
    sides: tuple[Any, Any]
    channels: int
    scaling: Scaling
    classes: int
    has_top: bool = True
    labels: Any = None
    crop: float | None = None
    interpolation: str = "bilinear"
    channels_last: bool = True

    def __post_init__(self):
        op = self.op
        for side in self.sides:
            check_optional(check_count, op, "sides", side)
        check_count(op, "channels", self.channels)
        check_count(op, "classes", self.classes)
        check_flag(op, "has_top", self.has_top)
        check_flag(op, "channels_last", self.channels_last)
        check_choice(op, "interpolation", self.interpolation, ("bilinear", "bicubic"))
        if self.crop is not None and not 0 < check_float(op, "crop", self.crop) <= 1:
            raise ArgumentError(op, f"crop must be in (0, 1], received {self.crop!r}")
        if self.labels is None:
            return
        if isinstance(self.labels, str) or not isinstance(self.labels, Iterable):
            raise ArgumentError(
                op, f"labels are a list of names, received {self.labels!r}"
            )
        labels = tuple(map(str, self.labels))
        if len(labels) != self.classes:
            raise ArgumentError(
                op, f"{len(labels)} labels do not name {self.classes} classes"
            )
        object.__setattr__(self, "labels", labels)

    def get_config(self) -> dict[str, Any]:
        """The arguments, JSON-able."""
        config = {name: getattr(self, name) for name in _FIELDS}
        return config | {
            "sides": list(self.sides),
            "scaling": self.scaling.get_config(),
            "labels": None if self.labels is None else list(self.labels),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ImageFormat:
        """The format of a configuration.

        Raises:
            ArgumentError: It describes none.
        """
        sides: Any = config.get("sides")
        pair = isinstance(sides, list | tuple) and len(sides) == 2
        if not pair or not isinstance(config.get("op"), str) or set(config) != _FIELDS:
            raise ArgumentError("ImageFormat", f"no format is described by {config!r}")
        scaling = Scaling.from_config(config["scaling"])
        made = cls(**{**config, "sides": tuple(sides), "scaling": scaling})
        if len(scaling.mean) != made.channels:
            raise ArgumentError(made.op, "a mean for each channel is needed")
        return made

    # ------------------------------------------------------------------ images
    def prepare(self, images: Any) -> np.ndarray:
        """Images in the network's size and range; see ``TakesImages.preprocess``."""
        found = [self.scaling(self._fit(pixels)) for pixels in self._each(images)]
        sizes = {pixels.shape for pixels in found}
        if len(sizes) != 1:
            raise ShapeError(
                f"{self.op}.preprocess",
                "images of several sizes fit into no batch, and the network takes any",
                {"received": sorted(sizes) or "no images"},
                hint="Make the network with input_shape=(height, width, channels).",
            )
        batch = np.stack(found)
        return batch if self.channels_last else np.moveaxis(batch, -1, 1)

    def _each(self, images: Any) -> list[np.ndarray]:
        """The images one by one, in float32."""
        if not isinstance(images, list | tuple):
            array = np.asarray(images)
            images = array if array.ndim == 4 else [array]
        found = []
        for image in images:
            pixels = np.asarray(image)
            numbers = pixels.dtype.kind in "buif"
            if not numbers or pixels.ndim != 3 or pixels.shape[-1] != self.channels:
                raise ShapeError(
                    f"{self.op}.preprocess",
                    f"an image is [height, width, {self.channels}] of numbers, "
                    f"received {pixels.dtype} {pixels.shape}",
                )
            if 0 in pixels.shape:
                reason = f"an image has no pixels, received {pixels.shape}"
                raise ShapeError(f"{self.op}.preprocess", reason)
            found.append(pixels.astype("float32"))
        return found

    def _fit(self, pixels: np.ndarray) -> np.ndarray:
        """An image in the network's size."""
        sides = self.sides
        if None in sides or pixels.shape[:2] == sides:
            return pixels
        if self.crop is None:
            return self._resize(pixels, sides)
        scale = max(
            math.floor(side / self.crop + 0.5) / length
            for side, length in zip(sides, pixels.shape, strict=False)
        )
        pixels = self._resize(pixels, [round(n * scale) for n in pixels.shape[:2]])
        top, left = (
            (n - side) // 2 for n, side in zip(pixels.shape, sides, strict=False)
        )
        return pixels[top : top + sides[0], left : left + sides[1]]

    def _resize(self, pixels: np.ndarray, sides: Sequence[int]) -> np.ndarray:
        resized = ops.image.resize(
            pixels,
            tuple(sides),
            interpolation=self.interpolation,
            antialias=True,
            data_format="channels_last",
        )
        return np.clip(np.asarray(resized), 0, 255)

    # ------------------------------------------------------------------ classes
    def name_classes(self, predictions: Any, top: int) -> list[list[tuple]]:
        """The likeliest classes of each row; see ``TakesImages.decode``."""
        op = f"{self.op}.decode"
        if not self.has_top:
            raise ArgumentError(op, "the network has no classifier (include_top=False)")
        if self.labels is None and self.classes == IMAGENET_CLASSES:
            return decode_predictions(predictions, top)
        names = self.labels or [str(number) for number in range(self.classes)]
        return rank_classes(op, predictions, names, top)


_FIELDS = {field.name for field in dataclasses.fields(ImageFormat)}


class TakesImages:
    """Methods of networks for images, whose ``ImageFormat`` is their ``_format``."""

    _format: Any  # a Static

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, if the folder or the user has told them."""
        return self._format.value.labels

    @property
    def sides(self) -> tuple[Any, Any]:
        """Height and width that ``preprocess`` gives images; ``None`` for their own."""
        return self._format.value.sides

    @property
    def colours(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel, of pixels from 0 to 1."""
        scaling = self._format.value.scaling
        return scaling.mean, scaling.deviation

    def preprocess(self, images: Any) -> np.ndarray:
        """Images as the network was trained on them.

        They are brought to its size, smoothed where they get smaller: with ``crop``
        their middle, that share of what fits into the shorter side, else the whole
        image whatever its form. Their pixels become ``(x / 255 - mean) / deviation``;
        those of Keras' families what ``preprocess_input`` in their module makes.

        Args:
            images: RGB images with pixels from 0 to 255: an array, or a list of arrays
                of unlike sizes.

        Shape:
            images: [batch, height, width, channels], or one image without the batch
            → [batch, model's height, model's width, channels]; the channels come
            first where the network takes them so

        Raises:
            ShapeError: They are no images of as many channels, or have several sizes
                and the network none.

        Example:
            >>> import exburn
            >>> model = exburn.applications.MobileNetV2(
            ...     (32, 32, 3), alpha=0.35, weights=None, classes=2
            ... )
            >>> x = model.preprocess(np.full((20, 30, 3), 255, np.uint8))
            >>> x.shape, round(float(x[0, 0, 0, 0]), 3)
            ((1, 32, 32, 3), 1.0)
        """
        return self._format.value.prepare(images)

    def decode(self, predictions: Any, top: int = 5) -> list[list[tuple]]:
        """The likeliest classes of each image, the best first.

        The names are the model's labels; without any, ImageNet's for 1,000 classes,
        which are downloaded once, and numbers for others.

        Args:
            predictions: What the model predicted.
            top: How many classes are told of each image.

        Shape:
            predictions: [batch, classes]

        Returns:
            For each image a list of (identifier, name, score).

        Raises:
            ArgumentError: The model has no classifier.
            ShapeError: The predictions have another shape.
            DataError: ImageNet's names cannot be downloaded.

        Example:
            >>> from exburn.applications import ViT
            >>> sizes = {"patch_size": 8, "layers": 1, "width": 8, "heads": 1}
            >>> model = ViT(
            ...     input_shape=(16, 16, 3),
            ...     classes=2,
            ...     mlp_width=8,
            ...     labels=["cat", "dog"],
            ...     **sizes,
            ... )
            >>> model.decode(np.array([[0.25, 0.75]]), top=1)
            [[('1', 'dog', 0.75)]]
        """
        return self._format.value.name_classes(predictions, top)
