"""What image models know of inputs and outputs: sizes, colours, names of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn import ops
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.pretrained import Pretrained, rank_classes
from exburn.core.checks import check_choice, check_float
from exburn.errors import ArgumentError, FileFormatError, ShapeError
from exburn.saving.pretrained_folder import setting

IMAGENET_CLASSES = 1000
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean, deviation
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


class ImageModel(Pretrained):
    """Base of pretrained models for images.

    Subclasses have ``mean``, ``deviation``, ``crop``, ``interpolation`` and ``labels``
    among the arguments of their constructor, and pass them to ``_describe``.
    """

    def _describe(
        self,
        shape: Sequence[Any],
        mean: Any,
        deviation: Any,
        crop: float | None,
        interpolation: str,
        labels: Any,
        classes: int,
    ) -> None:
        """Notes what goes in and comes out.

        Raises:
            ArgumentError: The labels are not as many as the classes, or a value is out
                of range.
        """
        op = type(self).__name__
        channels = shape[-1]
        for name, value in (("mean", mean), ("deviation", deviation)):
            if np.shape(value) not in ((), (channels,)):
                raise ArgumentError(
                    op,
                    f"{name} has a number for each of {channels} channels, received "
                    f"{value!r}",
                )
        if labels is not None and len(labels) != classes:
            raise ArgumentError(
                op, f"{len(labels)} labels do not name {classes} classes"
            )
        check_choice(op, "interpolation", interpolation, ("bilinear", "bicubic"))
        if crop is not None and not 0 < check_float(op, "crop", crop) <= 1:
            raise ArgumentError(op, f"crop must be in (0, 1], received {crop!r}")
        self._sides, self._crop = tuple(shape[:2]), crop
        self._interpolation = interpolation
        self._colours = (
            tuple(np.broadcast_to(mean, channels).tolist()),
            tuple(np.broadcast_to(deviation, channels).tolist()),
        )
        self._labels = None if labels is None else tuple(map(str, labels))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, if the folder or the user has told them."""
        return self._labels

    @property
    def sides(self) -> tuple[Any, Any]:
        """Height and width that ``preprocess`` gives images."""
        return self._sides

    @property
    def colours(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel, of pixels from 0 to 1."""
        return self._colours

    def preprocess(self, images: Any) -> np.ndarray:
        """Images as the network was trained on them.

        They are brought to its size, smoothed where they get smaller: with ``crop``
        their middle, that share of what fits into the shorter side, else the whole
        image whatever its form. Their pixels become ``(x / 255 - mean) / deviation``.

        Args:
            images: RGB images with pixels from 0 to 255: an array, or a list of arrays
                of unlike sizes.

        Shape:
            images: [batch, height, width, channels], or one image without the batch
            → [batch, model's height, model's width, channels]

        Raises:
            ShapeError: They are no images of as many channels.

        Example:
            >>> from exburn.applications import ViT
            >>> sizes = {"patch_size": 8, "layers": 1, "width": 8, "heads": 1}
            >>> model = ViT(input_shape=(16, 16, 3), classes=2, mlp_width=8, **sizes)
            >>> x = model.preprocess(np.full((20, 30, 3), 255, np.uint8))
            >>> x.shape, round(float(x[0, 0, 0, 0]), 3)
            ((1, 16, 16, 3), 1.0)
        """
        single = getattr(images, "ndim", 0) == 3
        mean, deviation = (np.array(part, "float32") for part in self._colours)
        found = []
        for image in [images] if single else images:
            pixels = np.asarray(image)
            if pixels.ndim != 3 or pixels.shape[-1] != len(mean):
                raise ShapeError(
                    f"{type(self).__name__}.preprocess",
                    f"an image is [height, width, {len(mean)}], received "
                    f"{pixels.shape}",
                )
            pixels = self._fit(pixels.astype("float32"))
            found.append((pixels / 255 - mean) / deviation)
        return np.stack(found).astype("float32")

    def _fit(self, pixels: np.ndarray) -> np.ndarray:
        """An image in the size of the model's."""
        sides = self._sides
        if None in sides or pixels.shape[:2] == sides:
            return pixels
        if self._crop is None:
            return self._resize(pixels, sides)
        scale = max(
            math.floor(side / self._crop + 0.5) / length
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
            interpolation=self._interpolation,
            antialias=True,
            data_format="channels_last",
        )
        return np.clip(np.asarray(resized), 0, 255)

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
            ShapeError: They have another shape.
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
        names, count = self._labels, self.output_shape[-1]
        if names is None and count == IMAGENET_CLASSES:
            return decode_predictions(predictions, top)
        names = names or [str(number) for number in range(count)]
        op = f"{type(self).__name__}.decode"
        return rank_classes(op, predictions, names, top)


def colours(
    config: Mapping[str, Any], mean: str, deviation: str, default: tuple, op: str
) -> dict[str, Any]:
    """``mean`` and ``deviation`` of a file about preprocessing.

    Raises:
        FileFormatError: They are no numbers.
    """
    found = {}
    for name, key, known in (
        ("mean", mean, default[0]),
        ("deviation", deviation, default[1]),
    ):
        value = config.get(key, known)
        right = isinstance(value, list | tuple) and all(
            type(number) in (int, float) and 0 <= number < 256 for number in value
        )
        if not right:
            raise FileFormatError(op, f"{key!r} must be numbers, received {value!r}")
        found[name] = tuple(map(float, value))
    return found


def timm_colours(config: Mapping[str, Any], default: tuple, op: str) -> dict[str, Any]:
    """The same of a folder of timm's, and what part of an image counts.

    Raises:
        FileFormatError: They are no numbers.
    """
    about = config.get("pretrained_cfg", {})
    if not isinstance(about, Mapping):
        raise FileFormatError(op, "'pretrained_cfg' must be an object")
    crop = setting(about, "crop_pct", float, 0.875, op)
    way = about.get("interpolation", "bicubic")
    return {
        "crop": crop if 0 < crop <= 1 else None,
        "interpolation": way if way in ("bilinear", "bicubic") else "bicubic",
        **colours(about, "mean", "std", default, op),
    }


def timm_arguments_in(config: Mapping[str, Any], op: str) -> dict[str, Any]:
    """The arguments that a folder of timm's gives its function of the architecture.

    Raises:
        FileFormatError: They are no object.
    """
    found = config.get("model_args", {})
    if not isinstance(found, dict):
        raise FileFormatError(op, "'model_args' must be an object")
    return found


def timm_config(
    colours: tuple[Sequence[float], Sequence[float]], made: Mapping[str, Any]
) -> dict[str, Any]:
    """What such a folder says of a model's images.

    Args:
        colours: Mean and deviation.
        made: The model's configuration.
    """
    return {
        "mean": list(colours[0]),
        "std": list(colours[1]),
        "crop_pct": made["crop"] or 1.0,
        "interpolation": made["interpolation"],
    }
