"""Convolutions of each channel by itself, then of 1 × 1: networks for small devices.

Source: Howard et al., *MobileNets: Efficient Convolutional Neural Networks for Mobile
Vision Applications*, 2017.
"""

from __future__ import annotations

from typing import Any

from exburn import config
from exburn.applications.application import Application, PretrainedFiles, preprocessing
from exburn.applications.imagenet_utils import decode_predictions
from exburn.core.checks import check_count, check_number
from exburn.errors.boundary import api_boundary
from exburn.layers import (
    Activation,
    Conv2D,
    DepthwiseConv2D,
    Dropout,
    GlobalAveragePooling2D,
    ReLU,
    Reshape,
    ZeroPadding2D,
)
from exburn.models import Model

__all__ = ["MobileNet", "decode_predictions", "preprocess_input"]

# Filters and stride of each block.
_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
SIZES = (128, 160, 192, 224)
_ALPHAS = {1.0: "1_0", 0.75: "7_5", 0.5: "5_0", 0.25: "2_5"}


def size_of(shape: Any, tensor: Any, sizes: tuple[int, ...]) -> int:
    """The size of square images, where there are trained weights for it; else 224."""
    if shape is None and tensor is not None:
        shape = getattr(tensor, "shape", (None,) * 4)[1:]
    if shape is None or len(shape) != 3:
        return 224
    first = config.image_data_format() == "channels_first"
    rows, columns = shape[1:] if first else shape[:2]
    return rows if rows == columns and rows in sizes else 224


def label_of(app: Application) -> Any:
    """The height of the images, as the models' names have it."""
    return app.shape[0 if app.axis == 3 else 1]


def _block(app: Application, x: Any, filters: int, stride: int, depth: int, number):
    if stride > 1:
        x = ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{number}")(x)
    x = DepthwiseConv2D(
        3,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        depth_multiplier=depth,
        use_bias=False,
        name=f"conv_dw_{number}",
    )(x)
    x = app.norm(x, f"conv_dw_{number}_bn")
    x = ReLU(6.0, name=f"conv_dw_{number}_relu")(x)
    layer = Conv2D(filters, 1, padding="same", use_bias=False, name=f"conv_pw_{number}")
    x = app.norm(layer(x), f"conv_pw_{number}_bn")
    return ReLU(6.0, name=f"conv_pw_{number}_relu")(x)


@api_boundary
def MobileNet(
    input_shape: Any = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 1e-3,
    include_top: bool = True,
    weights: Any = "imagenet",
    input_tensor: Any = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any = "softmax",
    name: str | None = None,
) -> Model:
    """The first MobileNet.

    Args:
        input_shape, include_top, weights, input_tensor, pooling, classes,
            classifier_activation, name: As of ``ResNet50``.
        alpha: Factor of all widths. ImageNet's weights: 0.25, 0.5, 0.75 or 1.
        depth_multiplier: Outputs of each channel's convolution. ImageNet's: 1.
        dropout: Rate before the classifier.

    Raises:
        ArgumentError, ShapeError, MissingFileError, DataError: As of ``ResNet50``.

    Example:
        >>> MobileNet((32, 32, 3), 0.25, weights=None, include_top=False).output_shape
        (None, 1, 1, 256)

    Source: Howard et al., *MobileNets: Efficient Convolutional Neural Networks for
    Mobile Vision Applications*, 2017.
    """
    op = "MobileNet"
    alpha = check_number(op, "alpha", alpha, open_low=True)
    check_count(op, "depth_multiplier", depth_multiplier)
    size = size_of(input_shape, input_tensor, SIZES)
    files = None
    if alpha in _ALPHAS and depth_multiplier == 1:
        start = "tensorflow/keras-applications/mobilenet/mobilenet"
        start = f"{start}_{_ALPHAS[alpha]}_{size}_tf"
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
        app.name = f"mobilenet_{alpha:0.2f}_{label_of(app)}"
    x = Conv2D(
        int(32 * alpha), 3, strides=2, padding="same", use_bias=False, name="conv1"
    )(app.input)
    x = ReLU(6.0, name="conv1_relu")(app.norm(x, "conv1_bn"))
    for number, (filters, stride) in enumerate(_BLOCKS, 1):
        x = _block(app, x, int(filters * alpha), stride, depth_multiplier, number)
    if not app.include_top:
        return app.finish(app.pool(x, named=False))
    x = GlobalAveragePooling2D(keepdims=True)(x)
    x = Dropout(dropout, name="dropout")(x)
    x = Conv2D(app.classes, 1, padding="same", name="conv_preds")(x)
    x = Reshape((app.classes,), name="reshape_2")(x)
    return app.finish(Activation(app.activation, name="predictions")(x))


preprocess_input = preprocessing("tf")
