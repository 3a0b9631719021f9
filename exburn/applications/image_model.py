"""What image models know of inputs and outputs: sizes, colours, names of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.applications.image_format import ImageFormat, TakesImages
from exburn.applications.pretrained import Pretrained
from exburn.applications.scaling import DEVIATION, MEAN, Scaling
from exburn.errors import ArgumentError, FileFormatError
from exburn.module.variable import Static
from exburn.saving.pretrained_folder import setting

IMAGENET = MEAN, DEVIATION
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


class ImageModel(TakesImages, Pretrained):
    """Base of pretrained models for images.

    Subclasses have ``mean``, ``deviation``, ``crop``, ``interpolation`` and ``labels``
    among the arguments of their constructor, and pass them to ``_describe``.

    Attributes:
        has_top: Whether the classifier is part of the model; known by then.
    """

    has_top: bool

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

        Args:
            shape: Of the images.
            mean, deviation, crop, interpolation, labels: The constructor's.
            classes: How many there are.

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
        scaling = Scaling(
            tuple(np.broadcast_to(mean, channels).tolist()),
            tuple(np.broadcast_to(deviation, channels).tolist()),
        )
        self._format = Static(
            ImageFormat(
                op,
                (shape[0], shape[1]),
                channels,
                scaling,
                classes,
                self.has_top,
                labels,
                crop,
                interpolation,
            )
        )


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
