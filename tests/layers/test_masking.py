"""Tests of ``exburn.layers.masking``."""

import numpy as np

from exburn import Input, layers

X = np.array([[[1.0, 2.0], [9.0, 9.0], [9.0, 1.0]], [[9.0, 9.0]] * 3], "float32")


def test_steps_of_the_value_alone_are_zero_and_masked():
    layer = layers.Masking(mask_value=9.0)
    np.testing.assert_array_equal(
        layer(X), [[[1, 2], [0, 0], [9, 1]], np.zeros((3, 2))]
    )
    assert np.asarray(layer.compute_mask(X)).tolist() == [
        [True, False, True],
        [False] * 3,
    ]
    assert layers.Masking().compute_mask(X * 0 + 1).all()


def test_the_mask_reaches_the_layers_behind_it():
    y = layers.Masking(9.0)(X)
    mean = layers.GlobalAveragePooling1D()(y)
    np.testing.assert_allclose(mean[0], [5, 1.5])
    assert np.isfinite(mean).all()


def test_it_is_described_and_infers_its_shape():
    layer = layers.Masking(mask_value=-1.0, name="gap")
    again = layers.Masking.from_config(layer.get_config())
    assert (again.mask_value, again.name) == (-1.0, "gap")
    assert again(Input((None, 4))).shape == (None, None, 4)
