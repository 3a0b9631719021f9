"""Residual networks.

Source: He et al., *Deep Residual Learning for Image Recognition*, 2015.

Example:
    >>> model = ResNet50(weights=None, input_shape=(32, 32, 3), classes=10)
    >>> model.output_shape
    (None, 10)
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
    Add,
    Conv2D,
    MaxPooling2D,
    ZeroPadding2D,
)
from exburn.models import Model

__all__ = [
    "ResNet50",
    "ResNet101",
    "ResNet152",
    "decode_predictions",
    "preprocess_input",
]

FILTERS = (64, 128, 256, 512)  # of the stages
EPSILON = 1.001e-5


def stem(app: Application, *, normalized: bool) -> Any:
    """The convolution of 7 × 7 and the pooling that residual networks begin with."""
    x = ZeroPadding2D(3, name="conv1_pad")(app.input)
    x = Conv2D(64, 7, strides=2, name="conv1_conv")(x)
    if normalized:
        x = app.norm(x, "conv1_bn", epsilon=EPSILON)
        x = Activation("relu", name="conv1_relu")(x)
    x = ZeroPadding2D(1, name="pool1_pad")(x)
    return MaxPooling2D(3, strides=2, name="pool1_pool")(x)


def _block(app: Application, x: Any, filters: int, stride: int, name: str) -> Any:
    """1 × 1, 3 × 3, 1 × 1, beside a shortcut; the first of a stage projects it."""

    def conv(x: Any, number: int, filters: int, kernel: int, stride: int = 1):
        layer = Conv2D(
            filters,
            kernel,
            strides=stride,
            padding="same" if kernel > 1 else "valid",
            name=f"{name}_{number}_conv",
        )
        return app.norm(layer(x), f"{name}_{number}_bn", epsilon=EPSILON)

    first = name.endswith("block1")
    shortcut = conv(x, 0, 4 * filters, 1, stride) if first else x
    x = Activation("relu", name=f"{name}_1_relu")(conv(x, 1, filters, 1, stride))
    x = Activation("relu", name=f"{name}_2_relu")(conv(x, 2, filters, 3))
    x = Add(name=f"{name}_add")([shortcut, conv(x, 3, 4 * filters, 1)])
    return Activation("relu", name=f"{name}_out")(x)


def _build(
    arguments: tuple, depths: tuple[int, ...], pretrained: PretrainedFiles
) -> Model:
    app = Application(*arguments, size=224, pretrained=pretrained, scaling="caffe")
    x = stem(app, normalized=True)
    for stage, (filters, depth) in enumerate(zip(FILTERS, depths, strict=True), 2):
        for number in range(1, depth + 1):
            stride = 2 if number == 1 and stage > 2 else 1
            x = _block(app, x, filters, stride, f"conv{stage}_block{number}")
    return app.end(x)


_SOURCE = "Source: He et al., *Deep Residual Learning for Image Recognition*, 2015."

ResNet50 = variant(
    _build,
    "ResNet50",
    "resnet50",
    f"The residual network with 50 layers.\n\n{_SOURCE}",
    depths=(3, 4, 6, 3),
    pretrained=kernels(
        "resnet/resnet50",
        "2cb95161c43110f7111970584f804107",
        "4d473c1dd8becc155b73f8504c6f6626",
    ),
)
ResNet101 = variant(
    _build,
    "ResNet101",
    "resnet101",
    f"The residual network with 101 layers.\n\n{_SOURCE}",
    depths=(3, 4, 23, 3),
    pretrained=kernels(
        "resnet/resnet101",
        "f1aeb4b969a6efcfb50fad2f0c20cfc5",
        "88cf7a10940856eca736dc7b7e228a21",
    ),
)
ResNet152 = variant(
    _build,
    "ResNet152",
    "resnet152",
    f"The residual network with 152 layers.\n\n{_SOURCE}",
    depths=(3, 8, 36, 3),
    pretrained=kernels(
        "resnet/resnet152",
        "100835be76be38e30d865e96f2aaae62",
        "ee4c566cf9a93f14d82f913c2dc6dd0c",
    ),
)

preprocess_input = preprocessing("caffe")
