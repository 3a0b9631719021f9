"""Tests of ``exburn.layers.contract.recurrent_cell``."""

import numpy as np

from exburn import layers


def test_dropout_is_one_mask_a_sequence():
    layer = layers.SimpleRNN(
        4, activation=None, dropout=0.5, return_sequences=True, use_bias=False
    )
    ones = np.ones((8, 6, 16), "float32")
    layer(ones)
    layer.cell.recurrent_kernel.assign(np.zeros((4, 4)))
    y = layer(ones, training=True)
    np.testing.assert_allclose(y, np.array(y)[:, :1].repeat(6, 1), rtol=1e-5)
    assert np.abs(np.array(y)[0] - np.array(y)[1]).max() > 0.01
    np.testing.assert_array_equal(layer(ones), layer(ones))


def test_recurrent_dropout_keeps_the_mean():
    layer = layers.SimpleRNN(
        512,
        activation=None,
        recurrent_initializer="identity",
        recurrent_dropout=0.25,
    )
    x = np.ones((64, 2, 1), "float32")
    layer(x)
    layer.cell.kernel.assign(np.ones((1, 512)))
    y = np.array(layer(x, training=True))  # 1 + kept / 0.75
    assert set(np.round(np.unique(y), 3)) == {1.0, np.float32(2.333)}
    assert abs(y.mean() - 2) < 0.02
