"""Tests of ``exburn.layers.contract.encoding``."""

import json

import numpy as np
import pytest

from exburn import layers as L
from exburn.core import registry


def again(layer):
    """The layer made from the JSON of its configuration."""
    copy = registry.deserialize(json.loads(json.dumps(registry.serialize(layer))))
    assert copy.get_config() == layer.get_config()
    return copy


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("one_hot", np.eye(5)[[1, 2, 3, 4, 0]]),
        ("multi_hot", [[0, 1, 0, 1, 1], [1, 0, 1, 0, 1]]),
        ("count", [[0, 1, 0, 1, 2], [2, 0, 1, 0, 1]]),
        ("tf_idf", [[0, 0.25, 0, 0.6, 0.8], [1.0, 0, 0.75, 0, 0.4]]),
    ],
)
def test_output_modes(mode, expected):
    rows = [["a", "c", "d", "d"], ["d", "z", "b", "z"]]
    rows = list("abcdz") if mode == "one_hot" else rows
    idf = [0.25, 0.75, 0.6, 0.4] if mode == "tf_idf" else None
    layer = L.StringLookup(vocabulary=list("abcd"), output_mode=mode, idf_weights=idf)
    y = layer(rows)
    assert y.dtype == (np.float32 if mode == "tf_idf" else np.int32)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(again(layer)(rows), y)
    padded = L.StringLookup(
        max_tokens=8,
        pad_to_max_tokens=True,
        vocabulary=list("abcd"),
        output_mode=mode,
        idf_weights=idf,
    )(rows)
    assert padded.shape == (*y.shape[:-1], 8)
    np.testing.assert_array_equal(padded[..., :5], y)
    assert not padded[..., 5:].any()
