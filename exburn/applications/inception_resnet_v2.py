"""Inception blocks with shortcuts around them.

Source: Szegedy et al., *Inception-v4, Inception-ResNet and the Impact of Residual
Connections on Learning*, 2017.

Example:
    >>> model = InceptionResNetV2(weights=None, classes=10)  # doctest: +SKIP
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
from exburn.core.registry import register_builtin
from exburn.layers import (
    Activation,
    AveragePooling2D,
    Concatenate,
    Conv2D,
    MaxPooling2D,
)
from exburn.models import Model
from exburn.module.layer import Layer

__all__ = [
    "CustomScaleLayer",
    "InceptionResNetV2",
    "decode_predictions",
    "preprocess_input",
]

# Scale, repeats, and the branches: filters and kernel of each convolution.
_BLOCKS = {
    "block35": (
        0.17,
        10,
        (((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3))),
    ),
    "block17": (
        0.1,
        20,
        (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1)))),
    ),
    "block8": (
        0.2,
        9,
        (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1)))),
    ),
}


@register_builtin
class CustomScaleLayer(Layer):
    """A sum whose second part is scaled: x + scale · y.

    Args:
        scale: The factor.
        **kwargs: Of ``Layer``.

    Shape:
        [x, y]: of one shape → the same

    Example:
        >>> import numpy as np
        >>> CustomScaleLayer(0.5)([np.ones(2, "f"), np.ones(2, "f")]).tolist()
        [1.5, 1.5]

    Source: ``keras.applications.inception_resnet_v2``, whose files have this class.
    """

    def __init__(self, scale: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs):
        return inputs[0] + inputs[1] * self.scale

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"scale": self.scale}


def _conv(
    app: Application,
    x: Any,
    filters: int,
    kernel: Any,
    small: Any = (),
    name: str | None = None,
) -> Any:
    """A convolution, normalized and activated; ``small``: its stride, unpadded."""
    strides, padding = (small, "valid") if small else (1, "same")
    x = Conv2D(filters, kernel, strides, padding, use_bias=False, name=name)(x)
    x = app.norm(x, name and f"{name}_bn", scale=False)
    return Activation("relu", name=name and f"{name}_ac")(x)


def _chain(app: Application, x: Any, *steps: tuple) -> Any:
    for step in steps:
        x = _conv(app, x, *step)
    return x


def _join(app: Application, branches: list, name: str) -> Any:
    return Concatenate(axis=app.axis, name=name)(branches)


def _block(
    app: Application, x: Any, kind: str, number: int, scale: float, activation: Any
) -> Any:
    name = f"{kind}_{number}"
    branches = [_chain(app, x, *steps) for steps in _BLOCKS[kind][2]]
    y = _join(app, branches, f"{name}_mixed")
    y = Conv2D(app.channels(x), 1, padding="same", name=f"{name}_conv")(y)
    x = CustomScaleLayer(scale)([x, y])
    return Activation(activation, name=f"{name}_ac")(x) if activation else x


def _stage(app: Application, x: Any, kind: str) -> Any:
    scale, repeats, _ = _BLOCKS[kind]
    for number in range(1, repeats + 1):
        x = _block(app, x, kind, number, scale, "relu")
    return x


def _build(arguments: tuple, pretrained: PretrainedFiles) -> Model:
    app = Application(
        *arguments, size=299, smallest=75, pretrained=pretrained, scaling="tf"
    )
    x = _chain(app, app.input, (32, 3, 2), (32, 3, 1), (64, 3))
    x = _chain(app, MaxPooling2D(3, strides=2)(x), (80, 1, 1), (192, 3, 1))
    x = MaxPooling2D(3, strides=2)(x)
    branches = [
        _chain(app, x, (96, 1)),
        _chain(app, x, (48, 1), (64, 5)),
        _chain(app, x, (64, 1), (96, 3), (96, 3)),
        _chain(app, AveragePooling2D(3, strides=1, padding="same")(x), (64, 1)),
    ]
    x = _stage(app, _join(app, branches, "mixed_5b"), "block35")
    branches = [
        _chain(app, x, (384, 3, 2)),
        _chain(app, x, (256, 1), (256, 3), (384, 3, 2)),
        MaxPooling2D(3, strides=2)(x),
    ]
    x = _stage(app, _join(app, branches, "mixed_6a"), "block17")
    branches = [
        _chain(app, x, (256, 1), (384, 3, 2)),
        _chain(app, x, (256, 1), (288, 3, 2)),
        _chain(app, x, (256, 1), (288, 3), (320, 3, 2)),
        MaxPooling2D(3, strides=2)(x),
    ]
    x = _stage(app, _join(app, branches, "mixed_7a"), "block8")
    x = _block(app, x, "block8", 10, 1.0, None)
    return app.end(_conv(app, x, 1536, 1, name="conv_7b"), named=False)


InceptionResNetV2 = variant(
    _build,
    "InceptionResNetV2",
    "inception_resnet_v2",
    "The Inception network with shortcuts.\n\n"
    "Source: Szegedy et al., *Inception-v4, Inception-ResNet and the Impact of\n"
    "Residual Connections on Learning*, 2017.",
    pretrained=kernels(
        "inception_resnet_v2/inception_resnet_v2",
        "e693bd0210a403b3192acc6073ad2e96",
        "d19885ff4a710c122648d3b5c3b684e4",
    ),
)

preprocess_input = preprocessing("tf")
