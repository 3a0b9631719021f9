"""MobileNets that a search has shaped, with hard swish and weighted channels.

Source: Howard et al., *Searching for MobileNetV3*, 2019.

Example:
    >>> model = MobileNetV3Small(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from exburn.applications.application import (
    Application,
    PretrainedFiles,
    describe,
    preprocessing,
)
from exburn.applications.efficientnet import round_filters
from exburn.applications.imagenet_utils import decode_predictions
from exburn.core.checks import check_number
from exburn.layers import (
    Activation,
    Add,
    Conv2D,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAveragePooling2D,
    Multiply,
    ReLU,
    Rescaling,
    ZeroPadding2D,
)
from exburn.models import Model

__all__ = [
    "MobileNetV3Large",
    "MobileNetV3Small",
    "decode_predictions",
    "preprocess_input",
]

# Expansion, filters, whether the kernel is large, stride, whether channels are
# weighted, whether the activation is hard swish; a minimal network has none of these.
_SMALL = (
    (1, 16, False, 2, True, False),
    (72 / 16, 24, False, 2, False, False),
    (88 / 24, 24, False, 1, False, False),
    (4, 40, True, 2, True, True),
    (6, 40, True, 1, True, True),
    (6, 40, True, 1, True, True),
    (3, 48, True, 1, True, True),
    (3, 48, True, 1, True, True),
    (6, 96, True, 2, True, True),
    (6, 96, True, 1, True, True),
    (6, 96, True, 1, True, True),
)
_LARGE = (
    (1, 16, False, 1, False, False),
    (4, 24, False, 2, False, False),
    (3, 24, False, 1, False, False),
    (3, 40, True, 2, True, False),
    (3, 40, True, 1, True, False),
    (3, 40, True, 1, True, False),
    (6, 80, False, 2, False, True),
    (2.5, 80, False, 1, False, True),
    (2.3, 80, False, 1, False, True),
    (2.3, 80, False, 1, False, True),
    (6, 112, False, 1, True, True),
    (6, 112, False, 1, True, True),
    (6, 160, True, 2, True, True),
    (6, 160, True, 1, True, True),
    (6, 160, True, 1, True, True),
)
_DIGESTS = {
    "large_224_0.75": (
        "765b44a33ad4005b3ac83185abf1d0eb",
        "40af19a13ebea4e2ee0c676887f69a2e",
    ),
    "large_224_1.0": (
        "59e551e166be033d707958cf9e29a6a7",
        "07fb09a5933dd0c8eaafa16978110389",
    ),
    "large_minimalistic_224_1.0": (
        "675e7b876c45c57e9e63e6d90a36599c",
        "ec5221f64a2f6d1ef965a614bdae7973",
    ),
    "small_224_0.75": (
        "cb65d4e5be93758266aa0a7f2c6708b7",
        "ebdb5cc8e0b497cd13a7c275d475c819",
    ),
    "small_224_1.0": (
        "8768d4c2e7dee89b9d02b2d03d65d862",
        "d3e8ec802a04aa4fc771ee12a9a9b836",
    ),
    "small_minimalistic_224_1.0": (
        "99cd97fb2fcdad2bf028eb838de69e37",
        "cde8136e733e811080d9fcd8a252f7e4",
    ),
}


def _depth(number: float) -> int:
    return round_filters(number, at_least=0.9)


def _norm(app: Application, x: Any, name: str) -> Any:
    return app.norm(x, name, momentum=0.999)


def _conv(filters: int, name: str, **options: Any) -> Conv2D:
    return Conv2D(filters, 1, padding="same", name=name, **options)


def _activate(x: Any, hard: bool) -> Any:
    return Activation("hard_swish")(x) if hard else ReLU()(x)


def _excite(x: Any, filters: int, name: str) -> Any:
    """Channels weighted by what all places together say.

    Source: Hu et al., *Squeeze-and-Excitation Networks*, 2018.
    """
    name = f"{name}squeeze_excite"
    y = GlobalAveragePooling2D(keepdims=True, name=f"{name}_avg_pool")(x)
    y = _conv(_depth(filters * 0.25), f"{name}_conv")(y)
    y = _conv(filters, f"{name}_conv_1")(ReLU(name=f"{name}_relu")(y))
    y = ReLU(6.0)(y + 3.0) * (1 / 6)  # a hard sigmoid
    return Multiply(name=f"{name}_mul")([x, y])


def _block(app, x, expansion, filters, kernel, stride, weighs, hard, number):
    start, channels = x, app.channels(x)
    wide = _depth(channels * expansion)
    name = f"expanded_conv_{number}_" if number else "expanded_conv_"
    if number:
        x = _conv(wide, f"{name}expand", use_bias=False)(x)
        x = _activate(_norm(app, x, f"{name}expand_bn"), hard)
    if stride > 1:
        x = ZeroPadding2D(app.same_pad(x, kernel), name=f"{name}depthwise_pad")(x)
    x = DepthwiseConv2D(
        kernel,
        strides=stride,
        padding="same" if stride == 1 else "valid",
        use_bias=False,
        name=f"{name}depthwise",
    )(x)
    x = _activate(_norm(app, x, f"{name}depthwise_bn"), hard)
    if weighs:
        x = _excite(x, wide, name)
    x = _conv(filters, f"{name}project", use_bias=False)(x)
    x = _norm(app, x, f"{name}project_bn")
    if stride == 1 and channels == filters:
        x = Add(name=f"{name}add")([start, x])
    return x


def _build(
    op: str,
    kind: str,
    input_shape: Any,
    alpha: float,
    minimalistic: bool,
    include_top: bool,
    weights: Any,
    input_tensor: Any,
    classes: int,
    pooling: Any,
    dropout_rate: float,
    classifier_activation: Any,
    include_preprocessing: bool,
    name: str | None,
) -> Model:
    alpha = check_number(op, "alpha", alpha, open_low=True)
    files = None
    label = f"{kind}{'_minimalistic' if minimalistic else ''}_224_{float(alpha)}"
    if label in _DIGESTS:
        start = "tensorflow/keras-applications/mobilenet_v3/weights_mobilenet_v3"
        start = f"{start}_{label}_float"
        files = PretrainedFiles(
            f"{start}.h5", f"{start}_no_top_v2.h5", *_DIGESTS[label]
        )
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
        size=224,
        pretrained=files,
        scaling=None if include_preprocessing else "tf",
        fixed=False,
    )
    x = app.input
    if include_preprocessing:
        x = Rescaling(1 / 127.5, offset=-1.0)(x)
    x = Conv2D(16, 3, strides=2, padding="same", use_bias=False, name="conv")(x)
    x = _activate(_norm(app, x, "conv_bn"), not minimalistic)
    full = not minimalistic
    for number, block in enumerate(_SMALL if kind == "small" else _LARGE):
        expansion, filters, large, stride, weighs, hard = block
        kernel = 5 if large and full else 3
        filters = _depth(filters * alpha)
        flags = weighs and full, hard and full
        x = _block(app, x, expansion, filters, kernel, stride, *flags, number)
    x = _conv(_depth(app.channels(x) * 6), "conv_1", use_bias=False)(x)
    x = _activate(_norm(app, x, "conv_1_bn"), full)
    if not app.include_top:
        return app.finish(app.pool(x))
    last = 1024 if kind == "small" else 1280
    x = GlobalAveragePooling2D(keepdims=True)(x)
    x = _conv(_depth(last * alpha) if alpha > 1 else last, "conv_2")(x)
    x = _activate(x, full)
    if dropout_rate > 0:
        x = Dropout(dropout_rate)(x)
    x = Flatten()(_conv(app.classes, "logits")(x))
    return app.finish(Activation(app.activation, name="predictions")(x))


def _member(kind: str, about: str):
    function = f"MobileNetV3{kind.title()}"

    def make(
        input_shape: Any = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        classes: int = 1000,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: Any = "softmax",
        include_preprocessing: bool = True,
        name: str = function,
    ) -> Model:
        return _build(
            function,
            kind,
            input_shape,
            alpha,
            minimalistic,
            include_top,
            weights,
            input_tensor,
            classes,
            pooling,
            dropout_rate,
            classifier_activation,
            include_preprocessing,
            name,
        )

    return describe(make, function, about + _SOURCE, __name__, **_OWN)


_OWN = {
    "alpha": "Factor of all widths; ImageNet's weights are for 0.75 and 1.",
    "minimalistic": """Whether hard swish, large kernels and weighted channels are left
        out.""",
    "dropout_rate": "Share that is dropped before the classifier.",
}
_SOURCE = "\n\nSource: Howard et al., *Searching for MobileNetV3*, 2019."

MobileNetV3Small = _member("small", "The third MobileNet, for few resources.")
MobileNetV3Large = _member("large", "The third MobileNet, for more resources.")

preprocess_input = preprocessing(None)
