"""Convolutional networks built as vision transformers are.

Source: Liu et al., *A ConvNet for the 2020s*, 2022.

Example:
    >>> model = ConvNeXtTiny(weights=None, classes=10)  # doctest: +SKIP
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
from exburn.applications.scaling import DEVIATION, MEAN
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.initializers import Constant
from exburn.layers import (
    Activation,
    Conv2D,
    Dense,
    GlobalAveragePooling2D,
    LayerNormalization,
    Normalization,
)
from exburn.models import Model, Sequential
from exburn.module.layer import Layer

__all__ = [
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "LayerScale",
    "decode_predictions",
    "preprocess_input",
]

_EPSILON = 1e-6


@register_builtin
class LayerScale(Layer):
    """A factor of its own for each channel: gamma · x.

    Args:
        init_values: The factors at first.
        projection_dim: Number of channels.
        **kwargs: Of ``Layer``.

    Shape:
        x: […, projection_dim] → the same

    Raises:
        ArgumentError: ``init_values`` or ``projection_dim`` is no number in range.

    Example:
        >>> import numpy as np
        >>> LayerScale(0.5, 2)(np.ones((1, 2), "f")).tolist()
        [[0.5, 0.5]]

    Source: Touvron et al., *Going Deeper with Image Transformers*, 2021.
    """

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.init_values = init_values
        self.projection_dim = check_count(
            type(self).__name__, "projection_dim", projection_dim
        )

    def build(self, x):
        self.gamma = self.add_weight(
            shape=(self.projection_dim,), initializer=Constant(self.init_values)
        )

    def call(self, x):
        return x * self.gamma

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "init_values": self.init_values,
            "projection_dim": self.projection_dim,
        }


def _norm(name: str | None) -> LayerNormalization:
    return LayerNormalization(epsilon=_EPSILON, name=name)


def _block(x: Any, filters: int, name: str) -> Any:
    """7 × 7 of each channel, then two dense layers, beside a shortcut."""
    start = x
    x = Conv2D(
        filters, 7, padding="same", groups=filters, name=f"{name}_depthwise_conv"
    )(x)
    x = _norm(f"{name}_layernorm")(x)
    x = Dense(4 * filters, name=f"{name}_pointwise_conv_1")(x)
    x = Activation("gelu", name=f"{name}_gelu")(x)
    x = Dense(filters, name=f"{name}_pointwise_conv_2")(x)
    x = LayerScale(1e-6, filters, name=f"{name}_layer_scale")(x)
    return start + Activation("linear", name=f"{name}_identity")(x)


def _build(
    arguments: tuple,
    include_preprocessing: bool,
    depths: tuple[int, ...],
    widths: tuple[int, ...],
    pretrained: PretrainedFiles,
) -> Model:
    app = Application(
        *arguments,
        size=224,
        pretrained=pretrained,
        scaling="torch",
        channels_last=True,
    )
    name, x = str(app.name), app.input
    if include_preprocessing and app.shape[2] == 3:
        app.scaling = None
        x = Normalization(
            mean=[value * 255 for value in MEAN],
            variance=[(value * 255) ** 2 for value in DEVIATION],
            name=f"{name}_prestem_normalization",
        )(x)
    for stage, (depth, filters) in enumerate(zip(depths, widths, strict=True)):
        if stage == 0:
            conv = Conv2D(filters, 4, strides=4, name=f"{name}_stem_conv")
            parts = [conv, _norm(f"{name}_stem_layernorm")]
            x = Sequential(parts, name=f"{name}_stem")(x)
        else:
            label = f"{name}_downsampling"
            conv = Conv2D(filters, 2, strides=2, name=f"{label}_conv_{stage - 1}")
            parts = [_norm(f"{label}_layernorm_{stage - 1}"), conv]
            x = Sequential(parts, name=f"{label}_block_{stage - 1}")(x)
        for number in range(depth):
            x = _block(x, filters, f"{name}_stage_{stage}_block_{number}")
    if not app.include_top:
        return app.finish(_norm(None)(app.pool(x, named=False)))
    x = GlobalAveragePooling2D(name=f"{name}_head_gap")(x)
    x = _norm(f"{name}_head_layernorm")(x)
    head = Dense(app.classes, activation=app.activation, name=f"{name}_head_dense")
    return app.finish(head(x))


def _member(kind: str, depths: tuple[int, ...], width: int, digests: tuple[str, str]):
    function, default = f"ConvNeXt{kind}", f"convnext_{kind.lower()}"
    start = f"tensorflow/keras-applications/convnext/{default}"
    pretrained = PretrainedFiles(f"{start}.h5", f"{start}_notop.h5", *digests)
    widths = tuple(width * 2**stage for stage in range(len(depths)))

    def make(
        include_top: bool = True,
        include_preprocessing: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
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
            depths,
            widths,
            pretrained,
        )

    about = (
        f"The ConvNeXt network whose first stage has {width} channels.\n\n"
        "Source: Liu et al., *A ConvNet for the 2020s*, 2022."
    )
    return describe(make, function, about, __name__)


ConvNeXtTiny = _member(
    "Tiny",
    (3, 3, 9, 3),
    96,
    (
        "8ae6e78ce2933352b1ef4008e6dd2f17bc40771563877d156bc6426c7cf503ff",
        "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
    ),
)
ConvNeXtSmall = _member(
    "Small",
    (3, 3, 27, 3),
    96,
    (
        "ce1277d8f1ee5a0ef0e171469089c18f5233860ceaf9b168049cb9263fd7483c",
        "6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab",
    ),
)
ConvNeXtBase = _member(
    "Base",
    (3, 3, 27, 3),
    128,
    (
        "52cbb006d3dadd03f6e095a8ca1aca47aecdd75acb4bc74bce1f5c695d0086e6",
        "40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45",
    ),
)
ConvNeXtLarge = _member(
    "Large",
    (3, 3, 27, 3),
    192,
    (
        "070c5ed9ed289581e477741d3b34beffa920db8cf590899d6d2c67fba2a198a6",
        "96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd",
    ),
)
ConvNeXtXLarge = _member(
    "XLarge",
    (3, 3, 27, 3),
    256,
    (
        "c1f5ccab661354fc3a79a10fa99af82f0fbf10ec65cb894a3ae0815f17a889ee",
        "de3f8a54174130e0cecdc71583354753d557fcf1f4487331558e2a16ba0cfe05",
    ),
)

preprocess_input = preprocessing(None)
