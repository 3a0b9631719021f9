"""ViT against its formulas."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.applications import hub_files, numpy_encoders

from exburn import load_model
from exburn.applications import ViT, ViTTiny16, from_pretrained, vit
from exburn.errors import ArgumentError, ShapeError

SIZES = {"input_shape": (8, 8, 3), "patch_size": 4, "layers": 2, "width": 16}
SIZES |= {"heads": 2, "classes": 3}
IMAGES = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_scores_by_names_of_transformers(tmp_path):
    tensors = hub_files.arrays(hub_files.vit_shapes())
    hub_files.write(tmp_path, hub_files.VIT, tensors)
    model = ViT.from_pretrained(tmp_path)
    expected = softmax(numpy_encoders.vit(tensors, IMAGES))
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), expected, atol=1e-5)
    assert model.decode(expected, top=1)[0][0][1] in ("cat", "dog", "fox")
    model.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (
            tmp_path / name
        ).read_bytes()
    model.save(tmp_path / "model.exburn")
    assert load_model(tmp_path / "model.exburn").labels == ("cat", "dog", "fox")
    model.save_pretrained(tmp_path / "timm", style="timm")
    theirs = load_file(tmp_path / "timm" / "model.safetensors")
    moved = numpy_encoders.timm_vit(theirs, IMAGES, epsilon=1e-12)
    np.testing.assert_allclose(softmax(moved), expected, atol=1e-5)


def test_what_images_are_like_is_written_too(tmp_path):
    sizes = SIZES | {"input_shape": (8, 8, 1), "mlp_width": 8}
    model = ViT(**sizes, mean=0.25, deviation=0.75, interpolation="bicubic")
    model.save_pretrained(tmp_path)
    again = ViT.from_pretrained(tmp_path)
    assert again.colours == ((0.25,), (0.75,))
    image = np.random.default_rng(0).integers(0, 256, (20, 12, 1))
    np.testing.assert_array_equal(model.preprocess(image), again.preprocess(image))
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [1.0]}\n')
    ViT.from_pretrained(tmp_path).save_pretrained(tmp_path / "again")
    text = (tmp_path / "again" / "preprocessor_config.json").read_text()
    assert text == '{"image_mean": [1.0]}\n'


def test_names_of_the_modules_of_transformers_5(tmp_path):
    tensors = hub_files.arrays(hub_files.vit_shapes())
    renamed = {}
    for name, array in tensors.items():
        for old, new in (  # transformers 5.24, conversion_mapping.py
            ("encoder.layer.", "layers."),
            ("attention.query", "q_proj"),
            ("attention.key", "k_proj"),
            ("attention.value", "v_proj"),
            ("attention.output.dense", "attention.o_proj"),
            ("intermediate.dense", "mlp.fc1"),
            ("output.dense", "mlp.fc2"),
        ):
            name = name.replace(old, new)
        renamed[name] = array
    hub_files.write(tmp_path, hub_files.VIT, renamed)
    model = ViT.from_pretrained(tmp_path)
    expected = softmax(numpy_encoders.vit(tensors, IMAGES))
    np.testing.assert_allclose(np.asarray(model(IMAGES)), expected, atol=1e-5)
    model.save_pretrained(tmp_path / "again")
    one, two = (f / "model.safetensors" for f in (tmp_path, tmp_path / "again"))
    assert one.read_bytes() == two.read_bytes()


def test_scores_by_names_of_timm(tmp_path):
    tensors = hub_files.arrays(hub_files.timm_vit_shapes())
    hub_files.write(tmp_path, {"architecture": "vit_tiny_patch4_8"}, tensors)
    options = SIZES | {"mlp_width": 64, "weights": tmp_path / "model.safetensors"}
    model = ViT(**options, classifier_activation=None)
    expected = numpy_encoders.timm_vit(tensors, IMAGES)
    np.testing.assert_allclose(np.asarray(model(IMAGES)), expected, atol=2e-5)


def test_sizes_that_timm_has_no_name_for(tmp_path):
    model = ViT(**SIZES | {"input_shape": (8, 8, 1)}, mlp_width=24)
    model.save_pretrained(tmp_path, style="timm")
    again = from_pretrained(tmp_path)
    x = IMAGES[..., :1]
    np.testing.assert_array_equal(np.asarray(model(x)), np.asarray(again(x)))
    assert model.decode(model(x), top=1)[0][0][1] in ("0", "1", "2")


def test_a_folder_of_timm_tells_the_sizes(tmp_path):
    model = ViTTiny16(classes=3)
    assert model.count_params() == 5_524_416 + 3 * 193
    config = model.config_for("timm")
    assert config["architecture"] == "vit_tiny_patch16_224"
    assert ViT.is_mine(config)
    told = ViT.arguments_of(config, tmp_path)
    made = model.get_config()
    left_out = ("labels", "crop", "mean", "deviation")
    told = {key: value for key, value in told.items() if key not in left_out}
    assert json.loads(json.dumps(told)) == {key: made[key] for key in told}


def test_preprocess_is_the_folders():
    model = ViT(**SIZES, mlp_width=24, mean=(0.1, 0.2, 0.3), deviation=0.5)
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3))
    expected = (images / 255 - np.array([0.1, 0.2, 0.3])) / 0.5
    np.testing.assert_allclose(model.preprocess(images), expected, atol=1e-6)
    mixed = [np.zeros((5, 9, 3)), np.zeros((20, 30, 3))]
    assert model.preprocess(mixed).shape == (2, 8, 8, 3)
    with pytest.raises(ShapeError, match="height, width, 3"):
        model.preprocess(np.zeros((8, 8)))
    x = np.full((1, 1, 1, 3), 255.0)
    assert vit.preprocess_input(x).tolist() == [[[[1.0, 1.0, 1.0]]]]


def test_arguments():
    with pytest.raises(ShapeError, match="must divide the images"):
        ViT(input_shape=(20, 16, 3))
    with pytest.raises(ArgumentError, match="2 labels do not name 3"):
        ViT(**SIZES, mlp_width=8, labels=["a", "b"])
    with pytest.raises(ArgumentError, match="mean has a number"):
        ViT(**SIZES, mlp_width=8, mean=(1, 2))
    with pytest.raises(ShapeError, match="must be"):
        ViT(**SIZES, mlp_width=8, labels=["a", "b", "c"]).decode(np.ones((2, 4)))
    tokens = ViT(**SIZES, mlp_width=8, include_top=False)
    assert tokens.output_shape == (None, 5, 16)
