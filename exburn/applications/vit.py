"""Transformers for images: patches are their tokens.

Source: Dosovitskiy et al., *An Image is Worth 16x16 Words: Transformers for Image
Recognition at Scale*, 2021.

Example:
    >>> model = ViTTiny16(weights=None, classes=10)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.applications.application import Application, describe, preprocessing
from exburn.applications.config_tables import (
    ACTIVATION,
    ACTIVATIONS,
    ENCODER,
    activation_name,
    class_of,
    label_arguments,
    label_entries,
)
from exburn.applications.image_files import (
    LONGEST,
    PREPROCESSOR,
    preparation_of,
    preprocessor_for,
    pretrained_cfg_for,
    read_timm,
)
from exburn.applications.image_model import ImageModel
from exburn.applications.imagenet_utils import decode_predictions
from exburn.applications.pretrained import architecture
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
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights import Rules, rules, split, split_heads, transpose
from exburn.weights.entries import (
    Field,
    Misfit,
    Table,
    choice,
    nullable,
    one_or_list,
    real,
    whole,
)
from exburn.weights.sizes import Size

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
_CLASSIFIER = "ViTForImageClassification"
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


def _patch_vectors(app: Application, size: int, width: int) -> Any:
    """The images' patches as vectors: [batch, patches, width]."""
    rows, columns = (side or 0 for side in app.shape[:2])
    if not rows or rows % size or not columns or columns % size:
        raise ShapeError(
            "ViT",
            f"patches of {size} × {size} must divide the images, received "
            f"input_shape={app.shape}",
        )
    patches = Conv2D(
        width, size, strides=size, kernel_initializer=start(), name="patches"
    )
    count = rows // size * (columns // size)
    return Reshape((count, width), name="flat_patches")(patches(app.input))


@register_builtin
class ViT(ImageModel):
    """A vision transformer: patches, blocks of attention, and a classifier.

    Args:
        weights: A file, a folder, or the name of a repository on a hub, under the names
            of ``transformers`` or of ``timm``; ``None`` for random ones.
            ``ViT.from_pretrained`` takes the sizes from the folder.
        pooling: Without the top ``"first"``, the token of the class, or ``"mean"``, or
            ``None`` for the vectors of all tokens.
        patch_size: Height and width of a patch.
        layers: Number of blocks.
        width: Number of features.
        heads: Number of heads, which divide them.
        mlp_width: Number of features between a block's dense layers.
        dropout: Share of features that is dropped in training.
        attention_dropout: Share of the weights of attention that is.
        activation: Between a block's dense layers.
        epsilon: Of the normalizations.

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
    further = (PREPROCESSOR,)
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
        crop: float | bool | None = None,
        interpolation: str = "bilinear",
        labels: Any = None,
        resize: Any = None,
        crop_mode: str = "center",
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
        x = _patch_vectors(app, patch_size, width)
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
            app.shape,
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
        of_timm = architecture(config) in _TIMM_SIZES
        return config.get("model_type") == "vit" or of_timm

    @classmethod
    def arguments_of(
        cls, config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        if architecture(config):
            return _timm_arguments(config)
        values = _CONFIG.read(config, _OP)
        top, channels = label_arguments(values, _OP), values.pop("channels")
        shape = (*values.pop("sides"), channels)
        arguments = {"include_top": values.pop("kind") == _CLASSIFIER, **values}
        if arguments["include_top"]:
            arguments |= top
        images = preparation_of(files.get(PREPROCESSOR), shape, _OP)
        return arguments | {"input_shape": shape} | images

    @classmethod
    def sizes_of(cls, arguments: Mapping[str, Any]) -> Mapping[str, Size]:
        (height, width, channels), side = (
            arguments["input_shape"],
            arguments["patch_size"],
        )
        patches, features = (
            r"patch_embed(dings)?\.proj(ection)?\.weight$",
            arguments["width"],
        )
        sizes = {
            "width": Size("hidden_size", features, patches, 0),
            "patch_size": Size("patch_size", side, patches, 2),
            "channels": Size("num_channels", channels, patches, 1),
            "input_shape": Size(
                "image_size",
                1 + height // side * (width // side),
                r"(pos_embed|position_embeddings)$",
                1,
                each=features,
            ),
            "layers": Size(
                "num_hidden_layers",
                arguments["layers"],
                r"(?:^|\.)(?:layer|layers|blocks)\.(\d+)\.",
            ),
            "mlp_width": Size(
                "intermediate_size",
                arguments["mlp_width"],
                r"(intermediate\.dense|mlp\.fc1)\.weight$",
                0,
            ),
        }
        if arguments["include_top"]:
            sizes["classes"] = Size(
                "num_labels",
                arguments.get("classes", 1000),
                r"^(classifier|head)\.weight$",
                0,
                each=features,
            )
        return sizes

    def config_for(self, style: str) -> dict[str, Any]:
        own = self.get_config()
        height, width, channels = shape = own["input_shape"]
        if style == "timm":
            classes = own["classes"] if self.has_top else 0
            config = _timm_architecture(own)
            config |= {"num_classes": classes, "num_features": own["width"]}
            if self.has_top and self.labels is not None:
                config["label_names"] = list(self.labels)
            cfg = pretrained_cfg_for(own, shape, self.colours, classes)
            return config | {"pretrained_cfg": cfg}
        config = {
            "architectures": [_CLASSIFIER if self.has_top else "ViTModel"],
            "attention_probs_dropout_prob": own["attention_dropout"],
            "hidden_act": activation_name(own["activation"]),
            "hidden_dropout_prob": own["dropout"],
            "hidden_size": own["width"],
            "image_size": height if height == width else [height, width],
            "intermediate_size": own["mlp_width"],
            "layer_norm_eps": own["epsilon"],
            "model_type": "vit",
            "num_attention_heads": own["heads"],
            "num_channels": channels,
            "num_hidden_layers": own["layers"],
            "patch_size": own["patch_size"],
            "qkv_bias": True,
        }
        names = label_entries(self.labels, own["classes"])
        return config | (names if self.has_top else {})

    def further_files(self, style: str) -> dict[str, dict[str, Any]]:
        if style == "timm":
            return {}
        about = preprocessor_for(self.get_config(), self.sides, self.colours)
        return {PREPROCESSOR: about}

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
    features, layers, heads, patch, side = _TIMM_SIZES[config["architecture"]]
    images, further = read_timm(config, _TIMM_ARGUMENTS, _OP, global_pool="token")
    architecture = {
        "img_size": (side, side),
        "patch_size": patch,
        "embed_dim": features,
    }
    architecture |= {"depth": layers, "num_heads": heads}
    sizes = architecture | {
        name: value for name, value in further.items() if value is not None
    }
    shape = (*sizes["img_size"], sizes["in_chans"])
    size = images.pop("input_size")
    if size not in (None, (shape[2], *shape[:2])):
        raise FileFormatError(
            _OP,
            f"'pretrained_cfg.input_size' in config.json is {size}, and the network "
            f"takes {(shape[2], *shape[:2])}",
        )
    return {
        **images,
        "input_shape": shape,
        "patch_size": sizes["patch_size"],
        "layers": sizes["depth"],
        "width": sizes["embed_dim"],
        "heads": sizes["num_heads"],
        "mlp_width": int(sizes["mlp_ratio"] * sizes["embed_dim"]),
        "activation": sizes["act_layer"],
        "epsilon": 1e-6,
    }


def _timm_architecture(own: Mapping[str, Any]) -> dict[str, Any]:
    """The network of timm's that has these sizes, or that gets them by arguments."""
    height, width, channels = own["input_shape"]
    features, ratio = own["width"], own["mlp_width"] / own["width"]
    sizes = features, own["layers"], own["heads"], own["patch_size"], height
    names = [
        name for name, sizes_of_name in _TIMM_SIZES.items() if sizes_of_name == sizes
    ]
    changed: dict[str, Any] = {}
    if not names or height != width:
        changed = {
            "depth": own["layers"],
            "embed_dim": features,
            "img_size": height if height == width else [height, width],
            "num_heads": own["heads"],
            "patch_size": own["patch_size"],
        }
    if ratio != 4:
        changed["mlp_ratio"] = ratio
    if channels != 3:
        changed["in_chans"] = channels
    if (act := activation_name(own["activation"], tanh="gelu_tanh")) != "gelu":
        changed["act_layer"] = act
    config = {"architecture": names[0] if names else "vit_base_patch16_224"}
    return config | ({"model_args": changed} if changed else {})


def _sides(value: Any) -> tuple[int, int]:
    """Height and width, which one number says if they are equal."""
    sides = one_or_list(whole(1, LONGEST))(value)
    if len(sides) not in (1, 2):
        raise Misfit("a whole number, or a list of two")
    return (sides[0], sides[-1])


def _side(value: Any) -> int:
    """A length that is both sides."""
    height, width = _sides(value)
    if height != width:
        raise Misfit("a whole number, or a list of two that are equal")
    return height


_CONFIG = ENCODER.derive(
    [
        Field("architectures", "kind", class_of(_CLASSIFIER, "ViTModel")),
        Field("attention_probs_dropout_prob", "attention_dropout", real(0, 1), 0.0),
        Field("hidden_act", "activation", ACTIVATION, "gelu"),
        Field("hidden_dropout_prob", "dropout", real(0, 1), 0.0),
        Field("hidden_size", "width", whole(), 768),
        Field("image_size", "sides", _sides, (224, 224)),
        Field("intermediate_size", "mlp_width", whole(), 3072),
        Field("layer_norm_eps", "epsilon", real(0, above=True), 1e-12),
        Field("num_attention_heads", "heads", whole(), 12),
        Field("num_channels", "channels", whole(), 3),
        Field("num_hidden_layers", "layers", whole(), 12),
        Field("patch_size", "patch_size", _side, 16),
    ],
    only={"qkv_bias": (True,)},
    # Of the head that draws masked patches, and of the pooler, which is left out.
    harmless=["encoder_stride", "pooler_act", "pooler_output_size"],
)

# timm's names of activations: those of transformers, and two of its own.
_TIMM_ACTIVATION = choice(
    ACTIVATIONS | {"gelu_tanh": "gelu_tanh", "hard_swish": "hard_silu"}
)
_TIMM_ARGUMENTS = Table(
    CONFIG,
    [
        Field("act_layer", "act_layer", nullable(_TIMM_ACTIVATION, "gelu"), "gelu"),
        Field("depth", "depth", nullable(whole())),
        Field("embed_dim", "embed_dim", nullable(whole())),
        Field("img_size", "img_size", nullable(_sides)),
        Field("in_chans", "in_chans", nullable(whole(), 3), 3),
        Field("mlp_ratio", "mlp_ratio", nullable(real(0, above=True), 4.0), 4.0),
        Field("num_heads", "num_heads", nullable(whole())),
        Field("patch_size", "patch_size", nullable(_side)),
    ],
    only={
        "attn_drop_rate": (0,),
        "class_token": (True,),
        "drop_path_rate": (0,),
        "drop_rate": (0,),
        "dynamic_img_pad": (False,),
        "dynamic_img_size": (False,),
        "fc_norm": (False,),
        "final_norm": (True,),
        "global_pool": ("token",),
        "no_embed_class": (False,),
        "patch_drop_rate": (0,),
        "pos_drop_rate": (0,),
        "pos_embed": ("learn",),
        "pre_norm": (False,),
        "proj_bias": (True,),
        "proj_drop_rate": (0,),
        "qk_norm": (False,),
        "qkv_bias": (True,),
        "reg_tokens": (0,),
    },
    harmless=["num_classes", "weight_init"],
)


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
