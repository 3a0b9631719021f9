"""Inverted bottlenecks scaled in width, depth and resolution together.

Source: Tan & Le, *EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks*, 2019.

Example:
    >>> model = EfficientNetB0(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

import math
from typing import Any

from exburn.applications.application import (
    Application,
    Architecture,
    PretrainedFiles,
    preprocessing,
    variant,
)
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.scaling import DEVIATION
from exburn.initializers import VarianceScaling
from exburn.layers import (
    Activation,
    Conv2D,
    DepthwiseConv2D,
    Dropout,
    GlobalAveragePooling2D,
    Normalization,
    Rescaling,
    Reshape,
    ZeroPadding2D,
    add,
    multiply,
)
from exburn.models import Model

__all__ = [
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "decode_predictions",
    "preprocess_input",
]

# Kernel, repeats, filters in and out, expansion, stride.
_STAGES = (
    (3, 1, 32, 16, 1, 1),
    (3, 2, 16, 24, 6, 2),
    (5, 2, 24, 40, 6, 2),
    (3, 3, 40, 80, 6, 2),
    (5, 3, 80, 112, 6, 1),
    (5, 4, 112, 192, 6, 2),
    (3, 1, 192, 320, 6, 1),
)
_SE_RATIO, _DROP_RATE = 0.25, 0.2


def conv(filters: int, kernel: int = 1, **options: Any) -> Conv2D:
    """A convolution with the initial weights of these networks."""
    start = VarianceScaling(2.0, "fan_out", "truncated_normal")
    options = {"padding": "same", "use_bias": False} | options
    return Conv2D(filters, kernel, kernel_initializer=start, **options)


def depthwise(kernel: int, **options: Any) -> DepthwiseConv2D:
    """The same, for each channel by itself."""
    start = VarianceScaling(2.0, "fan_out", "truncated_normal")
    return DepthwiseConv2D(
        kernel, depthwise_initializer=start, use_bias=False, **options
    )


def excite(app: Application, x: Any, filters: int, name: str) -> Any:
    """Channels weighted by what all places together say.

    Source: Hu et al., *Squeeze-and-Excitation Networks*, 2018.
    """
    channels = app.channels(x)
    shape = (1, 1, channels) if app.axis == 3 else (channels, 1, 1)
    weight = GlobalAveragePooling2D(name=f"{name}se_squeeze")(x)
    weight = Reshape(shape, name=f"{name}se_reshape")(weight)
    for label, size, activation in (
        ("se_reduce", filters, "swish"),
        ("se_expand", channels, "sigmoid"),
    ):
        layer = conv(size, use_bias=True, activation=activation, name=f"{name}{label}")
        weight = layer(weight)
    return multiply([x, weight], name=f"{name}se_excite")


def shortcut(x: Any, start: Any, rate: float, name: str) -> Any:
    """The sum with the block's input; in training, whole images drop the block.

    Source: Huang et al., *Deep Networks with Stochastic Depth*, 2016.
    """
    if rate > 0:
        x = Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{name}drop")(x)
    return add([x, start], name=f"{name}add")


def classify(app: Application, x: Any, rate: float) -> Model:
    """The model that ends here: a mean, dropout and a classifier, or no top."""
    if not app.include_top:
        return app.finish(app.pool(x))
    x = GlobalAveragePooling2D(name="avg_pool")(x)
    if rate > 0:
        x = Dropout(rate, name="top_dropout")(x)
    start = VarianceScaling(1 / 3, "fan_out", "uniform")
    return app.finish(app.classify(x, kernel_initializer=start))


def round_filters(filters: float, *, at_least: float = 0.0) -> int:
    """A multiple of 8, near a number and no less than a share of it.

    Example:
        >>> round_filters(17.6), round_filters(11.9, at_least=0.9)
        (16, 16)
    """
    near = max(8, int(filters + 4) // 8 * 8)
    return near + 8 if near < at_least * filters else near


def _block(app, x, kernel, filters_in, filters_out, expansion, stride, rate, name):
    start = x
    if expansion != 1:
        x = conv(filters_in * expansion, name=f"{name}expand_conv")(x)
        x = app.norm(x, f"{name}expand_bn")
        x = Activation("swish", name=f"{name}expand_activation")(x)
    if stride == 2:
        x = ZeroPadding2D(app.same_pad(x, kernel), name=f"{name}dwconv_pad")(x)
    padding = "valid" if stride == 2 else "same"
    x = depthwise(kernel, strides=stride, padding=padding, name=f"{name}dwconv")(x)
    x = app.norm(x, f"{name}bn")
    x = Activation("swish", name=f"{name}activation")(x)
    x = excite(app, x, max(1, int(filters_in * _SE_RATIO)), name)
    x = conv(filters_out, name=f"{name}project_conv")(x)
    x = app.norm(x, f"{name}project_bn")
    if stride == 1 and filters_in == filters_out:
        x = shortcut(x, start, rate, name)
    return x


def _build(
    arguments: tuple,
    width: float,
    depth: float,
    size: int,
    dropout: float,
    pretrained: PretrainedFiles,
) -> Model:
    app = Application(*arguments, size=size, pretrained=pretrained, scaling=None)

    def filters(number: int) -> int:
        return round_filters(number * width, at_least=0.9)

    x = Normalization(axis=app.axis)(Rescaling(1 / 255)(app.input))
    if app.weights == "imagenet":  # what Keras' files were trained with
        x = Rescaling([1 / math.sqrt(value) for value in DEVIATION])(x)
    x = ZeroPadding2D(app.same_pad(x, 3), name="stem_conv_pad")(x)
    x = conv(filters(32), 3, strides=2, padding="valid", name="stem_conv")(x)
    x = Activation("swish", name="stem_activation")(app.norm(x, "stem_bn"))
    repeats = [math.ceil(depth * stage[1]) for stage in _STAGES]
    done = 0
    for number, (stage, times) in enumerate(zip(_STAGES, repeats, strict=True), 1):
        kernel, _, before, after, expansion, stride = stage
        for i in range(times):
            x = _block(
                app,
                x,
                kernel,
                filters(after if i else before),
                filters(after),
                expansion,
                1 if i else stride,
                _DROP_RATE * done / sum(repeats),
                f"block{number}{chr(ord('a') + i)}_",
            )
            done += 1
    x = app.norm(conv(filters(1280), name="top_conv")(x), "top_bn")
    return classify(app, Activation("swish", name="top_activation")(x), dropout)


def _scale(number: int, *settings: float, digests: tuple[str, str]) -> Architecture:
    width, depth, size, dropout = settings
    name = f"efficientnetb{number}"
    start = f"keras-applications/{name}"
    return variant(
        _build,
        f"EfficientNetB{number}",
        name,
        f"The EfficientNet for images of {size} × {size}.\n\n"
        "Source: Tan & Le, *EfficientNet: Rethinking Model Scaling for Convolutional\n"
        "Neural Networks*, 2019.",
        width=width,
        depth=depth,
        size=size,
        dropout=dropout,
        pretrained=PretrainedFiles(f"{start}.h5", f"{start}_notop.h5", *digests),
    )


# Width, depth, size of the images, dropout.
EfficientNetB0 = _scale(
    0,
    *(1.0, 1.0, 224, 0.2),
    digests=("902e53a9f72be733fc0bcb005b3ebbac", "50bc09e76180e00e4465e1a485ddc09d"),
)
EfficientNetB1 = _scale(
    1,
    *(1.0, 1.1, 240, 0.2),
    digests=("1d254153d4ab51201f1646940f018540", "74c4e6b3e1f6a1eea24c589628592432"),
)
EfficientNetB2 = _scale(
    2,
    *(1.1, 1.2, 260, 0.3),
    digests=("b15cce36ff4dcbd00b6dd88e7857a6ad", "111f8e2ac8aa800a7a99e3239f7bfb39"),
)
EfficientNetB3 = _scale(
    3,
    *(1.2, 1.4, 300, 0.3),
    digests=("ffd1fdc53d0ce67064dc6a9c7960ede0", "af6d107764bb5b1abb91932881670226"),
)
EfficientNetB4 = _scale(
    4,
    *(1.4, 1.8, 380, 0.4),
    digests=("18c95ad55216b8f92d7e70b3a046e2fc", "ebc24e6d6c33eaebbd558eafbeedf1ba"),
)
EfficientNetB5 = _scale(
    5,
    *(1.6, 2.2, 456, 0.4),
    digests=("ace28f2a6363774853a83a0b21b9421a", "38879255a25d3c92d5e44e04ae6cec6f"),
)
EfficientNetB6 = _scale(
    6,
    *(1.8, 2.6, 528, 0.5),
    digests=("165f6e37dce68623721b423839de8be5", "9ecce42647a20130c1f39a5d4cb75743"),
)
EfficientNetB7 = _scale(
    7,
    *(2.0, 3.1, 600, 0.5),
    digests=("8c03f828fec3ef71311cd463b6759d99", "cbcfe4450ddf6f3ad90b1b398090fe4a"),
)

preprocess_input = preprocessing(None)
