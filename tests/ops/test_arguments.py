"""Kinds of arguments that Keras' ops take: any axis, numbers, other dtypes."""

import numpy as np
import pytest
from tests.golden import keras

from exburn import activations, ops

_rng = np.random.default_rng(0)
X = _rng.uniform(-2, 2, (3, 4)).astype("float32")
P = _rng.uniform(0.1, 0.9, (3, 4)).astype("float32")
BITS = (X > 0).astype("float32")
IMAGE = _rng.uniform(-2, 2, (2, 5, 5, 2)).astype("float32")
KERNEL = _rng.uniform(-2, 2, (3, 3, 2, 3)).astype("float32")
HALF = KERNEL.astype("float16")

CALLS = {
    "softmax-all": ("softmax", (X,), {"axis": None}),
    "softmax-list": ("softmax", (X,), {"axis": [0, 1]}),
    "softmax-none": ("softmax", (X,), {"axis": []}),
    "softmax-numpy": ("softmax", (X,), {"axis": np.int64(0)}),
    "log_softmax-all": ("log_softmax", (X,), {"axis": None}),
    "median-list": ("median", (X,), {"axis": [0, 1]}),
    "argsort-number": ("argsort", (3.0,), {}),
    "moments-all": ("moments", (X,), {"axes": None}),
    "moments-array": ("moments", (X,), {"axes": np.array([0, 1])}),
    "normalize-all": ("normalize", (X,), {"axis": None}),
    "normalize-number": ("normalize", (np.float32(-3),), {}),
    "unstack-array": ("unstack", (X,), {"axis": np.array(1)}),
    "rms-number": ("rms_normalization", (X,), {"scale": 2.0, "axis": 0}),
    "rms-row": ("rms_normalization", (X,), {"scale": X[0], "axis": 0}),
    "rms-whole": ("rms_normalization", (X,), {"scale": X, "axis": 0}),
    "rms-all": ("rms_normalization", (X,), {"axis": None}),
    "rms-alone": ("rms_normalization", (np.float32(1.5),), {}),
    "layer-array": ("layer_normalization", (X,), {"axis": np.array([0, 1])}),
    "batch-half": ("batch_normalization", (X.astype("float16"), P[0], P[0], -1), {}),
    "multi_hot-number": ("multi_hot", (2, 4), {}),
    "one_hot-floats": ("one_hot", (np.array([0.5, 2.0], "float32"), 3), {}),
    "binary-half": ("binary_crossentropy", (BITS, P.astype("float16")), {}),
    "binary-bools": ("binary_crossentropy", (BITS, X > 0), {}),
    "binary-bytes": ("binary_crossentropy", (BITS, (X > 0).astype("uint8")), {}),
    "sparse-half": (
        "sparse_categorical_crossentropy",
        (np.array([0, 3, 1]), P.astype("float16")),
        {},
    ),
    "conv-half": ("conv", (IMAGE, HALF), {}),
    "conv-half-images": ("conv", (IMAGE.astype("float16"), KERNEL), {}),
    "conv-whole-images": ("conv", (IMAGE.astype("int32"), KERNEL), {}),
    "to-numpy-list": ("convert_to_numpy", ([1.0, 2.0],), {}),
    "to-numpy-wide": ("convert_to_numpy", (np.zeros(2),), {}),
    "dtype-wide": ("dtype", (np.zeros(2),), {}),
    "max_pool-bools": ("max_pool", (IMAGE > 0, (2, 2), (2, 2)), {}),
    "resize-bools": ("image.resize", (IMAGE > 0, (3, 4)), {}),
}


def call(package, name, args, options):
    for part in name.split("."):
        package = getattr(package, part)
    result = package(*args, **options)
    return result if isinstance(result, list | tuple) else [result]


@pytest.mark.filterwarnings("ignore:jax.nn.one_hot input")  # of Keras, with floats
@pytest.mark.parametrize(("name", "args", "options"), CALLS.values(), ids=CALLS)
def test_as_in_keras(name, args, options, golden):
    got = call(ops, name, args, options)
    wanted = golden(lambda: call(keras.ops, name, args, options))
    for mine, other in zip(got, wanted, strict=True):
        if isinstance(other, str):
            assert mine == other
            continue
        assert mine.dtype == other.dtype
        half = other.dtype == "float16"
        np.testing.assert_allclose(mine, other, rtol=2e-2 if half else 1e-4, atol=1e-3)


def test_kernels_of_integers_do_not_cut_fractions_off():
    """Keras makes integers of the images."""
    whole = KERNEL.astype("int32")
    expected = ops.conv(IMAGE, whole.astype("float32"))
    np.testing.assert_allclose(ops.conv(IMAGE, whole), expected)


def test_scales_that_cannot_be_broadcast_are_along_the_axis():
    scale = np.array([1.0, 2.0, 3.0], "float32")
    got = ops.rms_normalization(X, scale, axis=0)
    expected = ops.rms_normalization(X, axis=0) * scale[:, None]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_axes_of_activations():
    for axis in (None, (0, 1), [1], np.int64(0)):
        got = activations.softmax(X, axis=axis)
        wanted = keras.activations.softmax(X, axis=axis)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
