"""A vector for every position."""

import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, ShapeError
from exburn.layers import PositionEmbedding


def test_it_is_its_table_for_every_row():
    layer = PositionEmbedding(6)
    x = np.zeros((2, 4, 3), "float32")
    y = layer(x)
    table = np.asarray(layer.embeddings)
    assert table.shape == (6, 3)
    np.testing.assert_array_equal(y, np.stack([table[:4]] * 2))
    np.testing.assert_array_equal(layer(x, start_index=2)[0], table[2:])
    inputs = exburn.Input((None, 3))
    model = exburn.Model(inputs, layer(inputs))
    np.testing.assert_array_equal(model.predict(x, verbose=0), y)


def test_errors():
    with pytest.raises(ArgumentError, match="sequence_length"):
        PositionEmbedding(0)
    with pytest.raises(ShapeError, match="there are 6 positions"):
        PositionEmbedding(6)(np.zeros((1, 7, 3)))
    with pytest.raises(ShapeError, match="features"):
        PositionEmbedding(6)(np.zeros((7, 3)))
