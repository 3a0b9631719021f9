"""Layers on images beside Keras' layers, where nothing is random."""

import jax
import keras
import numpy as np
import pytest
from tests.layers.check_layer import check_layer
from tests.layers.preprocessing.cases import images, make

from exburn import key_scope
from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

X = images(3, 7, 9, 3)
BYTES = (X * 255).astype("uint8")


def channels_first(x):
    return np.moveaxis(x, -1, -3)


# ------------------------------------------------------------------ sizes
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
def test_resizing_as_in_keras(options, x):
    ours, theirs = L.Resizing(4, 8, **options), keras.layers.Resizing(4, 8, **options)
    y = np.asarray(theirs(x))
    assert ours(x).dtype == y.dtype
    np.testing.assert_allclose(ours(x), y, atol=1e-4)
    if x is X:
        np.testing.assert_allclose(ours(x[0]), y[0], atol=1e-4)
        x, y = channels_first(x), channels_first(y)
        first = L.Resizing(4, 8, data_format="channels_first", **options)
        np.testing.assert_allclose(first(x), y, atol=1e-4)


@pytest.mark.parametrize("size", [(4, 5), (7, 9), (3, 12), (20, 10)], ids=str)
def test_center_crop_as_in_keras(size):
    ours, theirs = L.CenterCrop(*size), keras.layers.CenterCrop(*size)
    np.testing.assert_allclose(ours(X), theirs(X), atol=1e-5)
    np.testing.assert_allclose(ours(X[0]), theirs(X[0]), atol=1e-5)
    assert ours(BYTES).dtype == np.float32


def test_crops_of_masks_and_of_small_images():
    masks = (X[..., 0] > 0.5).astype("int32")
    y = L.CenterCrop(3, 3)({"images": X, "segmentation_masks": masks})
    np.testing.assert_array_equal(y["segmentation_masks"], masks[:, 2:5, 3:6])
    y = L.Resizing(14, 18)({"images": X, "segmentation_masks": masks})
    assert set(np.unique(y["segmentation_masks"])) == {0, 1}
    small = L.RandomCrop(14, 18)
    expected = keras.layers.Resizing(14, 18, crop_to_aspect_ratio=True)(X)
    np.testing.assert_allclose(small(X, training=True), expected, atol=1e-5)
    y = L.RandomCrop(3, 4)(X, training=False)  # the middle, not a window of this size
    expected = keras.layers.Resizing(3, 4, crop_to_aspect_ratio=True)(X)
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


# ------------------------------------------------------------------ geometry
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
def test_maps_as_in_keras(name, args, fill_mode, interpolation):
    options = {
        "interpolation": interpolation,
        "fill_mode": fill_mode,
        "fill_value": 0.3,
    }
    theirs = np.asarray(getattr(keras.layers, name)(*args, **options)(X, training=True))
    ours = np.asarray(getattr(L, name)(*args, **options)(X, training=True))
    close = np.isclose(ours, theirs, atol=1e-4).all(-1)
    assert close.mean() > (0.95 if interpolation == "nearest" else 0.999)


def test_shear():
    shear = L.RandomShear((0.5, 0.5), fill_mode="constant")
    with key_scope(jax.random.key(0)):
        one = np.asarray(shear(np.repeat(X[:1], 8, 0)))
    row = X[0, 4, :, 0]  # the fourth row moves by two pixels, to either side
    left, right = np.append(row[2:], [0, 0]), np.append([0, 0], row[:-2])
    to_left = np.isclose(one[:, 4, :, 0], left, atol=1e-5).all(1)
    to_right = np.isclose(one[:, 4, :, 0], right, atol=1e-5).all(1)
    assert (to_left | to_right).all() and to_left.any() and to_right.any()


def test_perspective_as_in_keras():
    from exburn.layers.preprocessing.image import distortion

    corners = np.array([[0, 0], [8, 0], [0, 6], [8, 6]], "float32")
    moved = corners * (1 + np.random.default_rng(0).uniform(-0.2, 0.2, (4, 2)))
    moved = moved.astype("float32")
    layer = L.RandomPerspective(fill_value=0.5)
    parameters = {"map": distortion._projection(moved, corners), "change": True}
    expected = keras.ops.image.perspective_transform(
        X[0], corners, moved, fill_value=0.5
    )
    np.testing.assert_allclose(layer.transform(X[0], parameters), expected, atol=1e-4)


# ------------------------------------------------------------------ colours
@pytest.mark.parametrize(
    ("name", "options", "highest"),
    [
        ("RandomBrightness", {"factor": (0.2, 0.2)}, 255),
        ("RandomColorDegeneration", {"factor": (0.7, 0.7)}, 255),
        ("RandomHue", {"factor": (1.0, 1.0)}, 255),
        ("RandomHue", {"factor": (1.0, 1.0)}, 1),
        ("RandomSaturation", {"factor": (0.3, 0.3)}, 1),
        ("RandomPosterization", {"factor": (3, 3)}, 255),
        ("RandomPosterization", {"factor": (5, 5)}, 1),
        ("Solarization", {"threshold_factor": (0, 0)}, 1),
        ("RandomInvert", {"factor": (1.0, 1.0)}, 255),
        ("RandomGrayscale", {"factor": 1.0}, None),
        ("AutoContrast", {}, 1),
        ("RandomErasing", {"factor": (1, 1), "scale": (1, 1), "fill_value": 0.2}, 1),
    ],
)
def test_colours_as_in_keras(name, options, highest):
    if highest is not None:
        options = {**options, "value_range": (0, highest)}
    x = X * (highest or 1)
    theirs = getattr(keras.layers, name)(**options)(x, training=True)
    ours = getattr(L, name)(**options)(x, training=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * (highest or 1))


def test_filters_as_in_keras_inside():
    x = X * 255
    inside = np.s_[:, 2:-2, 2:-2]  # borders are repeated here, and black in Keras
    ours = L.RandomSharpness((0.9, 0.9))(x)
    theirs = np.asarray(keras.layers.RandomSharpness((0.9, 0.9))(x, training=True))
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=1e-2)
    options = {"factor": (1.0, 1.0), "kernel_size": (5, 3), "sigma": (0.8, 0.8)}
    ours = L.RandomGaussianBlur(**options)(x)
    theirs = keras.layers.RandomGaussianBlur(**options)(x, training=True)
    np.testing.assert_allclose(ours[inside], np.asarray(theirs)[inside], atol=1e-2)
    grey = np.full_like(x, 100)
    np.testing.assert_allclose(L.RandomGaussianBlur(**options)(grey), 100, rtol=1e-5)


@pytest.mark.parametrize("bins", [40])
def test_equalization_as_in_keras(bins):
    theirs = keras.layers.Equalization(bins=bins)
    layer = L.Equalization(bins=bins)
    expected = [theirs(x[None])[0] for x in X * 255]  # Keras mixes a batch's images
    np.testing.assert_allclose(layer(X * 255), np.stack(expected), atol=1e-3)


CLAHE = "ContrastLimitedAdaptiveHistogramEqualization"


@pytest.mark.parametrize(
    "options",
    [
        {"tile_grid_size": (2, 3)},
        {"tile_grid_size": (3, 2), "clip_limit": 0},
        {"tile_grid_size": (9, 4), "clip_limit": 1.5},  # more tiles than rows
    ],
    ids=str,
)
def test_equalization_of_tiles_as_in_keras(options):
    ours, theirs = getattr(L, CLAHE), getattr(keras.layers, CLAHE)
    for highest, x in ((1, X), (255, X * 255), (255, BYTES)):
        got = ours((0, highest), **options)(x)
        expected = np.asarray(theirs((0, highest), **options)(x))
        assert got.dtype == expected.dtype
        gap = np.abs(np.asarray(got, "float32") - expected.astype("float32"))
        # bytes are cut off, not rounded: a hair makes one of a few of them
        assert (gap > 1e-4 * highest).mean() < (0.01 if x is BYTES else 1e-9)
    first = ours((0, 1), data_format="channels_first", **options)
    np.testing.assert_allclose(
        first(channels_first(X)), channels_first(ours((0, 1), **options)(X)), atol=1e-5
    )


@pytest.mark.parametrize("name", ["AutoContrast", "Equalization", CLAHE])
def test_corrections_are_made_in_inference_too(name):
    layer = make(name)
    if name == CLAHE:  # it takes the one value there is for the darkest
        np.testing.assert_array_equal(layer(X, training=True), layer(X, training=False))
        return
    flat = np.full((1, 4, 4, 3), 0.25, "float32")
    np.testing.assert_allclose(layer(flat, training=False), flat, atol=1e-6)
    a, b = layer(X, training=True), layer(X, training=False)
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, X)
