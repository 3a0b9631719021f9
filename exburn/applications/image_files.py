"""What other libraries' files say of a model's images, both ways.

``preprocessor_config.json`` is of ``transformers``, ``pretrained_cfg`` in
``config.json`` of ``timm``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exburn.applications.config_tables import labels
from exburn.applications.scaling import DEVIATION, MEAN
from exburn.errors import ArgumentError, FileFormatError
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights.entries import (
    Field,
    Kind,
    Misfit,
    Table,
    choice,
    flag,
    list_of,
    nullable,
    one_or_list,
    real,
    whole,
)

__all__ = [
    "HALF",
    "IMAGENET",
    "LONGEST",
    "PREPROCESSOR",
    "preparation_of",
    "preprocessor_for",
    "pretrained_cfg_for",
    "read_timm",
]

PREPROCESSOR = "preprocessor_config.json"
IMAGENET = MEAN, DEVIATION
LONGEST = 1 << 15  # pixels of a side that a file may ask for
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# Pillow's numbers of filters.
_FILTERS = {
    0: "nearest",
    1: "lanczos",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
}


# ---------------------------------------------------------------- of transformers
def _size(square: bool) -> Kind:
    """Sizes of images: ``{"height", "width"}``, ``{"shortest_edge"}`` or a number.

    Args:
        square: Whether a number is both sides, and not the shorter one.
    """

    def read(value: Any) -> int | tuple[int, int]:
        side = whole(1, LONGEST)
        if not isinstance(value, Mapping):
            return (side(value), side(value)) if square else side(value)
        sizes = {key: one for key, one in value.items() if one is not None}
        if set(sizes) == {"height", "width"}:
            return side(sizes["height"]), side(sizes["width"])
        if set(sizes) == {"shortest_edge"}:
            return side(sizes["shortest_edge"])
        raise Misfit("a number, or an object of height and width, or of shortest_edge")

    return read


def _processor(square: bool, **defaults: Any) -> Table:
    """The table of an image processor.

    Args:
        square: As of ``_size``.
        **defaults: What it does where the file says nothing.
    """
    colours = one_or_list(real())
    entries = {
        "crop_size": _size(True),
        "do_center_crop": flag,
        "do_normalize": flag,
        "do_rescale": flag,
        "do_resize": flag,
        "image_mean": colours,
        "image_std": colours,
        "resample": choice(_FILTERS),
        "rescale_factor": real(0, above=True),
        "size": _size(square),
    }
    defaults_by_key = {
        "rescale_factor": 1 / 255,
        "do_center_crop": False,
        "crop_size": None,
    }
    defaults_by_key |= {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
    } | defaults
    kinds = {key: nullable(kind, defaults_by_key[key]) for key, kind in entries.items()}
    return Table(
        PREPROCESSOR,
        [Field(key, key, kind, defaults_by_key[key]) for key, kind in kinds.items()],
        only={
            "crop_pct": (),
            "do_pad": (False,),
            "pad_size": (),
            "rescale_offset": (False,),
        },
        # `do_convert_rgb` is of images that have other channels than the model, which
        # preprocess() refuses.
        harmless="""
            _processor_class _valid_processor_keys data_format default_to_square device
            disable_grouping do_convert_rgb feature_extractor_type image_processor_type
            image_seq_length input_data_format processor_class return_tensors
        """.split(),
    )


def _square(side: int) -> tuple[int, int]:
    return side, side


_VIT = _processor(
    True,
    image_mean=HALF[0],
    image_std=HALF[1],
    resample="bilinear",
    size=_square(224),
)
_DEIT = _VIT.derive(
    defaults={
        "crop_size": _square(224),
        "do_center_crop": True,
        "resample": "bicubic",
        "size": _square(256),
    }
)
_BIT = _processor(
    False,
    crop_size=_square(224),
    do_center_crop=True,
    image_mean=_CLIP[0],
    image_std=_CLIP[1],
    resample="bicubic",
    size=224,
)
_PROCESSORS = {
    f"{name}{end}": table
    for name, table in (("ViT", _VIT), ("DeiT", _DEIT), ("Bit", _BIT), ("CLIP", _BIT))
    for end in (
        "ImageProcessor",
        "ImageProcessorFast",
        "ImageProcessorPil",
        "FeatureExtractor",
    )
}


def preparation_of(
    about: Mapping[str, Any] | None, shape: Sequence[int], op: str
) -> dict[str, Any]:
    """What ``preprocessor_config.json`` says, as arguments of a model.

    Args:
        about: What the file says; ``None`` if there is none.
        shape: Of the model's images.
        op: The operation named in errors.

    Raises:
        FileFormatError: It says what is not done here, or nothing is known of it.
    """
    sides, about = tuple(shape[:2]), about or {}
    kind = about.get("image_processor_type") or about.get("feature_extractor_type")
    kind = "ViTImageProcessor" if kind is None else kind
    if not isinstance(kind, str) or kind not in _PROCESSORS:
        raise FileFormatError(
            op,
            f"'image_processor_type' in {PREPROCESSOR} must be one of "
            f"{', '.join(map(repr, _PROCESSORS))}, received {kind!r}",
        )
    table = _PROCESSORS[kind]
    if table is _VIT and about.get("size") is None:  # no other size would do
        about = {**about, "size": {"height": sides[0], "width": sides[1]}}
    values = table.read(about, op)
    size = values["size"] if values["do_resize"] else False
    crop = True if values["do_center_crop"] else None
    last = values["crop_size"] if crop else size
    if last not in (sides, False) and (not isinstance(last, int) or sides[0] != last):
        name = "crop_size" if crop else "size"
        raise FileFormatError(
            op,
            f"{name!r} in {PREPROCESSOR} makes images of {last}, and the model takes "
            f"{sides}",
        )
    factor = 255 * values["rescale_factor"] if values["do_rescale"] else 255
    mean, deviation = values["image_mean"], values["image_std"]
    if not values["do_normalize"]:
        mean, deviation = (0.0,), (1.0,)
    return {
        "mean": _of_channels(mean, shape[-1], factor),
        "deviation": _of_channels(deviation, shape[-1], factor),
        "interpolation": values["resample"],
        "resize": None if size == sides else size,
        "crop": crop,
    }


def _of_channels(
    values: Sequence[float], channels: int, factor: float
) -> tuple[float, ...]:
    """A number for each channel, or one for all of them, of pixels from 0 to 1."""
    values = tuple(value / factor for value in values)
    alike = len(set(values)) == 1  # the defaults are of three channels
    return values[:1] if alike and len(values) != channels else values


def preprocessor_for(
    config: Mapping[str, Any],
    sides: Sequence[int],
    colours: tuple[Sequence[float], Sequence[float]],
) -> dict[str, Any]:
    """What ``preprocessor_config.json`` says of a model's images.

    Args:
        made: The model's configuration.
        sides: Height and width of its images.
        colours: Mean and deviation.

    Raises:
        ArgumentError: Its images are prepared in a way that only timm has.
    """
    whole_image = {"height": sides[0], "width": sides[1]}
    resize, crop = config["resize"], config["crop"]
    if crop is not None and crop is not True:
        if config["crop_mode"] != "center" or sides[0] != sides[1]:
            raise ArgumentError(
                "save_pretrained",
                f"{PREPROCESSOR} cannot say crop_mode={config['crop_mode']!r} of "
                f"images of {tuple(sides)}",
                hint="style='timm' can.",
            )
        resize, crop = int(sides[0] // crop), True
    about: dict[str, Any] = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": resize is not False,
        "image_mean": list(colours[0]),
        "image_processor_type": "ViTImageProcessor",
        "image_std": list(colours[1]),
        "resample": next(
            n for n, k in _FILTERS.items() if k == config["interpolation"]
        ),
        "rescale_factor": 1 / 255,
        "size": whole_image,
    }
    if isinstance(resize, int) and resize is not False:
        about["size"] = {"shortest_edge": resize}
    elif resize:
        about["size"] = {"height": resize[0], "width": resize[1]}
    if crop:
        about |= {"do_center_crop": True, "crop_size": whole_image}
    return about


# ---------------------------------------------------------------- of timm
_MODES = ("center", "border", "squash")
_CFG = Table(
    CONFIG,
    [
        Field("crop_mode", "crop_mode", nullable(choice(_MODES), "center"), "center"),
        Field("crop_pct", "crop", nullable(real(0))),
        Field("input_size", "input_size", nullable(list_of(whole(1, LONGEST), [3]))),
        Field("interpolation", "interpolation", nullable(choice(_FILTERS.values()))),
        Field("mean", "mean", nullable(one_or_list(real()))),
        Field("std", "deviation", nullable(one_or_list(real(0, above=True)))),
    ],
    only={"crop_border_pixels": (0,), "label_offset": (0,)},
    # Where the weights come from, other sizes that the network could have, and what
    # the tensors of its ends are called.
    harmless="""
        architecture classifier custom_load description file first_conv fixed_input_size
        has_weights hf_hub_filename hf_hub_id label_descriptions label_names license
        min_input_size notes num_classes origin_url paper_ids paper_name pool_size
        source state_dict tag test_crop_pct test_input_size test_pool_size url
    """.split(),
)
_TOP = Table(
    CONFIG,
    [
        Field("label_names", "labels", nullable(labels)),
        Field("num_classes", "classes", nullable(whole(0), 1000), 1000),
    ],
    harmless=["architecture", "label_descriptions", "num_features"],
)


def read_timm(
    config: Mapping[str, Any], arguments: Table, op: str, **only: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``config.json`` of timm says: of its images and classes, and of the network.

    Args:
        config: What the file says.
        arguments: The table of ``model_args``.
        op: The operation named in errors.
        **only: The value of an entry that alone is computed here.

    Returns:
        Arguments of a model, with ``input_size``, which is [channels, height, width] or
        None; and what the table makes of ``model_args``.

    Raises:
        FileFormatError: It says what is not done here, or nothing is known of it.
    """
    top = _TOP.derive(only={name: (value,) for name, value in only.items()})
    inside = {}
    for name in ("pretrained_cfg", "model_args"):
        inside[name] = config.get(name) or {}
        if not isinstance(inside[name], Mapping):
            raise FileFormatError(
                op, f"{name!r} must be an object, received {inside[name]!r}"
            )
    about = {n: v for n, v in config.items() if n not in inside}
    table = _CFG.at("pretrained_cfg")
    if "pretrained_cfg" not in config:  # in old files its entries are at the top
        own = {*top.entries, *top.only, *top.harmless}
        inside["pretrained_cfg"] = {n: v for n, v in about.items() if n not in own}
        about, table = {n: v for n, v in about.items() if n in own}, _CFG
    values = top.read(about, op)
    images = table.read(inside["pretrained_cfg"], op)
    crop, mode = images["crop"] or 0.875, images["crop_mode"]
    if (crop, mode) == (1.0, "squash"):
        crop, mode = None, "center"
    names = values["labels"]
    return {
        "include_top": values["classes"] > 0,
        "classes": values["classes"] or 1000,
        "labels": list(names) if names and values["classes"] else None,
        "mean": images["mean"] or MEAN,
        "deviation": images["deviation"] or DEVIATION,
        "interpolation": images["interpolation"] or "bicubic",
        "crop": crop,
        "crop_mode": mode,
        "input_size": images["input_size"],
    }, arguments.at("model_args").read(inside["model_args"], op)


def pretrained_cfg_for(
    config: Mapping[str, Any],
    shape: Sequence[int],
    colours: tuple[Sequence[float], Sequence[float]],
    classes: int,
) -> dict[str, Any]:
    """What ``pretrained_cfg`` of timm says of a model's images.

    Args:
        made: The model's configuration.
        shape: Of its images.
        colours: Mean and deviation.
        classes: How many it has; 0 without a classifier.

    Raises:
        ArgumentError: Its images are prepared in a way that timm has not.
    """
    crop, mode = config["crop"], config["crop_mode"]
    if config["resize"] is not None or crop is True:
        raise ArgumentError(
            "save_pretrained",
            f"timm's files cannot say resize={config['resize']!r} with crop={crop!r}",
            hint="style='transformers' can.",
        )
    return {
        "crop_mode": "squash" if crop is None else mode,
        "crop_pct": 1.0 if crop is None else crop,
        "input_size": [shape[2], *shape[:2]],
        "interpolation": config["interpolation"],
        "mean": list(colours[0]),
        "num_classes": classes,
        "std": list(colours[1]),
    }
