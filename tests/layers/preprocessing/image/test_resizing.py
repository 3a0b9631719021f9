"""Tests of ``exburn.layers.preprocessing.image.resizing``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.check_layer import check_layer
from tests.layers.preprocessing.cases import images
from tests.layers.preprocessing.image.beside import BYTES, X, channels_first
from tests.layers.preprocessing.image.some import augment

from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError


def test_crops_are_windows_and_reach_every_place():
    x = np.repeat(np.arange(20.0).reshape(1, 4, 5, 1), 200, 0)
    y = augment(L.RandomCrop(3, 3), x)[..., 0]
    corners = y[:, 0, 0]
    assert set(corners) == {0, 1, 2, 5, 6, 7}
    expected = corners[:, None, None] + np.arange(3)[:, None] * 5 + np.arange(3)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"interpolation": "nearest"},
        {"interpolation": "bicubic", "antialias": True},
        {"crop_to_aspect_ratio": True},
        {"pad_to_aspect_ratio": True, "fill_value": 3.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("x", [X, BYTES], ids=["floats", "bytes"])
def test_resizing_as_in_keras(options, x, golden):
    ours = L.Resizing(4, 8, **options)
    y = golden(lambda: keras.layers.Resizing(4, 8, **options)(x))
    assert ours(x).dtype == y.dtype
    np.testing.assert_allclose(ours(x), y, atol=1e-4)
    if x is X:
        np.testing.assert_allclose(ours(x[0]), y[0], atol=1e-4)
        x, y = channels_first(x), channels_first(y)
        first = L.Resizing(4, 8, data_format="channels_first", **options)
        np.testing.assert_allclose(first(x), y, atol=1e-4)


@pytest.mark.parametrize("size", [(4, 5), (7, 9), (3, 12), (20, 10)], ids=str)
def test_center_crop_as_in_keras(size, golden):
    ours, peer = L.CenterCrop(*size), lambda: keras.layers.CenterCrop(*size)
    for x, theirs in zip(
        (X, X[0]), golden(lambda: (peer()(X), peer()(X[0]))), strict=True
    ):
        np.testing.assert_allclose(ours(x), theirs, atol=1e-5)
    assert ours(BYTES).dtype == np.float32


def test_crops_of_masks_and_of_small_images(golden):
    masks = (X[..., 0] > 0.5).astype("int32")
    y = L.CenterCrop(3, 3)({"images": X, "segmentation_masks": masks})
    np.testing.assert_array_equal(y["segmentation_masks"], masks[:, 2:5, 3:6])
    y = L.Resizing(14, 18)({"images": X, "segmentation_masks": masks})
    assert set(np.unique(y["segmentation_masks"])) == {0, 1}
    small = L.RandomCrop(14, 18)
    peer = lambda *size: keras.layers.Resizing(*size, crop_to_aspect_ratio=True)  # noqa: E731
    expected = golden(lambda: peer(14, 18)(X))
    np.testing.assert_allclose(small(X, training=True), expected, atol=1e-5)
    y = L.RandomCrop(3, 4)(X, training=False)  # the middle, not a window of this size
    expected = golden(lambda: peer(3, 4)(X))
    np.testing.assert_allclose(y, expected, atol=1e-5)


@pytest.mark.parametrize("cls", [L.Resizing, L.CenterCrop])
def test_contract_of_sizes(cls):
    x = images(4, 7, 9, 3)
    check_layer(lambda **o: cls(4, 5, **o), x)
    for size in ((None, None, 3), (7, None, 3)):
        assert cls(4, 5).compute_output_shape((None, *size)) == (None, 4, 5, 3)
    with pytest.raises(ArgumentError):
        cls(0, 3)
    with pytest.raises(ShapeError, match="rank"):
        cls(2, 2)(X[0, 0])
