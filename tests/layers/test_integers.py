"""Layers that move, pick or repeat entries keep integers, as in Keras."""

import jax
import numpy as np
import pytest
from tests.golden import keras

from exburn import layers as L

SHAPES = {1: (2, 6, 3), 2: (2, 4, 6, 3), 3: (2, 4, 4, 6, 3)}
DTYPES = ("int32", "uint8", "int8", "bool")


def entries(rank, dtype):
    high = 2 if dtype == "bool" else 100
    return np.random.default_rng(rank).integers(0, high, SHAPES[rank]).astype(dtype)


CASES = [
    *[
        (f"{name}{n}D", (size,), {}, n)
        for n in (1, 2, 3)
        for name, size in (
            ("UpSampling", 2),
            ("ZeroPadding", 1),
            ("Cropping", 1),
            ("MaxPooling", 2),
            ("AdaptiveMaxPooling", 2),
        )
    ],
    *[(f"GlobalMaxPooling{n}D", (), {}, n) for n in (1, 2, 3)],
    ("MaxPooling2D", (3, 2, "same"), {}, 2),
    ("MaxPooling2D", (2, 1), {}, 2),
    ("UpSampling2D", ((2, 3),), {"interpolation": "bilinear"}, 2),
    ("UpSampling2D", (2,), {"interpolation": "bicubic"}, 2),
    ("Resizing", (3, 5), {}, 2),
    ("Resizing", (3, 5), {"interpolation": "nearest"}, 2),
    ("Flatten", (), {}, 2),
    ("Reshape", ((-1,),), {}, 2),
    ("Permute", ((2, 1),), {}, 1),
    ("ReLU", (), {}, 1),
    ("ReLU", (), {"threshold": 5.0}, 1),
    ("Activation", ("relu",), {}, 1),
]


@pytest.mark.parametrize(("name", "args", "options", "rank"), CASES)
def test_values_and_dtypes_as_in_keras(name, args, options, rank, golden):
    # bicubic weights cancel up to a hair, which alone would make a bool true
    dtypes = DTYPES[:3] if "bicubic" in options.values() else DTYPES
    arrays = [entries(rank, dtype) for dtype in dtypes]

    def compute(module):
        layer = getattr(module, name)(*args, **options)
        return jax.jit(lambda arrays: [layer(x) for x in arrays])(arrays)

    theirs, on_cpu = (
        golden(lambda: compute(keras.layers)),
        jax.default_backend() == "cpu",
    )
    for got, expected in zip(compute(L), theirs, strict=True):
        assert got.dtype == expected.dtype
        if on_cpu or got.dtype == bool:
            np.testing.assert_array_equal(got, expected)
        else:  # a weighted sum of 29 may be 28.999998 elsewhere, and is cut off
            np.testing.assert_allclose(got, expected, atol=1)


@pytest.mark.parametrize("name", ["AveragePooling2D", "GlobalAveragePooling2D"])
def test_means_of_bytes_do_not_overflow(name):
    x = np.full((1, 2, 2, 1), 200, "uint8")  # in Keras sums of windows are bytes, too
    assert getattr(L, name)()(x).ravel().tolist() == [200.0]
