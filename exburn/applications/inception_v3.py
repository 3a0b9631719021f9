"""Blocks of parallel convolutions of several sizes.

Source: Szegedy et al., *Rethinking the Inception Architecture for Computer Vision*,
2016.

Example:
    >>> model = InceptionV3(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from exburn.applications.application import (
    Application,
    PretrainedFiles,
    kernels,
    preprocessing,
    variant,
)
from exburn.applications.imagenet_utils import decode_predictions
from exburn.layers import (
    Activation,
    AveragePooling2D,
    Conv2D,
    MaxPooling2D,
    concatenate,
)
from exburn.models import Model

__all__ = ["InceptionV3", "decode_predictions", "preprocess_input"]

_HIGH, _WIDE = (7, 1), (1, 7)


def _conv(app: Application, x: Any, filters: int, kernel: Any, small: Any = ()) -> Any:
    """A convolution, normalized and activated; ``small``: its stride, unpadded."""
    strides, padding = (small, "valid") if small else (1, "same")
    x = Conv2D(filters, kernel, strides, padding, use_bias=False)(x)
    return Activation("relu")(app.norm(x, scale=False))


def _chain(app: Application, x: Any, *steps: tuple) -> Any:
    for step in steps:
        x = _conv(app, x, *step)
    return x


def _join(app: Application, branches: list, name: str | None = None) -> Any:
    return concatenate(branches, axis=app.axis, name=name)


def _mean(app: Application, x: Any, filters: int) -> Any:
    x = AveragePooling2D(3, strides=1, padding="same")(x)
    return _conv(app, x, filters, 1)


def _small_block(app: Application, x: Any, pooled: int, name: str) -> Any:
    """1 × 1, 5 × 5, 3 × 3 twice, and a mean."""
    branches = [
        _chain(app, x, (64, 1)),
        _chain(app, x, (48, 1), (64, 5)),
        _chain(app, x, (64, 1), (96, 3), (96, 3)),
        _mean(app, x, pooled),
    ]
    return _join(app, branches, name)


def _long_block(app: Application, x: Any, inner: int, name: str) -> Any:
    """1 × 1, 7 × 7 in two steps, that twice, and a mean."""
    twice = ((inner, _HIGH), (inner, _WIDE), (inner, _HIGH), (192, _WIDE))
    branches = [
        _chain(app, x, (192, 1)),
        _chain(app, x, (inner, 1), (inner, _WIDE), (192, _HIGH)),
        _chain(app, x, (inner, 1), *twice),
        _mean(app, x, 192),
    ]
    return _join(app, branches, name)


def _wide_block(app: Application, x: Any, inner: str, name: str) -> Any:
    """1 × 1, and 3 × 3 whose two steps are side by side."""

    def fork(x: Any, name: str | None = None) -> Any:
        parts = [_conv(app, x, 384, kernel) for kernel in ((1, 3), (3, 1))]
        return _join(app, parts, name)

    branches = [
        _chain(app, x, (320, 1)),
        fork(_chain(app, x, (384, 1)), inner),
        fork(_chain(app, x, (448, 1), (384, 3))),
        _mean(app, x, 192),
    ]
    return _join(app, branches, name)


def _build(arguments: tuple, pretrained: PretrainedFiles) -> Model:
    app = Application(
        *arguments, size=299, smallest=75, pretrained=pretrained, scaling="tf"
    )
    x = _chain(app, app.input, (32, 3, 2), (32, 3, 1), (64, 3))
    x = _chain(app, MaxPooling2D(3, strides=2)(x), (80, 1, 1), (192, 3, 1))
    x = MaxPooling2D(3, strides=2)(x)
    for number, pooled in enumerate((32, 64, 64)):
        x = _small_block(app, x, pooled, f"mixed{number}")
    branches = [
        _chain(app, x, (384, 3, 2)),
        _chain(app, x, (64, 1), (96, 3), (96, 3, 2)),
        MaxPooling2D(3, strides=2)(x),
    ]
    x = _join(app, branches, "mixed3")
    for number, inner in enumerate((128, 160, 160, 192), 4):
        x = _long_block(app, x, inner, f"mixed{number}")
    branches = [
        _chain(app, x, (192, 1), (320, 3, 2)),
        _chain(app, x, (192, 1), (192, _WIDE), (192, _HIGH), (192, 3, 2)),
        MaxPooling2D(3, strides=2)(x),
    ]
    x = _join(app, branches, "mixed8")
    for number in range(2):
        x = _wide_block(app, x, f"mixed9_{number}", f"mixed{9 + number}")
    return app.end(x, named=False)


InceptionV3 = variant(
    _build,
    "InceptionV3",
    "inception_v3",
    "The third Inception network.\n\n"
    "Source: Szegedy et al., *Rethinking the Inception Architecture for Computer\n"
    "Vision*, 2016.",
    pretrained=kernels(
        "inception_v3/inception_v3",
        "9a0d58056eeedaa3f26cb7ebd46da564",
        "bcbd6486424b2319ff4ef7d526e38f63",
    ),
)

preprocess_input = preprocessing("tf")
