"""``preprocess_input`` and ``decode_predictions``."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn.applications import imagenet_utils
from exburn.errors import ArgumentError, FileFormatError, ShapeError

X = np.arange(2 * 4 * 3 * 3, dtype="float32").reshape(2, 4, 3, 3) * 3


@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
def test_pixels_are_those_of_keras(mode, golden):
    def told(api, of):
        utils = api.applications.imagenet_utils
        channels_first = np.moveaxis(X, -1, 1).copy()
        return (
            utils.preprocess_input(of(X.copy()), mode=mode),
            utils.preprocess_input(X[0].copy(), mode=mode),
            utils.preprocess_input(of(channels_first), "channels_first", mode=mode),
        )

    expected = golden(lambda: told(keras, np.array))
    for of in (np.array, jnp.asarray):
        for a, b in zip(told(exburn, of), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-5)
    integers = X.astype("uint8")
    for x in (integers, jnp.asarray(integers)):
        made = imagenet_utils.preprocess_input(x, mode=mode)
        np.testing.assert_allclose(made, told(exburn, np.array)[0], atol=1e-5)
        assert made.dtype == "float32"


def test_pixels_stay_and_symbols_are_taken():
    x = X.copy()
    made = exburn.applications.vgg16.preprocess_input(x)
    np.testing.assert_array_equal(x, X)
    symbol = exburn.Input((4, 3, 3))
    model = exburn.Model(symbol, exburn.applications.resnet.preprocess_input(symbol))
    np.testing.assert_allclose(model.predict(X, verbose=0), made, atol=1e-4)
    assert exburn.applications.convnext.preprocess_input(x) is x
    with pytest.raises(ArgumentError, match="mode"):
        imagenet_utils.preprocess_input(X, mode="tensorflow")


def test_predictions_have_names(tmp_path):
    file = tmp_path / "classes.json"
    file.write_text(json.dumps({str(i): [f"n{i}", f"c{i}"] for i in range(1000)}))
    preds = np.zeros((2, 1000), "float32")
    preds[0, [3, 5]], preds[1, 999] = (0.25, 0.75), 1.0
    decode = exburn.applications.densenet.decode_predictions
    assert decode(preds, top=2, class_index=file)[0] == [
        ("n5", "c5", 0.75),
        ("n3", "c3", 0.25),
    ]
    assert [len(row) for row in decode(preds, class_index=file)] == [5, 5]
    with pytest.raises(ShapeError, match="1000"):
        decode(preds[:, :10], class_index=file)
    file.write_text('{"0": 1}')
    with pytest.raises(FileFormatError, match="1000 classes"):
        decode(preds, class_index=file)
