"""The scaling of an image's pixels before a network sees them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.core.checks import check_flag, check_number
from exburn.errors import ArgumentError

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BLUE_GREEN_RED = (103.939, 116.779, 123.68)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """``(x / 255 - mean) / deviation`` of pixels from 0 to 255.

    Args:
        mean: Of each channel, of pixels from 0 to 1.
        deviation: The same of their deviations.
        reverse: Whether red and blue change places before.

    Raises:
        ArgumentError: They are no numbers for the same channels, or a deviation is no
            number above 0.

    Example:
        >>> Scaling((0.5,), (0.5,))(np.array([[[0.0], [255.0]]])).ravel().tolist()
        [-1.0, 1.0]
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    reverse: bool = False

    def __post_init__(self):
        for name in ("mean", "deviation"):
            values = getattr(self, name)
            if not isinstance(values, list | tuple) or len(values) != len(self.mean):
                reason = f"{name} has a number for each channel, received {values!r}"
                raise ArgumentError("Scaling", reason)
            below = name == "mean"
            least = -math.inf if below else 0.0
            numbers = [
                check_number("Scaling", name, number, least, open_low=not below)
                for number in values
            ]
            object.__setattr__(self, name, tuple(numbers))
        check_flag("Scaling", "reverse", self.reverse)

    @classmethod
    def of_mode(cls, mode: str | None, channels: int = 3) -> Scaling:
        """The scaling of a mode of ``imagenet_utils.preprocess_input``.

        Images of other than three channels get the mean of what the three have.

        Args:
            mode: ``"caffe"``, ``"tf"``, ``"torch"``, or ``None`` for pixels as they
                are.
            channels: Number of channels.

        Example:
            >>> Scaling.of_mode(None)(np.full((1, 1, 3), 7.0)).tolist()
            [[[7.0, 7.0, 7.0]]]
        """
        if mode == "torch":
            mean, deviation = MEAN, DEVIATION
        elif mode == "caffe":
            mean = tuple(value / 255 for value in BLUE_GREEN_RED)
            deviation = (1 / 255,) * 3
        else:
            mean, deviation = ((0.5,), (0.5,)) if mode == "tf" else ((0,), (1 / 255,))
        if len(mean) != channels:
            mean = (sum(mean) / len(mean),) * channels
            deviation = (sum(deviation) / len(deviation),) * channels
        return cls(mean, deviation, reverse=mode == "caffe" and channels == 3)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Scaling:
        """The scaling of a configuration.

        Raises:
            ArgumentError: It describes none.
        """
        if not isinstance(config, Mapping) or not {"mean", "deviation"} <= set(config):
            raise ArgumentError("Scaling", f"no scaling is described by {config!r}")
        reverse = config.get("reverse", False)
        return cls(config["mean"], config["deviation"], reverse)

    def get_config(self) -> dict[str, Any]:
        """The arguments, JSON-able."""
        return {
            "mean": list(self.mean),
            "deviation": list(self.deviation),
            "reverse": self.reverse,
        }

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Scaled pixels, in float32.

        Shape:
            pixels: [..., channels] → the same
        """
        mean = np.array([255 * value for value in self.mean], "float32")
        deviation = np.array([255 * value for value in self.deviation], "float32")
        if self.reverse:
            pixels = pixels[..., ::-1]
        return (pixels.astype("float32") - mean) / deviation
