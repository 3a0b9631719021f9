"""Tests of ``exburn.layers.preprocessing.image.geometry``."""

import jax
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.preprocessing.image.beside import X as PHOTOS
from tests.layers.preprocessing.image.boxed import X, fresh, in_format
from tests.layers.preprocessing.image.some import BATCH, augment

from exburn import key_scope
from exburn import layers as L


def test_flips_are_mirror_images_half_of_the_time():
    x = np.repeat(BATCH[:1, :3, :2], 400, 0)
    y = augment(L.RandomFlip("horizontal"), x)
    flipped = (y == x[:, :, ::-1]).all((1, 2, 3))
    same = (y == x).all((1, 2, 3))
    assert (flipped | same).all() and 140 < flipped.sum() < 260
    y = augment(L.RandomFlip(), x)
    kinds = [
        (y == v).all((1, 2, 3)).sum()
        for v in (x, x[:, ::-1], x[:, :, ::-1], x[:, ::-1, ::-1])
    ]
    assert sum(kinds) == 400 and min(kinds) > 60


def test_flips_as_in_keras_for_the_same_flips(golden):
    layer = L.RandomFlip("horizontal", bounding_box_format="xywh")
    data = in_format("xywh")
    got = layer(data, training=True)
    flipped = np.isclose(got["images"], X[:, :, ::-1]).all((1, 2, 3))
    parameters = {"flips": flipped.reshape(3, 1, 1, 1), "input_shape": X.shape}

    def of_keras():
        peer = keras.layers.RandomFlip("horizontal", bounding_box_format="xywh")
        return peer.transform_bounding_boxes(fresh(data["bounding_boxes"]), parameters)

    expected = golden(of_keras)
    np.testing.assert_allclose(
        got["bounding_boxes"]["boxes"], expected["boxes"], atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "args", "fill_mode", "interpolation"),
    [
        ("RandomRotation", ((0.1, 0.1),), "reflect", "bilinear"),
        ("RandomRotation", ((-0.3, -0.3),), "constant", "nearest"),
        ("RandomZoom", ((0.3, 0.3), (-0.2, -0.2)), "wrap", "bilinear"),
        ("RandomZoom", ((-0.4, -0.4),), "nearest", "bilinear"),
        ("RandomTranslation", ((0.2, 0.2), (-0.3, -0.3)), "reflect", "bilinear"),
    ],
)
def test_maps_as_in_keras(name, args, fill_mode, interpolation, golden):
    options = {
        "interpolation": interpolation,
        "fill_mode": fill_mode,
        "fill_value": 0.3,
    }
    peer = lambda: getattr(keras.layers, name)(*args, **options)  # noqa: E731
    theirs = golden(lambda: peer()(PHOTOS, training=True))
    ours = np.asarray(getattr(L, name)(*args, **options)(PHOTOS, training=True))
    close = np.isclose(ours, theirs, atol=1e-4).all(-1)
    assert close.mean() > (0.95 if interpolation == "nearest" else 0.999)


def test_shear():
    shear = L.RandomShear((0.5, 0.5), fill_mode="constant")
    with key_scope(jax.random.key(0)):
        one = np.asarray(shear(np.repeat(PHOTOS[:1], 8, 0)))
    row = PHOTOS[0, 4, :, 0]  # the fourth row moves by two pixels, to either side
    left, right = np.append(row[2:], [0, 0]), np.append([0, 0], row[:-2])
    to_left = np.isclose(one[:, 4, :, 0], left, atol=1e-5).all(1)
    to_right = np.isclose(one[:, 4, :, 0], right, atol=1e-5).all(1)
    assert (to_left | to_right).all() and to_left.any() and to_right.any()
