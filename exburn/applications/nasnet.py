"""Networks of two cells that a search has found.

Each cell is given the outputs of the two before it.

Source: Zoph et al., *Learning Transferable Architectures for Scalable Image
Recognition*, 2018.

Example:
    >>> model = NASNetMobile(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from exburn.applications.application import (
    Application,
    PretrainedFiles,
    describe,
    preprocessing,
)
from exburn.applications.imagenet_utils import decode_predictions
from exburn.errors import ShapeError
from exburn.layers import (
    Activation,
    AveragePooling2D,
    Conv2D,
    Cropping2D,
    GlobalAveragePooling2D,
    MaxPooling2D,
    SeparableConv2D,
    ZeroPadding2D,
    add,
    concatenate,
)
from exburn.models import Model

__all__ = ["NASNetLarge", "NASNetMobile", "decode_predictions", "preprocess_input"]


def _norm(app: Application, x: Any, name: str) -> Any:
    return app.norm(x, name, momentum=0.9997, epsilon=1e-3)


def _conv(x: Any, filters: int, name: str, kernel: int = 1, **options: Any) -> Any:
    options = {"padding": "same"} | options
    return Conv2D(
        filters,
        kernel,
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
        **options,
    )(x)


def _relu(x: Any, name: str | None = None) -> Any:
    return Activation("relu", name=name)(x)


def _separable(
    app: Application, x: Any, filters: int, kernel: int, name: str, stride: int = 1
) -> Any:
    """Two separable convolutions, the first of which has the stride."""
    x, padding = _relu(x), "same"
    if stride > 1:
        pad = app.same_pad(x, kernel)
        x, padding = ZeroPadding2D(pad, name=f"separable_conv_1_pad_{name}")(x), "valid"
    for number, steps in ((1, stride), (2, 1)):
        if number == 2:
            x, padding = _relu(x), "same"
        x = SeparableConv2D(
            filters,
            kernel,
            strides=steps,
            padding=padding,
            use_bias=False,
            name=f"separable_conv_{number}_{name}",
        )(x)
        x = _norm(app, x, f"separable_conv_{number}_bn_{name}")
    return x


def _adjust(app: Application, before: Any, x: Any, filters: int, name: str) -> Any:
    """The output of the cell before the last, in the last one's size and width."""
    if before is None:
        return x
    if before.shape[2] != x.shape[2]:
        before = _relu(before, f"adjust_relu_1_{name}")
        moved = ZeroPadding2D(((0, 1), (0, 1)))(before)
        moved = Cropping2D(((1, 0), (1, 0)))(moved)
        parts = []
        for number, part in enumerate((before, moved), 1):
            pool = f"adjust_avg_pool_{number}_{name}"
            part = AveragePooling2D(1, strides=2, name=pool)(part)
            parts.append(_conv(part, filters // 2, f"adjust_conv_{number}_{name}"))
        joined = concatenate(parts, axis=app.axis)
        return _norm(app, joined, f"adjust_bn_{name}")
    if app.channels(before) != filters:
        before = _conv(_relu(before), filters, f"adjust_conv_projection_{name}")
        return _norm(app, before, f"adjust_bn_{name}")
    return before


def _squeeze(app: Application, x: Any, filters: int, kind: str, name: str) -> Any:
    x = _conv(_relu(x), filters, f"{kind}_conv_1_{name}")
    return _norm(app, x, f"{kind}_bn_1_{name}")


def _normal(app: Application, x: Any, before: Any, filters: int, name: str) -> Any:
    """The cell that keeps the size."""

    def separable(x: Any, kernel: int, label: str) -> Any:
        return _separable(app, x, filters, kernel, f"normal_{label}_{name}")

    def mean(x: Any, label: str) -> Any:
        label = f"normal_{label}_{name}"
        return AveragePooling2D(3, strides=1, padding="same", name=label)(x)

    p = _adjust(app, before, x, filters, name)
    h = _squeeze(app, x, filters, "normal", name)
    pairs = (
        lambda: [separable(h, 5, "left1"), separable(p, 3, "right1")],
        lambda: [separable(p, 5, "left2"), separable(p, 3, "right2")],
        lambda: [mean(h, "left3"), p],
        lambda: [mean(p, "left4"), mean(p, "right4")],
        lambda: [separable(h, 3, "left5"), h],
    )
    sums = [
        add(pair(), name=f"normal_add_{number}_{name}")
        for number, pair in enumerate(pairs, 1)
    ]
    return concatenate([p, *sums], axis=app.axis, name=f"normal_concat_{name}")


def _reduction(app: Application, x: Any, before: Any, filters: int, name: str) -> Any:
    """The cell that halves the size."""

    def separable(x: Any, kernel: int, label: str, stride: int = 2) -> Any:
        name_ = f"reduction_{label}_{name}"
        return _separable(app, x, filters, kernel, name_, stride)

    def pool(layer: Any, x: Any, label: str, **options: Any) -> Any:
        options = {"strides": 2, "padding": "valid"} | options
        return layer(3, name=f"reduction_{label}_{name}", **options)(x)

    def total(parts: list, label: str) -> Any:
        return add(parts, name=f"reduction_{label}_{name}")

    p = _adjust(app, before, x, filters, name)
    h = _squeeze(app, x, filters, "reduction", name)
    h3 = ZeroPadding2D(app.same_pad(h, 3), name=f"reduction_pad_1_{name}")(h)
    x1 = total([separable(h, 5, "left1"), separable(p, 7, "right1")], "add_1")
    left = pool(MaxPooling2D, h3, "left2")
    x2 = total([left, separable(p, 7, "right2")], "add_2")
    left = pool(AveragePooling2D, h3, "left3")
    x3 = total([left, separable(p, 5, "right3")], "add3")
    x4 = pool(AveragePooling2D, x1, "left4", strides=1, padding="same")
    x4 = add([x2, x4])
    left = separable(x1, 3, "left4", stride=1)
    x5 = total([left, pool(MaxPooling2D, h3, "right5")], "add4")
    return concatenate([x2, x3, x4, x5], axis=app.axis, name=f"reduction_concat_{name}")


def _build(
    arguments: tuple,
    size: int,
    filters: int,
    repeats: int,
    stem: int,
    skips: bool,
    pretrained: PretrainedFiles,
) -> Model:
    app = Application(
        *arguments, size=size, pretrained=pretrained, scaling="tf", channels_last=True
    )
    if None in app.input.shape[1:3]:
        raise ShapeError(
            arguments[0],
            "the cells must know the size of the images, received input_shape="
            f"{tuple(app.input.shape[1:])}",
        )
    x = _conv(app.input, stem, "stem_conv1", 3, strides=2, padding="valid")
    x, before = _norm(app, x, "stem_bn1"), None
    for number, width in ((1, filters // 4), (2, filters // 2)):
        x, before = _reduction(app, x, before, width, f"stem_{number}"), x
    for stage in range(3):
        width, at = filters * 2**stage, stage * repeats
        if stage:
            smaller = _reduction(app, x, before, width, f"reduce_{at}")
            x, before = smaller, before if skips else x
            at += 1
        for number in range(at, at + repeats):
            x, before = _normal(app, x, before, width, f"{number}"), x
    x = _relu(x)
    if app.include_top:
        return app.finish(app.classify(GlobalAveragePooling2D()(x)))
    return app.finish(app.pool(x, named=False))


def _member(
    kind: str, size: int, digests: tuple[str, str], about: str, **settings: Any
):
    function, default = f"NASNet{kind.title()}", f"nasnet_{kind}"
    start = f"tensorflow/keras-applications/nasnet/NASNet-{kind}"
    settings["pretrained"] = PretrainedFiles(
        f"{start}.h5", f"{start}-no-top.h5", *digests
    )

    def make(
        input_shape: Any = None,
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str = default,
    ) -> Model:
        if kind == "mobile" and input_shape is None and input_tensor is None:
            input_shape = (size, size, 3)
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
            size,
            **settings,
        )

    about = (
        f"{about}\n\nSource: Zoph et al., *Learning Transferable Architectures for "
        "Scalable\nImage Recognition*, 2018."
    )
    return describe(make, function, about, __name__)


NASNetMobile = _member(
    "mobile",
    224,
    ("020fb642bf7360b370c678b08e0adf61", "1ed92395b5b598bdda52abe5c0dbfd63"),
    "The network of found cells, for small devices.",
    filters=44,
    repeats=4,
    stem=32,
    skips=False,
)
NASNetLarge = _member(
    "large",
    331,
    ("11577c9a518f0070763c2b964a382f17", "d81d89dc07e6e56530c4e77faddd61b5"),
    "The large network of found cells.",
    filters=168,
    repeats=6,
    stem=96,
    skips=True,
)

preprocess_input = preprocessing("tf")
