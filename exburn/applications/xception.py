"""A network of depthwise separable convolutions with shortcuts.

Source: Chollet, *Xception: Deep Learning with Depthwise Separable Convolutions*, 2017.

Example:
    >>> model = Xception(weights=None, classes=10)  # doctest: +SKIP
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
from exburn.layers import Activation, Conv2D, MaxPooling2D, SeparableConv2D, add
from exburn.models import Model

__all__ = ["Xception", "decode_predictions", "preprocess_input"]


def _act(x: Any, name: str) -> Any:
    return Activation("relu", name=f"{name}_act")(x)


def _separable(app: Application, x: Any, filters: int, name: str) -> Any:
    layer = SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)
    return app.norm(layer(x), f"{name}_bn")


def _shrink(app: Application, x: Any, filters: tuple[int, int], number: int) -> Any:
    """Two convolutions and a pooling, beside a projection with stride 2."""
    project = Conv2D(filters[1], 1, strides=2, padding="same", use_bias=False)
    shortcut = app.norm(project(x))
    name = f"block{number}"
    for i, width in enumerate(filters, 1):
        if number > 2 or i > 1:
            x = _act(x, f"{name}_sepconv{i}")
        x = _separable(app, x, width, f"{name}_sepconv{i}")
    x = MaxPooling2D(3, strides=2, padding="same", name=f"{name}_pool")(x)
    return add([x, shortcut])


def _build(arguments: tuple, pretrained: PretrainedFiles) -> Model:
    app = Application(
        *arguments, size=299, smallest=71, pretrained=pretrained, scaling="tf"
    )
    x = app.input
    for i, (filters, stride) in enumerate(((32, 2), (64, 1)), 1):
        name = f"block1_conv{i}"
        x = Conv2D(filters, 3, strides=stride, use_bias=False, name=name)(x)
        x = _act(app.norm(x, f"{name}_bn"), name)
    for number, filters in enumerate((128, 256, 728), 2):
        x = _shrink(app, x, (filters, filters), number)
    for number in range(5, 13):
        shortcut = x
        for i in (1, 2, 3):
            name = f"block{number}_sepconv{i}"
            x = _separable(app, _act(x, name), 728, name)
        x = add([x, shortcut])
    x = _shrink(app, x, (728, 1024), 13)
    for i, filters in enumerate((1536, 2048), 1):
        name = f"block14_sepconv{i}"
        x = _act(_separable(app, x, filters, name), name)
    return app.end(x, named=False)


Xception = variant(
    _build,
    "Xception",
    "xception",
    "The Xception network.\n\n"
    "Source: Chollet, *Xception: Deep Learning with Depthwise Separable Convolutions*,"
    "\n2017.",
    pretrained=kernels(
        "xception/xception",
        "0a58e3b7378bc2990ea3b43d5981f1f6",
        "b0042744bf5b25fce3cb969f33bebb97",
    ),
)

preprocess_input = preprocessing("tf")
