"""EfficientNets for phones: without what integers or accelerators are slow at.

Blocks have no squeeze-and-excitation, activations are relu6, and the first and last
layers are the same in all sizes.

Source: Liu, *Higher accuracy on vision models with EfficientNet-Lite*, 2020.

Example:
    >>> model = EfficientNetLite0(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from exburn.applications.application import Application, describe, preprocessing
from exburn.applications.efficientnet import conv, depthwise, round_filters
from exburn.applications.image_files import IMAGENET, pretrained_cfg_for, read_timm
from exburn.applications.image_model import ImageModel
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.pretrained import architecture
from exburn.applications.torch_rules import batch_norm, dense
from exburn.core.checks import check_choice, check_float
from exburn.core.registry import register_builtin
from exburn.errors import FileFormatError, LayoutError
from exburn.layers import (
    Dropout,
    GlobalAveragePooling2D,
    ReLU,
    ZeroPadding2D,
    add,
)
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights import Rules, rules, transpose
from exburn.weights.entries import Field, Table, nullable, real
from exburn.weights.sizes import Size

__all__ = [
    "EfficientNetLite",
    "EfficientNetLite0",
    "EfficientNetLite1",
    "EfficientNetLite2",
    "EfficientNetLite3",
    "EfficientNetLite4",
    "decode_predictions",
    "preprocess_input",
]

# Kernel, repeats, filters, expansion, stride.
_STAGES = (
    (3, 1, 16, 1, 1),
    (3, 2, 24, 6, 2),
    (5, 2, 40, 6, 2),
    (3, 3, 80, 6, 2),
    (5, 3, 112, 6, 1),
    (5, 4, 192, 6, 2),
    (3, 1, 320, 6, 1),
)
_STEM, _HEAD = 32, 1280
# Width, depth, size of the images, dropout.
_SIZES = (
    (1.0, 1.0, 224, 0.2),
    (1.0, 1.1, 240, 0.2),
    (1.1, 1.2, 260, 0.3),
    (1.2, 1.4, 280, 0.3),
    (1.4, 1.8, 300, 0.3),
)
_DROP_RATE = 0.2
_EPSILONS = {"symmetric": 1e-5, "same": 1e-3}  # of the two libraries
_COLOURS = {
    "symmetric": IMAGENET,
    "same": ((127 / 255,) * 3, (128 / 255,) * 3),
}
_OP = "EfficientNetLite.from_pretrained"
_FULL, _DEPTHWISE = transpose(2, 3, 1, 0), transpose(2, 3, 0, 1)


_BLOCK = r"blocks.([1-6]).(\d+)"
_TIMM = [
    (r"conv_stem.weight", "stem_conv/kernel", _FULL),
    *batch_norm(r"bn1", "stem_bn"),
    # The first stage has no expansion.
    (r"blocks.(0).(\d+).conv_dw.weight", "block_{1}_{2}_depthwise/kernel", _DEPTHWISE),
    *batch_norm(r"blocks.(0).(\d+).bn1", "block_{1}_{2}_depthwise_bn"),
    (r"blocks.(0).(\d+).conv_pw.weight", "block_{1}_{2}_project/kernel", _FULL),
    *batch_norm(r"blocks.(0).(\d+).bn2", "block_{1}_{2}_project_bn"),
    (rf"{_BLOCK}.conv_pw.weight", "block_{1}_{2}_expand/kernel", _FULL),
    *batch_norm(rf"{_BLOCK}.bn1", "block_{1}_{2}_expand_bn"),
    (rf"{_BLOCK}.conv_dw.weight", "block_{1}_{2}_depthwise/kernel", _DEPTHWISE),
    *batch_norm(rf"{_BLOCK}.bn2", "block_{1}_{2}_depthwise_bn"),
    (rf"{_BLOCK}.conv_pwl.weight", "block_{1}_{2}_project/kernel", _FULL),
    *batch_norm(rf"{_BLOCK}.bn3", "block_{1}_{2}_project_bn"),
    (r"conv_head.weight", "head_conv/kernel", _FULL),
    *batch_norm(r"bn2", "head_bn"),
]
# Of efficientnet_pytorch, and of what is derived from it: blocks have one number.
_FLAT = [
    (r"_conv_stem.weight", "stem_conv/kernel", _FULL),
    *batch_norm(r"_bn0", "stem_bn"),
    (r"_conv_head.weight", "head_conv/kernel", _FULL),
    *batch_norm(r"_bn1", "head_bn"),
]
_FLAT_TOP = dense("_fc", "predictions")


def _flat_block(number: int, name: str) -> list[tuple]:
    """Rules for one of these blocks."""
    start = rf"_blocks.{number}"
    return [
        (rf"{start}._expand_conv.weight", f"{name}_expand/kernel", _FULL),
        *batch_norm(rf"{start}._bn0", f"{name}_expand_bn"),
        (rf"{start}._depthwise_conv.weight", f"{name}_depthwise/kernel", _DEPTHWISE),
        *batch_norm(rf"{start}._bn1", f"{name}_depthwise_bn"),
        (rf"{start}._project_conv.weight", f"{name}_project/kernel", _FULL),
        *batch_norm(rf"{start}._bn2", f"{name}_project_bn"),
    ]


def _repeats(depth: float) -> list[int]:
    """The number of blocks of each stage: those of the ends stay."""
    return [
        repeats if stage in (0, len(_STAGES) - 1) else math.ceil(repeats * depth)
        for stage, (_, repeats, *_) in enumerate(_STAGES)
    ]


_TIMM_TOP = dense("classifier", "predictions")


@register_builtin
class EfficientNetLite(ImageModel):
    """The EfficientNet-Lite of a width and a depth.

    Args:
        weights: A file, a folder, or the name of a repository on a hub, under the names
            of ``timm`` or ``efficientnet_pytorch``; ``None`` for random ones.
        pooling: Without the top ``"avg"`` or ``"max"`` over all places, or ``None`` for
            the map itself.
        width: Factor on the numbers of channels.
        depth: Factor on the numbers of blocks.
        size: Height and width of the images by default.
        dropout: Share of the features before the classifier that is dropped.
        padding: Where a convolution of stride 2 has zeros: ``"symmetric"``, as in
            PyTorch, or ``"same"``, as in TensorFlow.
        epsilon: Of the normalizations; by default 1e-3 with TensorFlow's padding, and
            1e-5 with PyTorch's.
        mean: Of each channel, of pixels from 0 to 1: for ``preprocess``. By default
            TensorFlow's 127 / 255 with its padding, and ImageNet's with PyTorch's.

    Shape:
        x: [batch, height, width, 3] → [batch, classes]

    Raises:
        ArgumentError: The arguments do not go together.
        ShapeError: The images are too small.
        FileFormatError: The weights are of another model.
        MissingFileError: There is no such file or folder.

    Example:
        >>> model = EfficientNetLite(width=0.25, depth=0.2, size=32, classes=3)
        >>> model.output_shape
        (None, 3)

    Source: Liu, *Higher accuracy on vision models with EfficientNet-Lite*, 2020.
    """

    styles = ("timm", "efficientnet_pytorch")
    fresh = ("predictions/",)

    def __init__(
        self,
        include_top: bool = True,
        weights: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        width: float = 1.0,
        depth: float = 1.0,
        size: int = 224,
        dropout: float = 0.2,
        padding: str = "symmetric",
        epsilon: float | None = None,
        mean: Any = None,
        deviation: Any = None,
        crop: float | bool | None = 0.875,
        interpolation: str = "bicubic",
        labels: Any = None,
        resize: Any = None,
        crop_mode: str = "center",
        name: str | None = "efficientnet_lite",
        dtype: Any = None,
    ):
        op = "EfficientNetLite"
        check_float(op, "width", width)
        check_float(op, "depth", depth)
        check_choice(op, "padding", padding, ("symmetric", "same"))
        app = Application(
            *(op, include_top, None, None, input_shape, pooling),
            *(classes, classifier_activation, name),
            size=size,
            pretrained=None,
            fixed=False,
        )
        if app.axis != 3:
            raise LayoutError(
                op,
                "this network has its channels last",
                hint="exburn.config.set_image_data_format('channels_last')",
            )
        net = _Network(app, padding, _EPSILONS[padding] if epsilon is None else epsilon)
        x = net.features(app.input, width, depth)
        if include_top:
            x = GlobalAveragePooling2D(name="avg_pool")(x)
            x = app.classify(Dropout(dropout, name="top_dropout")(x))
        else:
            x = app.pool(x)
        self._make(app.input, x, name, weights, dtype)
        self.has_top, self.depth = bool(include_top), depth
        shape = (size, size, 3) if app.shape[0] is None else app.shape
        colours = _COLOURS[padding]
        mean = colours[0] if mean is None else mean
        deviation = colours[1] if deviation is None else deviation
        self._describe(
            shape,
            classes,
            mean=mean,
            deviation=deviation,
            crop=crop,
            interpolation=interpolation,
            labels=labels,
            resize=resize,
            crop_mode=crop_mode,
        )
        self._fill(weights)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        return architecture(config) in _NAMES

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        name = config["architecture"]
        width, depth, size, dropout = _SIZES[_NAMES[name]]
        images, further = read_timm(config, _ARGUMENTS, _OP, global_pool="avg")
        shape = images.pop("input_size")
        if shape is not None and (shape[0] != 3 or shape[1] != shape[2]):
            raise FileFormatError(
                _OP,
                "'pretrained_cfg.input_size' in config.json must be of square images "
                f"of three channels, received {shape}",
            )
        sizes = {"width": width, "depth": depth, "dropout": dropout}
        sizes["size"] = size if shape is None else shape[1]
        options = {key: value for key, value in further.items() if value is not None}
        padding = "same" if name.startswith("tf_") else "symmetric"
        return images | sizes | options | {"padding": padding}

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        blocks, (*_, last) = r"^blocks\.(\d+)\.(\d+)\.", _STAGES
        sizes = {
            "depth": Size(
                "depth_multiplier", sum(_repeats(arguments["depth"])), blocks
            ),
            "width": Size(
                "channel_multiplier",
                round_filters(last[2] * arguments["width"], at_least=0.9),
                r"^conv_head\.weight$",
                1,
            ),
        }
        if arguments["include_top"]:
            sizes["classes"] = Size(
                "num_classes",
                arguments["classes"],
                r"^classifier\.weight$",
                0,
                each=_HEAD,
            )
        return sizes

    def config_for(self, style: str) -> dict[str, Any]:
        own = self.get_config()
        sizes = tuple(own[key] for key in ("width", "depth", "dropout"))
        scales = [(width, depth, drop) for width, depth, _, drop in _SIZES]
        number = scales.index(sizes) if sizes in scales else None
        start = "tf_" if own["padding"] == "same" else ""
        classes = own["classes"] if self.has_top else 0
        config: dict[str, Any] = {
            "architecture": f"{start}efficientnet_lite{number or 0}",
            "num_classes": classes,
            "num_features": _HEAD,
        }
        if number is None:
            config["model_args"] = {
                "channel_multiplier": own["width"],
                "depth_multiplier": own["depth"],
                "drop_rate": own["dropout"],
            }
        if self.has_top and self.labels is not None:
            config["label_names"] = list(self.labels)
        shape = (*self.sides, 3)
        cfg = pretrained_cfg_for(own, shape, self.colours, classes)
        return config | {"pretrained_cfg": cfg}

    def weight_rules(self, style: str) -> Rules:
        if style == "efficientnet_pytorch":
            names = [
                f"block_{stage}_{number}"
                for stage, count in enumerate(_repeats(self.depth))
                for number in range(count)
            ]
            blocks = [_flat_block(i, name) for i, name in enumerate(names)]
            top = _FLAT_TOP if self.has_top else [(r"_fc\..*", None)]
            return rules([*_FLAT, *itertools.chain(*blocks), *top])
        top = _TIMM_TOP if self.has_top else [(r"classifier\..*", None)]
        return rules([*_TIMM, *top])


_ARGUMENTS = Table(
    CONFIG,
    [
        Field("channel_multiplier", "width", nullable(real(0, above=True))),
        Field("depth_multiplier", "depth", nullable(real(0, above=True))),
        Field("drop_rate", "dropout", nullable(real(0, 1))),
    ],
    only={"global_pool": ("avg",), "in_chans": (3,)},
    harmless=["num_classes"],
)
_NAMES = {
    f"{start}efficientnet_lite{number}": number
    for start in ("", "tf_")
    for number in range(len(_SIZES))
}


class _Network:
    """The parts of the network, for images with their channels last."""

    def __init__(self, app: Application, padding: str, epsilon: float):
        self._app, self._padding, self._epsilon = app, padding, epsilon

    def features(self, x: Any, width: float, depth: float) -> Any:
        """The features of images: the stem, all blocks and the last convolution."""
        x = self.activate(
            self.norm(self.convolve(x, 3, 2, "stem_conv", _STEM), "stem_bn")
        )
        repeats = _repeats(depth)
        total, done = sum(repeats), 0
        for stage, (kernel, _, filters, expansion, stride) in enumerate(_STAGES):
            for number in range(repeats[stage]):
                x = self.block(
                    x,
                    kernel,
                    round_filters(filters * width, at_least=0.9),
                    expansion,
                    1 if number else stride,
                    _DROP_RATE * done / total,
                    f"block_{stage}_{number}",
                )
                done += 1
        return self.activate(self.norm(conv(_HEAD, name="head_conv")(x), "head_bn"))

    def norm(self, x: Any, name: str) -> Any:
        return self._app.norm(x, name, momentum=0.99, epsilon=self._epsilon)

    def activate(self, x: Any) -> Any:
        return ReLU(6.0)(x)

    def convolve(
        self, x: Any, kernel: int, stride: int, name: str, filters: int | None = None
    ) -> Any:
        """A convolution, of each channel by itself without ``filters``."""
        padding = "same"
        if stride > 1 and self._padding == "symmetric":
            x = ZeroPadding2D(kernel // 2, name=f"{name}_pad")(x)
            padding = "valid"
        options = {"strides": stride, "padding": padding, "name": name}
        if filters is None:
            return depthwise(kernel, **options)(x)
        return conv(filters, kernel, **options)(x)

    def block(
        self,
        x: Any,
        kernel: int,
        filters: int,
        expansion: int,
        stride: int,
        rate: float,
        name: str,
    ) -> Any:
        """Channels expanded, filtered one by one, and brought together again."""
        start, channels = x, self._app.channels(x)
        if expansion > 1:
            x = conv(channels * expansion, name=f"{name}_expand")(x)
            x = self.activate(self.norm(x, f"{name}_expand_bn"))
        x = self.convolve(x, kernel, stride, f"{name}_depthwise")
        x = self.activate(self.norm(x, f"{name}_depthwise_bn"))
        x = self.norm(conv(filters, name=f"{name}_project")(x), f"{name}_project_bn")
        if stride > 1 or channels != filters:
            return x
        if rate > 0:
            x = Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{name}_drop")(x)
        return add([x, start], name=f"{name}_add")


def _variant(number: int):
    width, depth, size, dropout = _SIZES[number]
    function = f"EfficientNetLite{number}"

    def make(
        include_top: bool = True,
        weights: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        padding: str = "symmetric",
        name: str = f"efficientnet_lite{number}",
    ) -> EfficientNetLite:
        return EfficientNetLite(
            *(include_top, weights, input_shape, pooling, classes),
            *(classifier_activation, width, depth, size, dropout, padding),
            name=name,
        )

    about = (
        f"The EfficientNet-Lite for images of {size} × {size}.\n\n"
        "Source: Liu, *Higher accuracy on vision models with EfficientNet-Lite*, 2020."
    )
    own = {"weights": _WEIGHTS, "padding": _PADDING}
    return describe(make, function, about, __name__, **own)


_WEIGHTS = """A file, a folder, or the name of a repository on a hub, under the names
        of ``timm`` or ``efficientnet_pytorch``; ``None`` for random ones."""
_PADDING = """Where a convolution of stride 2 has zeros: ``"symmetric"``, as in
        PyTorch, or ``"same"``, as in TensorFlow."""

EfficientNetLite0 = _variant(0)
EfficientNetLite1 = _variant(1)
EfficientNetLite2 = _variant(2)
EfficientNetLite3 = _variant(3)
EfficientNetLite4 = _variant(4)

preprocess_input = preprocessing("torch")
