"""Images as other libraries' folders prepare them, pixel for pixel."""

import numpy as np
import pytest
from tests.applications import hub_files
from tests.applications.image_cases import GOLDEN, SIDE, TIMM, TRANSFORMERS, images

from exburn import load_model
from exburn.applications import EfficientNetLite, ViT
from exburn.applications.image_files import preprocessor_for, pretrained_cfg_for
from exburn.applications.image_format import ImageFormat
from exburn.applications.scaling import Scaling
from exburn.errors import ArgumentError, FileFormatError, ShapeError

EXPECTED = np.load(GOLDEN)
IMAGES = images()
SIZES = {"patch_size": 8, "layers": 1, "width": 8, "heads": 1, "mlp_width": 8}
SHAPE = {"input_shape": (SIDE, SIDE, 3)}
CONFIG = {"model_type": "vit", "image_size": SIDE}
ARGS = {"depth": 1, "embed_dim": 8, "num_heads": 1, "img_size": SIDE, "patch_size": 8}
LITE = {"architecture": "efficientnet_lite0"}


def of_transformers(about):
    return ViT.arguments_of(CONFIG, {"preprocessor_config.json": about})


def of_timm(cfg):
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 2}
    return ViT.arguments_of(config | {"model_args": ARGS, "pretrained_cfg": cfg}, {})


def colours_of(arguments):
    """A mean and a deviation for each channel."""
    both = arguments["mean"], arguments["deviation"]
    return tuple(tuple(np.broadcast_to(value, 3).tolist()) for value in both)


def format_of(arguments):
    """The form of images of a model with these arguments, without the model."""
    options = ("crop", "interpolation", "resize", "crop_mode")
    return ImageFormat(
        *("ViT", (SIDE, SIDE), 3, Scaling(*colours_of(arguments)), 2),
        **{name: arguments[name] for name in options if name in arguments},
    )


def check(arguments, library, name):
    images = format_of(arguments)
    for number, image in enumerate(IMAGES):
        expected = EXPECTED[f"{library}/{name}/{number}"]
        for pixels in (image, image.astype("float32"), image.astype("int64")):
            (found,) = images.prepare(pixels)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_pixels_are_those_of_transformers(name):
    about = {"size": {"height": SIDE, "width": SIDE}} | TRANSFORMERS[name]
    check(of_transformers(about), "transformers", name)


@pytest.mark.parametrize("name", TIMM)
def test_pixels_are_those_of_timm(name):
    check(of_timm(TIMM[name]), "timm", name)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_what_transformers_say_is_written_and_read(name):
    about = {"size": {"height": SIDE, "width": SIDE}} | TRANSFORMERS[name]
    arguments = of_transformers(about) | {"crop_mode": "center"}
    colours = colours_of(arguments)
    again = of_transformers(preprocessor_for(arguments, (SIDE, SIDE), colours))
    square = IMAGES[2:3] * 2
    np.testing.assert_allclose(
        format_of(again).prepare(square),
        format_of(arguments).prepare(square),
        atol=1e-6,
    )


@pytest.mark.parametrize("name", TIMM)
def test_what_timm_says_is_written_and_read(name):
    arguments = of_timm(TIMM[name]) | {"resize": None}
    colours = colours_of(arguments)
    again = of_timm(pretrained_cfg_for(arguments, (SIDE, SIDE, 3), colours, 2))
    assert again | {"resize": None} == arguments | {
        "mean": colours[0],
        "deviation": colours[1],
    }


def test_models_prepare_their_images_so(tmp_path):
    model = ViT(**SIZES, **SHAPE, classes=2, resize=20, crop=True, mean=(0.1, 0.2, 0.3))
    model.save_pretrained(tmp_path / "a")
    again = ViT.from_pretrained(tmp_path / "a")
    np.testing.assert_allclose(
        again.preprocess(IMAGES), model.preprocess(IMAGES), atol=1e-6
    )
    changed = ViT.from_pretrained(tmp_path / "a", mean=0.9)  # goes before the folder's
    changed.save_pretrained(tmp_path / "b")
    assert ViT.from_pretrained(tmp_path / "b").colours[0] == (0.9,) * 3
    model = ViT(**SIZES, **SHAPE, classes=2, crop=0.6, crop_mode="border")
    model.save_pretrained(tmp_path / "c", style="timm")
    again = ViT.from_pretrained(tmp_path / "c")
    np.testing.assert_array_equal(again.preprocess(IMAGES), model.preprocess(IMAGES))
    model.save(tmp_path / "model.exburn")
    again = load_model(tmp_path / "model.exburn")
    np.testing.assert_array_equal(again.preprocess(IMAGES), model.preprocess(IMAGES))


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"do_pad": True}, "'do_pad' in preprocessor_config.json must be False"),
        ({"crop_pct": 0.9}, "'crop_pct' in preprocessor_config.json must be null"),
        ({"resample": 6}, "'resample' in preprocessor_config.json must be one of 0, 1"),
        ({"resample": True}, "'resample'"),
        ({"size": {"longest_edge": 9}}, "'size' in preprocessor_config.json must be"),
        ({"size": {"shortest_edge": 9, "longest_edge": 9}}, "'size'"),
        ({"size": 9}, r"'size' .* makes images of \(9, 9\), .* takes \(16, 16\)"),
        ({"size": {"shortest_edge": 9}}, "'size' .* makes images of 9"),
        ({"do_center_crop": True, "crop_size": 9}, "'crop_size' .* makes images of"),
        ({"do_center_crop": True}, "'crop_size'"),
        ({"do_rescale": 1}, "'do_rescale' .* must be true or false"),
        ({"rescale_factor": 0}, "'rescale_factor' .* must be a number above 0"),
        ({"image_std": [0.5, 0.0, 0.5]}, "describes no ViT: deviation"),
        ({"image_mean": [0.5, 0.1]}, "describes no ViT: mean has a number for each"),
        ({"image_mean": "grey"}, "'image_mean'"),
        ({"do_flip": True}, "nothing is known of: 'do_flip'"),
        ({"image_processor_type": "BeitImageProcessor"}, "'image_processor_type'"),
    ],
)
def test_what_is_not_done_is_refused_by_name(tmp_path, about, text):
    vit = hub_files.VIT | {"image_size": 8}
    hub_files.write(tmp_path, vit, hub_files.arrays(hub_files.vit_shapes()))
    if "size" not in about:
        about = {"size": 8} | about
    text = text.replace("(16, 16)", "(8, 8)").replace(r"\(16, 16\)", r"\(8, 8\)")
    hub_files.write_json(tmp_path / "preprocessor_config.json", about)
    with pytest.raises(FileFormatError, match=text):
        ViT.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"pretrained_cfg": {"crop_mode": "middle"}}, "'pretrained_cfg.crop_mode' in"),
        ({"pretrained_cfg": {"interpolation": "random"}}, "'pretrained_cfg.interp"),
        ({"pretrained_cfg": {"crop_border_pixels": 4}}, "crop_border_pixels"),
        ({"pretrained_cfg": {"input_size": [3, 8, 8]}}, "'pretrained_cfg.input_size'"),
        ({"pretrained_cfg": {"gamma": 2}}, "'pretrained_cfg.gamma'"),
        ({"pretrained_cfg": 3}, "'pretrained_cfg' must be an object"),
        ({"model_args": {"init_values": 1e-5}}, "'model_args.init_values'"),
        ({"model_args": {"reg_tokens": 4}}, "'model_args.reg_tokens' in .* must be 0"),
        ({"model_args": {"qkv_bias": False}}, "'model_args.qkv_bias'"),
        ({"model_args": {"act_layer": "prelu"}}, "'model_args.act_layer'"),
        ({"model_args": 3}, "'model_args' must be an object"),
        ({"global_pool": "avg"}, "'global_pool' in config.json must be 'token'"),
        ({"freeze": True}, "nothing is known of: 'freeze'"),
    ],
)
def test_what_timm_has_and_we_have_not_is_refused_by_name(told, text):
    config = {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {}} | told
    with pytest.raises(FileFormatError, match=text):
        ViT.arguments_of(config, {})


def test_old_files_of_timm_have_no_section():
    found = EfficientNetLite.arguments_of(LITE | {"mean": [0.1], "crop_pct": 0.9}, {})
    assert found["mean"] == (0.1,) and found["crop"] == 0.9 and found["size"] == 224
    cfg = {"input_size": [3, 64, 64], "test_crop_pct": 1.0}
    found = EfficientNetLite.arguments_of(LITE | {"pretrained_cfg": cfg}, {})
    assert found["size"] == 64 and found["crop"] == 0.875
    for told, text in (
        (LITE | {"gamma": 3}, "'gamma'"),
        (LITE | {"pretrained_cfg": {}, "mean": [0.1]}, "'mean'"),
        (LITE | {"pretrained_cfg": {"input_size": [3, 8, 9]}}, "square images"),
    ):
        with pytest.raises(FileFormatError, match=text):
            EfficientNetLite.arguments_of(told, {})


def test_images_that_do_not_get_the_models_size_are_an_error():
    images = format_of(of_transformers({"size": {"shortest_edge": SIDE}}))
    assert images.prepare(np.zeros((40, 40, 3), "uint8")).shape == (1, SIDE, SIDE, 3)
    with pytest.raises(ShapeError, match=r"makes images of \(16, 32\)"):
        images.prepare(np.zeros((40, 80, 3), "uint8"))
    images = format_of(of_transformers({"do_resize": False}))
    with pytest.raises(ShapeError, match=r"makes images of \(40, 80\)"):
        images.prepare(np.zeros((40, 80, 3), "uint8"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"crop": 0.0}, "crop must be a number > 0"),
        ({"crop": "half"}, "crop must be a number"),
        ({"resize": 20, "crop": 0.9}, "resize must be None"),
        ({"resize": 0}, "resize must be an integer"),
        ({"resize": (1, 2, 3)}, "resize is a length"),
        ({"crop_mode": "border"}, "needs a share"),
        ({"crop_mode": "corner", "crop": 0.9}, "crop_mode is one of"),
        ({"interpolation": "sinc"}, "interpolation is one of"),
    ],
)
def test_bad_arguments_are_errors(options, text):
    with pytest.raises(ArgumentError, match=text):
        ImageFormat("ViT", (SIDE, SIDE), 3, Scaling.of_mode("tf"), 2, **options)


def test_what_a_format_cannot_say_is_an_error():
    arguments = of_timm({"crop_pct": 0.9, "crop_mode": "border"}) | {"resize": None}
    with pytest.raises(ArgumentError, match="cannot say crop_mode='border'"):
        preprocessor_for(arguments, (SIDE, SIDE), colours_of(arguments))
    arguments |= {"crop": True, "resize": 20}
    with pytest.raises(ArgumentError, match="timm's files cannot say resize=20"):
        pretrained_cfg_for(arguments, (SIDE, SIDE, 3), colours_of(arguments), 2)
