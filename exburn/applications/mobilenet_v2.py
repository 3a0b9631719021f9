"""Inverted bottlenecks: narrow between blocks, wide within them.

Source: Sandler et al., *MobileNetV2: Inverted Residuals and Linear Bottlenecks*, 2018.
"""

from __future__ import annotations

from typing import Any

from exburn.applications.application import Application, PretrainedFiles, preprocessing
from exburn.applications.efficientnet import round_filters
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.mobilenet import SIZES, label_of, size_of
from exburn.core.checks import check_number
from exburn.errors.boundary import api_boundary
from exburn.layers import Add, Conv2D, DepthwiseConv2D, ReLU, ZeroPadding2D
from exburn.models import Model

__all__ = ["MobileNetV2", "decode_predictions", "preprocess_input"]

# Repeats, filters and the stride of the first.
_STAGES = (
    *((1, 16, 1), (2, 24, 2), (3, 32, 2), (4, 64, 2)),
    *((3, 96, 1), (3, 160, 2), (1, 320, 1)),
)
_SIZES = (96, *SIZES)
_ALPHAS = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)


def _norm(app: Application, x: Any, name: str) -> Any:
    return app.norm(x, name, momentum=0.999)


def _block(app: Application, x: Any, filters: int, stride: int, number: int) -> Any:
    start, channels = x, app.channels(x)
    name = f"block_{number}_" if number else "expanded_conv_"
    if number:
        layer = Conv2D(
            6 * channels, 1, padding="same", use_bias=False, name=f"{name}expand"
        )
        x = _norm(app, layer(x), f"{name}expand_BN")
        x = ReLU(6.0, name=f"{name}expand_relu")(x)
    if stride > 1:
        x = ZeroPadding2D(app.same_pad(x, 3), name=f"{name}pad")(x)
    x = DepthwiseConv2D(
        3,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        name=f"{name}depthwise",
    )(x)
    x = _norm(app, x, f"{name}depthwise_BN")
    x = ReLU(6.0, name=f"{name}depthwise_relu")(x)
    layer = Conv2D(filters, 1, padding="same", use_bias=False, name=f"{name}project")
    x = _norm(app, layer(x), f"{name}project_BN")
    if stride == 1 and channels == filters:
        x = Add(name=f"{name}add")([start, x])
    return x


@api_boundary
def MobileNetV2(
    input_shape: Any = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Model:
    """The second MobileNet.

    Args:
        input_shape, include_top, weights, input_tensor, pooling, classes,
            classifier_activation, name: As of ``ResNet50``.
        alpha: Factor of all widths. ImageNet's weights: 0.35, 0.5, 0.75, 1, 1.3 or 1.4.

    Raises:
        ArgumentError, ShapeError, MissingFileError, DataError: As of ``ResNet50``.

    Example:
        >>> MobileNetV2((32, 32, 3), 0.35, weights=None, include_top=False).output_shape
        (None, 1, 1, 1280)

    Source: Sandler et al., *MobileNetV2: Inverted Residuals and Linear Bottlenecks*,
    2018.
    """
    op = "MobileNetV2"
    alpha = check_number(op, "alpha", alpha, open_low=True)
    size = size_of(input_shape, input_tensor, _SIZES)
    files = None
    if alpha in _ALPHAS:
        start = "tensorflow/keras-applications/mobilenet_v2/mobilenet_v2"
        start = f"{start}_weights_tf_dim_ordering_tf_kernels_{float(alpha)}_{size}"
        files = PretrainedFiles(f"{start}.h5", f"{start}_no_top.h5")
    app = Application(
        op,
        include_top,
        weights,
        input_tensor,
        input_shape,
        pooling,
        classes,
        classifier_activation,
        name,
        size=size,
        pretrained=files,
        scaling="tf",
    )
    if name is None:
        app.name = f"mobilenetv2_{alpha:0.2f}_{label_of(app)}"
    x = Conv2D(
        round_filters(32 * alpha, at_least=0.9),
        3,
        strides=2,
        padding="same",
        use_bias=False,
        name="Conv1",
    )(app.input)
    x = ReLU(6.0, name="Conv1_relu")(_norm(app, x, "bn_Conv1"))
    number = 0
    for repeats, filters, stride in _STAGES:
        filters = round_filters(int(filters * alpha), at_least=0.9)
        for i in range(repeats):
            x = _block(app, x, filters, 1 if i else stride, number)
            number += 1
    last = round_filters(1280 * alpha, at_least=0.9) if alpha > 1 else 1280
    x = Conv2D(last, 1, use_bias=False, name="Conv_1")(x)
    x = ReLU(6.0, name="out_relu")(_norm(app, x, "Conv_1_bn"))
    return app.end(x, pooled=None, named=False)


preprocess_input = preprocessing("tf")
