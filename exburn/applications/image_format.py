"""The form in which a network takes images, and the names of its classes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.pretrained import rank_classes
from exburn.applications.resampling import FILTERS, resample
from exburn.applications.scaling import Scaling
from exburn.core.checks import (
    check_choice,
    check_count,
    check_flag,
    check_float,
    check_number,
    check_optional,
)
from exburn.errors import ArgumentError, ShapeError

IMAGENET_CLASSES = 1000
_CROP_MODES = ("center", "border", "squash")


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
        crop: Share of an image's shorter side that is kept; ``True`` for the middle of
            what ``resize`` made, with zeros around it if it is smaller; ``None`` for
            no cut.
        interpolation: A filter: one of ``resampling.FILTERS``.
        resize: ``None`` for the network's size, before a cut; the length of the shorter
            side, or (height, width); ``False`` for images as they are.
        crop_mode: How the size before a share is cut is found: ``"center"`` from the
            shorter side, ``"border"`` from the longer one, with the mean's colour
            around it, ``"squash"`` from both, whatever the image's form.
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
    crop: float | bool | None = None
    interpolation: str = "bilinear"
    resize: Any = None
    crop_mode: str = "center"
    channels_last: bool = True

    def __post_init__(self):
        op = self.op
        for side in self.sides:
            check_optional(check_count, op, "sides", side)
        check_count(op, "channels", self.channels)
        check_count(op, "classes", self.classes)
        check_flag(op, "has_top", self.has_top)
        check_flag(op, "channels_last", self.channels_last)
        check_choice(op, "interpolation", self.interpolation, FILTERS)
        check_choice(op, "crop_mode", self.crop_mode, _CROP_MODES)
        self._check_fit()
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

    def _check_fit(self) -> None:
        """Checks how images get the network's size.

        Raises:
            ArgumentError: A value is out of range, or two do not go together.
        """
        op, resize, share = self.op, self.resize, self._share
        if share is not None:
            check_number(op, "crop", check_float(op, "crop", share), open_low=True)
        if share is not None and resize is not None:
            raise ArgumentError(
                op, "a share that is cut decides the size before, resize must be None"
            )
        if self.crop_mode != "center" and share is None:
            raise ArgumentError(
                op, f"crop_mode={self.crop_mode!r} needs a share as crop"
            )
        if resize is None or resize is False:
            return
        pair = isinstance(resize, list | tuple)
        if pair and len(resize) != 2:
            raise ArgumentError(
                op, f"resize is a length, or (height, width), received {resize!r}"
            )
        for side in resize if pair else [resize]:
            check_count(op, "resize", side)
        if pair:
            object.__setattr__(self, "resize", tuple(resize))

    @property
    def _share(self) -> float | None:
        """The share of an image that is kept, if a share is."""
        return None if self.crop is None or self.crop is True else self.crop

    def get_config(self) -> dict[str, Any]:
        """The arguments, JSON-able."""
        config = {name: getattr(self, name) for name in _FIELDS}
        return config | {
            "resize": list(self.resize)
            if isinstance(self.resize, tuple)
            else self.resize,
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
        image_format = cls(**{**config, "sides": tuple(sides), "scaling": scaling})
        if len(scaling.mean) != image_format.channels:
            raise ArgumentError(image_format.op, "a mean for each channel is needed")
        return image_format

    # ------------------------------------------------------------------ images
    def prepare(self, images: Any) -> np.ndarray:
        """Images in the network's size and range; see ``TakesImages.preprocess``."""
        pixels = [self._fit(image) for image in self._each(images)]
        sizes = {image.shape[:2] for image in pixels}
        if len(sizes) != 1:
            raise ShapeError(
                f"{self.op}.preprocess",
                "images of several sizes fit into no batch, and the network takes any",
                {"received": sorted(sizes) or "no images"},
                hint="Make the network with input_shape=(height, width, channels).",
            )
        batch = np.stack([self.scaling(image) for image in pixels])
        return batch if self.channels_last else np.moveaxis(batch, -1, 1)

    def _each(self, images: Any) -> list[np.ndarray]:
        """The images one by one."""
        if not isinstance(images, list | tuple):
            array = np.asarray(images)
            images = array if array.ndim == 4 else [array]
        arrays = []
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
            arrays.append(pixels)
        return arrays

    def _fit(self, pixels: np.ndarray) -> np.ndarray:
        """An image in the network's size.

        Raises:
            ShapeError: The folder's way leads to another size.
        """
        height, width = self.sides
        if height is None or width is None:
            return pixels
        pixels = self._resize(pixels)
        if self.crop is not None:
            colours = [round(255 * mean) for mean in self.scaling.mean]
            around = colours if self.crop_mode == "border" else 0
            pixels = _middle(pixels, (height, width), around, self.crop is True)
        if pixels.shape[:2] != (height, width):
            raise ShapeError(
                f"{self.op}.preprocess",
                f"the folder's way makes images of {pixels.shape[:2]}, and the network "
                f"takes {(height, width)}",
                {"resize": self.resize, "crop": self.crop},
                hint="Cut or resize the images before.",
            )
        return pixels

    def _resize(self, pixels: np.ndarray) -> np.ndarray:
        """An image in the size before the cut."""
        height, width = pixels.shape[:2]
        goal = self.sides if self.resize is None else self.resize
        if self._share is not None:
            goal = [math.floor(side / self._share) for side in self.sides]
            ratios = height / goal[0], width / goal[1]
            if self.crop_mode == "border":
                goal = [round(n / max(ratios)) for n in (height, width)]
            elif self.crop_mode == "center" and goal[0] == goal[1]:
                goal = goal[0]
            elif self.crop_mode == "center":
                goal = [round(n / min(ratios)) for n in (height, width)]
        if goal is False:
            return pixels
        if isinstance(goal, int):  # of the shorter side
            shorter = min(height, width)
            goal = [
                goal if n == shorter else int(goal * n / shorter)
                for n in (height, width)
            ]
        return resample(pixels, [max(side, 1) for side in goal], self.interpolation)

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


def _middle(
    pixels: np.ndarray, sides: Sequence[int], around: Any, of_transformers: bool
) -> np.ndarray:
    """The middle of an image, and a colour around it where the image is smaller.

    Args:
        pixels: The image.
        sides: Height and width of the result.
        around: The colour.
        of_transformers: Whether an odd line is where transformers' Pillow backend has
            it, else where timm has it.
    """
    lacks = [max(side - n, 0) for side, n in zip(sides, pixels.shape, strict=False)]
    if any(lacks):
        shape = [n + lack for n, lack in zip(pixels.shape, lacks, strict=False)]
        larger = np.empty((*shape, pixels.shape[2]), pixels.dtype)
        larger[:] = around
        top, left = ((lack + of_transformers) // 2 for lack in lacks)
        larger[top : top + len(pixels), left : left + pixels.shape[1]] = pixels
        pixels = larger
    half = math.floor if of_transformers else round  # of 2.5: to even
    top, left = (
        half((n - side) / 2) for n, side in zip(pixels.shape, sides, strict=False)
    )
    return pixels[top : top + sides[0], left : left + sides[1]]


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
