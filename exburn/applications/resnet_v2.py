"""Residual networks whose blocks begin with the activation.

Source: He et al., *Identity Mappings in Deep Residual Networks*, 2016.

Example:
    >>> model = ResNet50V2(weights=None, classes=10)  # doctest: +SKIP
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
from exburn.applications.resnet import EPSILON, FILTERS, stem
from exburn.layers import Activation, Add, Conv2D, MaxPooling2D, ZeroPadding2D
from exburn.models import Model

__all__ = [
    "ResNet50V2",
    "ResNet101V2",
    "ResNet152V2",
    "decode_predictions",
    "preprocess_input",
]


def _block(
    app: Application, x: Any, filters: int, stride: int, name: str, projects: bool
) -> Any:
    """1 × 1, 3 × 3, 1 × 1 behind an activation; the shortcut goes around all."""

    def activate(x: Any, label: str) -> Any:
        x = app.norm(x, f"{name}_{label}_bn", epsilon=EPSILON)
        return Activation("relu", name=f"{name}_{label}_relu")(x)

    before = activate(x, "preact")
    if projects:
        shortcut = Conv2D(4 * filters, 1, name=f"{name}_0_conv")(before)
    else:
        shortcut = MaxPooling2D(1, strides=stride)(x) if stride > 1 else x
    x = Conv2D(filters, 1, use_bias=False, name=f"{name}_1_conv")(before)
    x = ZeroPadding2D(1, name=f"{name}_2_pad")(activate(x, "1"))
    x = Conv2D(filters, 3, strides=stride, use_bias=False, name=f"{name}_2_conv")(x)
    x = Conv2D(4 * filters, 1, name=f"{name}_3_conv")(activate(x, "2"))
    return Add(name=f"{name}_out")([shortcut, x])


def _build(
    arguments: tuple, depths: tuple[int, ...], pretrained: PretrainedFiles
) -> Model:
    app = Application(*arguments, size=224, pretrained=pretrained, scaling="tf")
    x = stem(app, normalized=False)
    for stage, (filters, depth) in enumerate(zip(FILTERS, depths, strict=True), 2):
        for number in range(1, depth + 1):
            # The last block of a stage makes the map smaller, in all but the last one.
            stride = 2 if number == depth and stage < 5 else 1
            name = f"conv{stage}_block{number}"
            x = _block(app, x, filters, stride, name, projects=number == 1)
    x = app.norm(x, "post_bn", epsilon=EPSILON)
    return app.end(Activation("relu", name="post_relu")(x))


_SOURCE = "Source: He et al., *Identity Mappings in Deep Residual Networks*, 2016."

ResNet50V2 = variant(
    _build,
    "ResNet50V2",
    "resnet50v2",
    f"The second residual network with 50 layers.\n\n{_SOURCE}",
    depths=(3, 4, 6, 3),
    pretrained=kernels(
        "resnet/resnet50v2",
        "3ef43a0b657b3be2300d5770ece849e0",
        "fac2f116257151a9d068a22e544a4917",
    ),
)
ResNet101V2 = variant(
    _build,
    "ResNet101V2",
    "resnet101v2",
    f"The second residual network with 101 layers.\n\n{_SOURCE}",
    depths=(3, 4, 23, 3),
    pretrained=kernels(
        "resnet/resnet101v2",
        "6343647c601c52e1368623803854d971",
        "c0ed64b8031c3730f411d2eb4eea35b5",
    ),
)
ResNet152V2 = variant(
    _build,
    "ResNet152V2",
    "resnet152v2",
    f"The second residual network with 152 layers.\n\n{_SOURCE}",
    depths=(3, 8, 36, 3),
    pretrained=kernels(
        "resnet/resnet152v2",
        "a49b44d1979771252814e80f8ec446f9",
        "ed17cf2e0169df9d443503ef94b23b33",
    ),
)

preprocess_input = preprocessing("tf")
