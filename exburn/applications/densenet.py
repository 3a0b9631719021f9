"""Networks in which every block sees the outputs of all before it.

Source: Huang et al., *Densely Connected Convolutional Networks*, 2017.

Example:
    >>> model = DenseNet121(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from exburn.applications.application import (
    Application,
    Architecture,
    PretrainedFiles,
    kernels,
    preprocessing,
    variant,
)
from exburn.applications.imagenet_utils import decode_predictions
from exburn.layers import (
    Activation,
    AveragePooling2D,
    Concatenate,
    Conv2D,
    MaxPooling2D,
    ZeroPadding2D,
)
from exburn.models import Model

__all__ = [
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
    "decode_predictions",
    "preprocess_input",
]

_GROWTH = 32


def _activate(app: Application, x: Any, norm: str, relu: str) -> Any:
    x = app.norm(x, norm, epsilon=1.001e-5)
    return Activation("relu", name=relu)(x)


def _conv(x: Any, filters: int, kernel: int, name: str) -> Any:
    return Conv2D(filters, kernel, padding="same", use_bias=False, name=name)(x)


def _block(app: Application, x: Any, name: str) -> Any:
    y = _activate(app, x, f"{name}_0_bn", f"{name}_0_relu")
    y = _conv(y, 4 * _GROWTH, 1, f"{name}_1_conv")
    y = _activate(app, y, f"{name}_1_bn", f"{name}_1_relu")
    y = _conv(y, _GROWTH, 3, f"{name}_2_conv")
    return Concatenate(axis=app.axis, name=f"{name}_concat")([x, y])


def _build(
    arguments: tuple, depths: tuple[int, ...], pretrained: PretrainedFiles
) -> Model:
    app = Application(
        *arguments, size=224, pretrained=pretrained, scaling="torch", channels_last=True
    )
    x = ZeroPadding2D(3)(app.input)
    x = Conv2D(64, 7, strides=2, use_bias=False, name="conv1_conv")(x)
    x = ZeroPadding2D(1)(_activate(app, x, "conv1_bn", "conv1_relu"))
    x = MaxPooling2D(3, strides=2, name="pool1")(x)
    for stage, depth in enumerate(depths, 2):
        for number in range(1, depth + 1):
            x = _block(app, x, f"conv{stage}_block{number}")
        if stage < 5:
            name = f"pool{stage}"
            x = _activate(app, x, f"{name}_bn", f"{name}_relu")
            x = _conv(x, app.channels(x) // 2, 1, f"{name}_conv")
            x = AveragePooling2D(2, strides=2, name=f"{name}_pool")(x)
    return app.end(_activate(app, x, "bn", "relu"))


def _member(layers: int, *depths: int, digests: tuple[str, str]) -> Architecture:
    name = f"densenet{layers}"
    return variant(
        _build,
        f"DenseNet{layers}",
        name,
        f"The densely connected network with {layers} layers.\n\n"
        "Source: Huang et al., *Densely Connected Convolutional Networks*, 2017.",
        depths=depths,
        pretrained=kernels(f"densenet/{name}", *digests),
    )


DenseNet121 = _member(
    *(121, 6, 12, 24, 16),
    digests=("9d60b8095a5708f2dcce2bca79d332c7", "30ee3e1110167f948a6b9946edeeb738"),
)
DenseNet169 = _member(
    *(169, 6, 12, 32, 32),
    digests=("d699b8f76981ab1b30698df4c175e90b", "b8c4d4c20dd625c148057b9ff1c1176b"),
)
DenseNet201 = _member(
    *(201, 6, 12, 48, 32),
    digests=("1ceb130c1ea1b78c3bf6114dbdfd8807", "c13680b51ded0fb44dff2d8f86ac8bb1"),
)

preprocess_input = preprocessing("torch")
