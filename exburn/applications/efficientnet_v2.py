"""EfficientNets whose first stages have whole convolutions.

Source: Tan & Le, *EfficientNetV2: Smaller Models and Faster Training*, 2021.

Example:
    >>> model = EfficientNetV2B0(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

import math
from typing import Any

from exburn.applications.application import (
    Application,
    PretrainedFiles,
    describe,
    preprocessing,
)
from exburn.applications.efficientnet import (
    classify,
    conv,
    depthwise,
    excite,
    round_filters,
    shortcut,
)
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.scaling import DEVIATION, MEAN, Scaling
from exburn.layers import Activation, Normalization, Rescaling
from exburn.models import Model

__all__ = [
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "decode_predictions",
    "preprocess_input",
]

# Repeats, filters in and out, expansion, stride, whether the convolution is whole.
_STAGES = {
    "b": (
        (1, 32, 16, 1, 1, True),
        (2, 16, 32, 4, 2, True),
        (2, 32, 48, 4, 2, True),
        (3, 48, 96, 4, 2, False),
        (5, 96, 112, 6, 1, False),
        (8, 112, 192, 6, 2, False),
    ),
    "s": (
        (2, 24, 24, 1, 1, True),
        (4, 24, 48, 4, 2, True),
        (4, 48, 64, 4, 2, True),
        (6, 64, 128, 4, 2, False),
        (9, 128, 160, 6, 1, False),
        (15, 160, 256, 6, 2, False),
    ),
    "m": (
        (3, 24, 24, 1, 1, True),
        (5, 24, 48, 4, 2, True),
        (5, 48, 80, 4, 2, True),
        (7, 80, 160, 4, 2, False),
        (14, 160, 176, 6, 1, False),
        (18, 176, 304, 6, 2, False),
        (5, 304, 512, 6, 1, False),
    ),
    "l": (
        (4, 32, 32, 1, 1, True),
        (7, 32, 64, 4, 2, True),
        (7, 64, 96, 4, 2, True),
        (10, 96, 192, 4, 2, False),
        (19, 192, 224, 6, 1, False),
        (25, 224, 384, 6, 2, False),
        (7, 384, 640, 6, 1, False),
    ),
}
_SE_RATIO, _DROP_RATE, _MOMENTUM = 0.25, 0.2, 0.9


def _norm(app: Application, x: Any, name: str) -> Any:
    return app.norm(x, name, momentum=_MOMENTUM)


def _block(app, x, whole, filters_in, filters_out, expansion, stride, rate, name):
    """An inverted bottleneck; a whole convolution does its two first steps at once."""
    start, filters = x, filters_in * expansion
    if expansion != 1:
        kernel, steps = (3, stride) if whole else (1, 1)
        x = conv(filters, kernel, strides=steps, name=f"{name}expand_conv")(x)
        x = _norm(app, x, f"{name}expand_bn")
        x = Activation("swish", name=f"{name}expand_activation")(x)
    if not whole:
        x = depthwise(3, strides=stride, padding="same", name=f"{name}dwconv2")(x)
        x = _norm(app, x, f"{name}bn")
        x = Activation("swish", name=f"{name}activation")(x)
        x = excite(app, x, max(1, int(filters_in * _SE_RATIO)), name)
    kernel, steps = (3, stride) if whole and expansion == 1 else (1, 1)
    x = conv(filters_out, kernel, strides=steps, name=f"{name}project_conv")(x)
    x = _norm(app, x, f"{name}project_bn")
    if whole and expansion == 1:
        x = Activation("swish", name=f"{name}project_activation")(x)
    if stride == 1 and filters_in == filters_out:
        x = shortcut(x, start, rate, name)
    return x


def _prepare(app: Application, kind: str, included: bool) -> Any:
    """The images in the range that the network was trained on."""
    centred = kind != "b" or app.shape[app.axis - 1] != 3
    if not included:
        channels = app.channels(app.input)
        half = Scaling((128 / 255,) * channels, (128 / 255,) * channels)
        app.scaling = half if centred else "torch"
        return app.input
    if centred:
        return Rescaling(1 / 128, offset=-1)(app.input)
    variance = [value**2 for value in DEVIATION]
    x = Rescaling(1 / 255)(app.input)
    return Normalization(mean=list(MEAN), variance=variance, axis=app.axis)(x)


def _build(
    arguments: tuple,
    include_preprocessing: bool,
    kind: str,
    width: float,
    depth: float,
    size: int,
    pretrained: PretrainedFiles,
) -> Model:
    app = Application(*arguments, size=size, pretrained=pretrained, scaling=None)
    stages = _STAGES[kind]
    x = _prepare(app, kind, include_preprocessing)
    x = conv(round_filters(stages[0][1] * width), 3, strides=2, name="stem_conv")(x)
    x = Activation("swish", name="stem_activation")(_norm(app, x, "stem_bn"))
    done, blocks = 0, sum(stage[0] for stage in stages)
    for number, stage in enumerate(stages, 1):
        repeats, before, after, expansion, stride, whole = stage
        for i in range(math.ceil(depth * repeats)):
            x = _block(
                app,
                x,
                whole,
                round_filters((after if i else before) * width),
                round_filters(after * width),
                expansion,
                1 if i else stride,
                _DROP_RATE * done / blocks,
                f"block{number}{chr(ord('a') + i)}_",
            )
            done += 1
    x = conv(round_filters(1280 * width), name="top_conv")(x)
    x = Activation("swish", name="top_activation")(_norm(app, x, "top_bn"))
    return classify(app, x, 0.2)


def _scale(label: str, *settings: float, digests: tuple[str, str]):
    function, default = f"EfficientNetV2{label}", f"efficientnetv2-{label.lower()}"
    width, depth, size = settings
    start = f"tensorflow/keras-applications/efficientnet_v2/{default}"
    pretrained = PretrainedFiles(f"{start}.h5", f"{start}_notop.h5", *digests)

    def make(
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        include_preprocessing: bool = True,
        name: str = default,
    ) -> Model:
        return _build(
            (
                function,
                include_top,
                weights,
                input_tensor,
                input_shape,
                pooling,
                classes,
                classifier_activation,
                name,
            ),
            include_preprocessing,
            label[0].lower(),
            width,
            depth,
            int(size),
            pretrained,
        )

    about = (
        f"The second EfficientNet for images of {size} × {size}.\n\n"
        "Source: Tan & Le, *EfficientNetV2: Smaller Models and Faster Training*, 2021."
    )
    return describe(make, function, about, __name__)


# Width, depth, size of the images.
EfficientNetV2B0 = _scale(
    "B0",
    *(1.0, 1.0, 224),
    digests=("21ecbf6da12460d5c40bb2f29ceb2188", "893217f2bb855e2983157299931e43ff"),
)
EfficientNetV2B1 = _scale(
    "B1",
    *(1.0, 1.1, 240),
    digests=("069f0534ff22adf035c89e2d9547a9dc", "0e80663031ca32d657f9caa404b6ec37"),
)
EfficientNetV2B2 = _scale(
    "B2",
    *(1.1, 1.2, 260),
    digests=("424e49f28180edbde1e94797771950a7", "1dfe2e7a5d45b6632553a8961ea609eb"),
)
EfficientNetV2B3 = _scale(
    "B3",
    *(1.2, 1.4, 300),
    digests=("1f1fc43bd98a6e4fd8fdfd551e02c7a0", "f6abf7b5849ac99a89b50dd3fd532856"),
)
EfficientNetV2S = _scale(
    "S",
    *(1.0, 1.0, 384),
    digests=("e1d88a8495beba45748fedd0cecbe016", "af0682fb74e8c54910f2d4393339c070"),
)
EfficientNetV2M = _scale(
    "M",
    *(1.0, 1.0, 480),
    digests=("a3bf6aa3276309f4fc6a34aa114c95cd", "1b8dc055df72dde80d614482840fe342"),
)
EfficientNetV2L = _scale(
    "L",
    *(1.0, 1.0, 480),
    digests=("27e6d408b53c7ebc868fefa357689935", "b0b66b5c863aef5b46e8608fe1711615"),
)

preprocess_input = preprocessing(None)
