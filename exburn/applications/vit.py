"""Transformers for images: patches are their tokens.

Source: Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image
Recognition at Scale*, 2021.

Example:
    >>> model = ViTTiny16(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exburn.applications.application import Application, describe, preprocessing
from exburn.applications.bert import (
    activation_name,
    activation_of,
    number_of_labels,
)
from exburn.applications.image_model import (
    HALF,
    ImageModel,
    colours,
    timm_arguments_in,
    timm_colours,
    timm_config,
)
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.pretrained import (
    architecture,
    architectures,
    label_entries,
    label_names,
)
from exburn.applications.torch_rules import attention_output, dense, heads, norm
from exburn.applications.transformer import (
    ClassToken,
    TokenPooling,
    TransformerBlock,
    start,
)
from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.errors import FileFormatError, ShapeError
from exburn.layers import Conv2D, Dropout, LayerNormalization, Reshape
from exburn.saving.pretrained_folder import optional_json, setting
from exburn.weights import Rules, rules, split, split_heads, transpose

__all__ = [
    "ViT",
    "ViTBase16",
    "ViTBase32",
    "ViTLarge16",
    "ViTSmall16",
    "ViTTiny16",
    "decode_predictions",
    "preprocess_input",
]

_OP = "ViT.from_pretrained"
_PREPROCESSOR = "preprocessor_config.json"
_KERNEL = transpose(2, 3, 1, 0)  # [out, in, height, width] of PyTorch
_PARTS = ("query", "key", "value")
_OUTPUT = "block_{1}/attention/attention_output"


def _norms_and_mlp(block: str, norms: tuple[str, str], mlp: tuple[str, str]) -> list:
    """Rules for what a block has beside its attention.

    Args:
        block: The block's name.
        norms, mlp: Names in it of its normalizations, and of its dense layers.
    """
    return [
        *norm(f"{block}.{norms[0]}", "block_{1}/attention_norm"),
        *norm(f"{block}.{norms[1]}", "block_{1}/mlp_norm"),
        *dense(f"{block}.{mlp[0]}", "block_{1}/mlp_in"),
        *dense(f"{block}.{mlp[1]}", "block_{1}/mlp_out"),
    ]


_NORMS = "layernorm_before", "layernorm_after"
_LAYER = r"encoder.layer.(\d+)"
_BODY = [
    (r"embeddings.cls_token", "tokens/token"),
    (r"embeddings.position_embeddings", "tokens/positions"),
    (r"embeddings.patch_embeddings.projection.weight", "patches/kernel", _KERNEL),
    (r"embeddings.patch_embeddings.projection.bias", "patches/bias"),
    *heads(
        rf"{_LAYER}.attention.attention.(query|key|value)", "block_{1}/attention/{2}"
    ),
    *attention_output(rf"{_LAYER}.attention.output.dense", _OUTPUT),
    *_norms_and_mlp(_LAYER, _NORMS, ("intermediate.dense", "output.dense")),
    *norm("layernorm", "norm"),
    (r"pooler\..*", None),
]
# The modules' names in transformers 5, whose files have those above all the same.
_NEW_LAYER = r"layers.(\d+)"
_NEW = [
    *(
        entry
        for letter, part in zip("qkv", _PARTS, strict=True)
        for entry in heads(
            f"{_NEW_LAYER}.attention.{letter}_proj", f"block_{{1}}/attention/{part}"
        )
    ),
    *attention_output(f"{_NEW_LAYER}.attention.o_proj", _OUTPUT),
    *_norms_and_mlp(_NEW_LAYER, _NORMS, ("mlp.fc1", "mlp.fc2")),
]
_TOP = dense("classifier", "predictions")
_BLOCK = r"blocks.(\d+)"
_TIMM = [
    (r"cls_token", "tokens/token"),
    (r"pos_embed", "tokens/positions"),
    (r"patch_embed.proj.weight", "patches/kernel", _KERNEL),
    (r"patch_embed.proj.bias", "patches/bias"),
    (
        rf"{_BLOCK}.attn.qkv.weight",
        tuple(f"block_{{1}}/attention/{part}/kernel" for part in _PARTS),
        transpose >> split >> split_heads,
    ),
    (
        rf"{_BLOCK}.attn.qkv.bias",
        tuple(f"block_{{1}}/attention/{part}/bias" for part in _PARTS),
        split >> split_heads,
    ),
    *attention_output(rf"{_BLOCK}.attn.proj", _OUTPUT),
    *_norms_and_mlp(_BLOCK, ("norm1", "norm2"), ("mlp.fc1", "mlp.fc2")),
    *norm("norm", "norm"),
]
_TIMM_TOP = dense("head", "predictions")


@register_builtin
class ViT(ImageModel):
    """A vision transformer: patches, blocks of attention, and a classifier.

    Args:
        include_top: Whether the classifier is part of the model.
        weights: A file, a folder, or the name of a repository on a hub, under the names
            of ``transformers`` or of ``timm``; ``None`` for random ones.
            ``ViT.from_pretrained`` takes the sizes from the folder.
        input_shape: Shape of the images, without the batch.
        pooling: Without the top ``"first"``, the token of the class, or ``"mean"``, or
            ``None`` for the vectors of all tokens.
        classes: Number of classes of the top.
        classifier_activation: Activation of the top; ``None`` for logits.
        patch_size: Height and width of a patch.
        layers: Number of blocks.
        width: Number of features.
        heads: Number of heads, which divide them.
        mlp_width: Number of features between a block's dense layers.
        dropout: Share of features that is dropped in training.
        attention_dropout: Share of the weights of attention that is.
        activation: Between a block's dense layers.
        epsilon: Of the normalizations.
        mean: Of each channel, of pixels from 0 to 1: for ``preprocess``.
        deviation: The same of their deviations.
        crop: Share of an image's shorter side that ``preprocess`` keeps; ``None`` for
            the whole image, whatever its form.
        interpolation: ``"bilinear"`` or ``"bicubic"``, for ``preprocess``.
        labels: Names of the classes, for ``decode``; ImageNet's if None.
        name: Name of the model.
        dtype: Precision policy.

    Shape:
        x: [batch, height, width, channels] → [batch, classes]; without the top
        [batch, features], or [batch, 1 + patches, features] without pooling

    Raises:
        ArgumentError: A size is no integer >= 1, or the heads do not divide the width.
        ShapeError: The patches do not divide the images.
        FileFormatError: The weights are of another model.
        MissingFileError: There is no such file or folder.

    Example:
        >>> import numpy as np
        >>> sizes = {"patch_size": 8, "layers": 1, "width": 16, "heads": 2}
        >>> model = ViT(input_shape=(16, 16, 3), classes=5, mlp_width=32, **sizes)
        >>> model(np.ones((1, 16, 16, 3), "float32")).shape
        (1, 5)

    Source: Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021.
    """

    styles = ("transformers", "timm")
    further = (_PREPROCESSOR,)
    fresh = ("predictions/",)

    def __init__(
        self,
        include_top: bool = True,
        weights: Any = None,
        input_shape: Any = (224, 224, 3),
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        patch_size: int = 16,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        mlp_width: int = 3072,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: Any = "gelu",
        epsilon: float = 1e-6,
        mean: Any = 0.5,
        deviation: Any = 0.5,
        crop: float | None = None,
        interpolation: str = "bilinear",
        labels: Any = None,
        name: str | None = "vit",
        dtype: Any = None,
    ):
        op = "ViT"
        if pooling is not None:
            check_choice(op, "pooling", pooling, ("first", "mean"))
        app = Application(
            *(op, include_top, None, None, input_shape, None),
            *(classes, classifier_activation, name),
            size=224,
            smallest=check_count(op, "patch_size", patch_size),
            pretrained=None,
            channels_last=True,
        )
        rows, columns = (side or 0 for side in app.shape[:2])
        if not rows or rows % patch_size or not columns or columns % patch_size:
            raise ShapeError(
                op,
                f"patches of {patch_size} × {patch_size} must divide the images, "
                f"received input_shape={app.shape}",
            )
        patches = Conv2D(
            width, patch_size, strides=patch_size, kernel_initializer=start(),
            name="patches",
        )  # fmt: skip
        count = rows // patch_size * (columns // patch_size)
        x = Reshape((count, width), name="flat_patches")(patches(app.input))
        x = Dropout(dropout, name="token_dropout")(ClassToken(name="tokens")(x))
        for number in range(check_count(op, "layers", layers)):
            block = TransformerBlock(
                width,
                heads,
                mlp_width,
                norm_first=True,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation=activation,
                epsilon=epsilon,
                name=f"block_{number}",
            )
            x = block(x)
        x = LayerNormalization(epsilon=epsilon, name="norm")(x)
        if include_top or pooling is not None:
            kind = pooling or "first"
            x = TokenPooling(kind, name="pooling")(x)
        if include_top:
            x = app.classify(x, kernel_initializer="zeros")
        self._make(app.input, x, name, weights, dtype)
        self.has_top = bool(include_top)
        self._describe(
            *(app.shape, mean, deviation, crop, interpolation, labels, classes)
        )
        self._fill(weights)

    # ------------------------------------------------------------------ folders
    @classmethod
    def is_mine(cls, config: Mapping[str, Any]) -> bool:
        of_timm = architecture(config) in _TIMM_SIZES
        return config.get("model_type") == "vit" or of_timm

    @classmethod
    def arguments_of(cls, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        if architecture(config):
            return _timm_arguments(config)

        def get(key: str, kind: type, default: Any) -> Any:
            return setting(config, key, kind, default, _OP)

        about = optional_json(folder / _PREPROCESSOR, _OP)
        channels = get("num_channels", int, 3)
        half = (0.5,) * channels, (0.5,) * channels
        side = get("image_size", int, 224)
        top = "ViTForImageClassification" in architectures(config)
        if not config.get("qkv_bias", True):
            raise FileFormatError(_OP, "a ViT without biases of attention is unknown")
        return {
            "include_top": top,
            "input_shape": (side, side, channels),
            "classes": number_of_labels(config, _OP) if top else 1000,
            "patch_size": get("patch_size", int, 16),
            "layers": get("num_hidden_layers", int, 12),
            "width": get("hidden_size", int, 768),
            "heads": get("num_attention_heads", int, 12),
            "mlp_width": get("intermediate_size", int, 3072),
            "dropout": get("hidden_dropout_prob", float, 0.0),
            "attention_dropout": get("attention_probs_dropout_prob", float, 0.0),
            "activation": activation_of(config, _OP),
            "epsilon": get("layer_norm_eps", float, 1e-12),
            "labels": label_names(config, _OP) if top else None,
            "interpolation": "bicubic" if about.get("resample") == 3 else "bilinear",
            **colours(about, "image_mean", "image_std", half, _OP),
        }

    def config_for(self, style: str) -> dict[str, Any]:
        made = self.get_config()
        height, _, channels = made["input_shape"]
        if style == "timm":
            return {
                **_timm_architecture(made),
                "num_classes": made["classes"] if self.has_top else 0,
                "num_features": made["width"],
                "pretrained_cfg": {
                    "input_size": [channels, *made["input_shape"][:2]],
                    "num_classes": made["classes"] if self.has_top else 0,
                    **timm_config(self.colours, made),
                },
            }
        top = "ViTForImageClassification" if self.has_top else "ViTModel"
        config = {
            "architectures": [top],
            "attention_probs_dropout_prob": made["attention_dropout"],
            "hidden_act": activation_name(made["activation"]),
            "hidden_dropout_prob": made["dropout"],
            "hidden_size": made["width"],
            "image_size": height,
            "intermediate_size": made["mlp_width"],
            "layer_norm_eps": made["epsilon"],
            "model_type": "vit",
            "num_attention_heads": made["heads"],
            "num_channels": channels,
            "num_hidden_layers": made["layers"],
            "patch_size": made["patch_size"],
            "qkv_bias": True,
        }
        names = label_entries(self.labels, made["classes"])
        return config | (names if self.has_top else {})

    def further_files(self, style: str) -> dict[str, dict[str, Any]]:
        if style == "timm":
            return {}
        (height, width), (mean, deviation) = self.sides, self.colours
        about = {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": list(mean),
            "image_processor_type": "ViTImageProcessor",
            "image_std": list(deviation),
            "resample": 3 if self.get_config()["interpolation"] == "bicubic" else 2,
            "rescale_factor": 1 / 255,
            "size": {"height": height, "width": width},
        }
        return {_PREPROCESSOR: about}

    def weight_rules(self, style: str) -> Rules:
        if style == "timm":
            top = _TIMM_TOP if self.has_top else [(r"head\..*", None)]
            return rules([*_TIMM, *top])
        body = rules([*_BODY, *_NEW], prefix="vit.", write_prefix=self.has_top)
        return body + rules(_TOP if self.has_top else [(r"classifier\..*", None)])


# Of timm's names: width, layers, heads, patch.
_SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12)}
_SIZES |= {"large": (1024, 24, 16)}
_TIMM_SIZES = {
    f"vit_{size}_patch{patch}_{side}": (*numbers, patch, side)
    for size, numbers in _SIZES.items()
    for patch in (8, 16, 32)
    for side in (224, 384)
}


def _timm_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    width, layers, heads, patch, side = _TIMM_SIZES[config["architecture"]]
    classes = setting(config, "num_classes", int, 1000, _OP)
    changed = timm_arguments_in(config, _OP)

    def get(key: str, default: Any, kind: type = int) -> Any:
        return setting(changed, key, kind, default, _OP)

    side, width, channels = (
        get("img_size", side),
        get("embed_dim", width),
        get("in_chans", 3),
    )
    return {
        "include_top": classes > 0,
        "classes": classes or 1000,
        "input_shape": (side, side, channels),
        "patch_size": get("patch_size", patch),
        "layers": get("depth", layers),
        "width": width,
        "heads": get("num_heads", heads),
        "mlp_width": int(get("mlp_ratio", 4.0, float) * width),
        "epsilon": 1e-6,
        "labels": label_names(config, _OP),
        **timm_colours(config, HALF, _OP),
    }


def _timm_architecture(made: Mapping[str, Any]) -> dict[str, Any]:
    """The network of timm's that has these sizes, or that gets them by arguments."""
    side, _, channels = made["input_shape"]
    width, ratio = made["width"], made["mlp_width"] / made["width"]
    sizes = width, made["layers"], made["heads"], made["patch_size"], side
    names = [name for name, known in _TIMM_SIZES.items() if known == sizes]
    if names and ratio == 4 and channels == 3:
        return {"architecture": names[0]}
    changed = {
        "depth": made["layers"],
        "embed_dim": width,
        "img_size": side,
        "in_chans": channels,
        "mlp_ratio": ratio,
        "num_heads": made["heads"],
        "patch_size": made["patch_size"],
    }
    return {"architecture": "vit_base_patch16_224", "model_args": changed}


def _variant(function: str, size: str, patch: int):
    width, layers, heads = _SIZES[size]

    def make(
        include_top: bool = True,
        weights: Any = None,
        input_shape: Any = (224, 224, 3),
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str = f"vit_{size}_{patch}",
    ) -> ViT:
        return ViT(
            *(include_top, weights, input_shape, pooling, classes),
            classifier_activation,
            patch_size=patch,
            layers=layers,
            width=width,
            heads=heads,
            mlp_width=4 * width,
            name=name,
        )

    about = (
        f"The {size} vision transformer with patches of {patch} × {patch}.\n\n"
        "Source: Dosovitskiy et al., *An Image is Worth 16x16 Words*, 2021; the sizes\n"
        "below base Touvron et al., *Training data-efficient image transformers*, 2021."
    )
    return describe(make, function, about, __name__, **_OWN)


_OWN = {
    "weights": """A file, a folder, or the name of a repository on a hub, under the
        names of ``transformers`` or of ``timm``; ``None`` for random ones.""",
    "pooling": """Without the top ``"first"``, the token of the class, or ``"mean"``, or
        ``None`` for the vectors of all tokens.""",
}

ViTTiny16 = _variant("ViTTiny16", "tiny", 16)
ViTSmall16 = _variant("ViTSmall16", "small", 16)
ViTBase16 = _variant("ViTBase16", "base", 16)
ViTBase32 = _variant("ViTBase32", "base", 32)
ViTLarge16 = _variant("ViTLarge16", "large", 16)

preprocess_input = preprocessing("tf")
