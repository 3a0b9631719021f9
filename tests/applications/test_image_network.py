"""What networks for images know of their inputs and outputs."""

import functools
import json

import numpy as np
import pytest

import exburn
from exburn import applications, layers
from exburn.applications.imagenet_utils import preprocess_input
from exburn.applications.scaling import Scaling
from exburn.errors import ArgumentError, ExBurnError, ShapeError

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype("uint8")


def remake(layer):
    return layer.from_config(layer.get_config())


@functools.cache
def network():
    return applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=3)


@pytest.mark.parametrize("mode", ["caffe", "tf", "torch", None])
def test_a_mode_does_what_keras_does(mode):
    wanted = PIXELS if mode is None else preprocess_input(PIXELS, mode=mode)
    scaling = Scaling.of_mode(mode)
    made = scaling(PIXELS)
    assert made.dtype == "float32"
    np.testing.assert_allclose(made, wanted, atol=1e-4)
    assert Scaling.from_config(json.loads(json.dumps(scaling.get_config()))) == scaling
    grey = Scaling.of_mode(mode, 1)(PIXELS[..., :1])
    np.testing.assert_allclose(grey.mean(), made.mean(), atol=0.1 * abs(made).max())


def test_images_come_in_the_size_and_range_of_the_network():
    model = network()
    wanted = applications.mobilenet_v2.preprocess_input(PIXELS)
    np.testing.assert_allclose(model.preprocess(PIXELS), wanted, atol=1e-6)
    np.testing.assert_allclose(model.preprocess(PIXELS[0]), wanted[:1], atol=1e-6)
    mixed = [PIXELS[0], np.full((20, 50, 3), 255)]
    made = model.preprocess(mixed)
    assert made.shape == (2, 32, 32, 3)
    np.testing.assert_allclose(made[1], 1, atol=1e-5)
    assert model.sides == (32, 32)
    for wrong in (PIXELS[..., :1], np.zeros((8, 8)), 3, [], [["a"]], PIXELS[:, :0]):
        with pytest.raises(ShapeError):
            model.preprocess(wrong)


def test_labels_go_where_the_model_goes(tmp_path):
    model = exburn.models.clone_model(network())
    model.labels = ["cat", "dog", "fox"]
    model.save(tmp_path / "model.exburn")
    text = model.to_json()
    inside = exburn.Sequential([exburn.Input((32, 32, 3)), model, layers.Softmax()])
    copies = {
        "file": exburn.load_model(tmp_path / "model.exburn"),
        "json": exburn.models.model_from_json(text),
        "clone": model.clone(),
        "other layers": exburn.models.clone_model(model, clone_function=remake),
        "inside": exburn.Sequential.from_config(inside.get_config()).layers[0],
    }
    scores = [[0.1, 0.7, 0.2]]
    for kind, copy in copies.items():
        assert copy.decode(scores, top=1) == [[("1", "dog", 0.7)]], kind
        made = copy.preprocess(PIXELS)
        np.testing.assert_array_equal(made, model.preprocess(PIXELS), kind)
    assert network().labels is None
    assert network().decode(scores, top=1) == [[("1", "1", 0.7)]]
    with pytest.raises(ArgumentError, match="2 labels do not name 3"):
        model.labels = ["a", "b"]
    with pytest.raises(ArgumentError, match="list of names"):
        model.labels = "abc"
    with pytest.raises(ShapeError, match=r"\[batch, 3\]"):
        model.decode(np.ones((2, 4)))


@pytest.mark.parametrize(
    "change",
    [
        {"images": None},
        {"sides": [32]},
        {"sides": [32, -1]},
        {"scaling": {"mean": [0.5] * 3, "deviation": [0] * 3}},
        {"scaling": {"mean": [0.5], "deviation": [1]}},
        {"scaling": 3},
        {"labels": 7},
        {"crop": "x"},
        {"further": 1},
    ],
)
def test_a_damaged_description_is_an_error_before_a_layer_is_made(change):
    told = json.loads(network().to_json())
    config = told["config"]
    if change == {"images": None}:
        config.update(change)
    else:
        config["images"].update(change)
    config["layers"] = []  # which would be the next error
    with pytest.raises(ExBurnError, match="^(?!.*layers)"):
        exburn.models.model_from_json(json.dumps(told))


def test_networks_without_a_size_or_a_top():
    sizes = {"weights": None, "alpha": 0.35, "include_top": False}
    model = applications.MobileNetV2(pooling="avg", **sizes)
    assert model.sides == (None, None)
    assert model.preprocess(PIXELS).shape == PIXELS.shape
    with pytest.raises(ShapeError, match="several sizes"):
        model.preprocess([PIXELS[0], PIXELS[0, :8]])
    with pytest.raises(ArgumentError, match="no classifier"):
        model.decode(np.ones((1, 1280)))
    image = exburn.Input((48, 48, 3))
    other = exburn.models.clone_model(model, input_tensors=image)
    assert other.sides == (48, 48)
    head = exburn.Model(model.input, layers.Dense(2)(model.output))
    assert not hasattr(head, "decode")  # its classes are others
