"""Arguments, downloads and files of all applications, on the smallest ones."""

import contextlib
import functools
import http.server
import sys
import threading

import numpy as np
import pytest
from tests.golden import keras

from exburn import Input, applications, config, layers, models
from exburn.applications import application
from exburn.errors import (
    ArgumentError,
    DataError,
    LayoutError,
    MissingDependencyError,
    MissingFileError,
    ShapeError,
)

IMAGE = Input((32, 32, 3))
SMALL = functools.partial(applications.MobileNetV2, (32, 32, 3), 0.35)


@pytest.mark.parametrize(
    "function, given, error, text",
    [
        ("ResNet50", {"weights": "nowhere.h5"}, MissingFileError, "no file 'nowhere"),
        ("ResNet50", {"weights": 3}, ArgumentError, "a path or None"),
        ("ResNet50", {"classes": 10}, ArgumentError, "1000 classes"),
        ("VGG16", {"classifier_activation": "relu"}, ArgumentError, "'softmax' or"),
        ("VGG16", {"weights": None, "classes": 0}, ArgumentError, "classes"),
        ("VGG16", {"weights": None, "pooling": "sum"}, ValueError, "pooling"),
        ("ResNet50", {"input_shape": (64, 64, 3)}, ShapeError, "224 × 224"),
        (
            "Xception",
            {"weights": None, "input_shape": (64,) * 3},
            ShapeError,
            "71 × 71",
        ),
        ("VGG19", {"weights": None, "input_shape": (None, 32, 3)}, ShapeError, "known"),
        (
            "VGG19",
            {"weights": None, "input_shape": (32, 3)},
            ShapeError,
            "three numbers",
        ),
        ("VGG19", {"weights": None, "input_tensor": 3}, ArgumentError, "a symbol"),
        (
            "VGG19",
            {
                "weights": None,
                "input_tensor": Input((32, 32, 3)),
                "input_shape": (48,) * 3,
            },
            ShapeError,
            "Pass one of them",
        ),
        (
            "NASNetLarge",
            {"weights": None, "include_top": False},
            ShapeError,
            "the size",
        ),
        (
            "MobileNet",
            {"alpha": 0.3, "include_top": False},
            ArgumentError,
            "of these widths",
        ),
        (
            "EfficientNetB0",
            {"include_top": False, "input_shape": (32, 32, 1)},
            ShapeError,
            "3 channels",
        ),
    ],
)
def test_arguments_that_do_not_go_together(function, given, error, text, monkeypatch):
    monkeypatch.setattr(models.Model, "__init__", None)  # nothing is built before
    with pytest.raises(error, match=text):
        getattr(applications, function)(**given)


def test_imagenet_needs_h5py(monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[keras\]'"):
        applications.VGG16()


def test_channels_are_counted():
    with pytest.warns(UserWarning, match="not 5"):
        layers_ = application.Application(
            "op",
            False,
            None,
            None,
            (32, 32, 5),
            None,
            9,
            None,
            "n",
            size=64,
            pretrained=None,
        )
    assert layers_.shape == (32, 32, 5)


@contextlib.contextmanager
def served(folder):
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(folder)
    )
    handler.log_message = lambda *args: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_weights_of_imagenet_are_downloaded_once(tmp_path, monkeypatch, capfd):
    folder = tmp_path / "tensorflow/keras-applications/mobilenet_v2"
    folder.mkdir(parents=True)
    model = SMALL(weights=None, include_top=False, pooling="avg")
    name = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_0.35_224_no_top.h5"
    model.save_weights(tmp_path / "made.safetensors")
    (tmp_path / "made.safetensors").rename(folder / name)
    monkeypatch.setenv("EXBURN_CACHE", str(tmp_path / "cache"))
    with served(tmp_path) as address:
        monkeypatch.setattr(application, "STORAGE", address)
        loaded = SMALL(include_top=False, pooling="avg")
    again = SMALL(include_top=False, pooling="avg")  # the server is gone
    for one in (loaded, again):
        for a, b in zip(model.weights, one.weights, strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(DataError, match=r"(?s)could not be downloaded.*weights=None"):
        applications.VGG16()


@pytest.mark.parametrize("name, alpha", [("MobileNet", 0.25), ("MobileNetV2", 0.35)])
def test_the_smallest_are_those_of_keras(name, alpha, golden):
    """As the nightly tests of each family, with what Keras said recorded."""

    def build(api):
        shape = (32, 32, 3)
        model = getattr(api, name)(shape, alpha=alpha, weights=None, classes=7)
        rng = np.random.default_rng(0)
        weights = [
            rng.uniform(0.5, 1.5, w.shape)
            if len(w.shape) == 1
            else rng.normal(0, 0.2, w.shape)
            for w in model.weights
        ]
        model.set_weights([w.astype("float32") for w in weights])
        x = rng.uniform(-1, 1, (2, *shape)).astype("float32")
        return model, model.predict(x, verbose=0)

    def theirs():
        keras.utils.clear_session()
        model, output = build(keras.applications)
        names = [layer.name for layer in model.layers]
        return output, np.array(names), np.array(model.count_params())

    output, names, count = golden(theirs)
    model, own = build(applications)
    np.testing.assert_allclose(own, output, atol=1e-5)
    assert 0 < output.std() < 1
    assert [layer.name for layer in model.layers] == names.tolist()
    assert model.count_params() == count


def test_channels_may_come_first():
    last = SMALL(weights=None, classes=3)
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
    expected = last.predict(x, verbose=0)
    config.set_image_data_format("channels_first")
    try:
        first = applications.MobileNetV2((3, 32, 32), 0.35, weights=None, classes=3)
        with pytest.raises(LayoutError, match="channels last"):
            applications.DenseNet121(weights=None)
    finally:
        config.set_image_data_format("channels_last")
    first.set_weights(last.get_weights())
    own = first.predict(np.moveaxis(x, -1, 1), verbose=0)
    np.testing.assert_allclose(own, expected, atol=1e-5)


def test_a_symbol_in_the_middle_of_a_model_is_the_image():
    image = Input((40, 40, 1), dtype="uint8")
    pixels = layers.Concatenate()([image] * 3)
    network = applications.MobileNetV2(
        weights=None, alpha=0.35, input_tensor=pixels, include_top=False, pooling="max"
    )
    assert network.input_shape == (None, 40, 40, 1)
    head = models.Sequential([network, layers.Dense(2)])
    network.trainable = False
    head.compile("sgd", "mse")
    x = np.ones((4, 40, 40, 1), "uint8")
    head.fit(x, np.ones((4, 2)), verbose=0)
    assert head.predict(x, verbose=0).shape == (4, 2)
