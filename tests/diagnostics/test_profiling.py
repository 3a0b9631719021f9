"""Tests of ``exburn.diagnostics.profiling``."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError


def test_each_layer_has_its_time_and_the_model_stays_as_it_was():
    ids = exburn.Input((6,), dtype="int32")
    shared = layers.Dense(5, name="shared")
    h = layers.Embedding(20, 5, mask_zero=True, name="table")(ids)
    inner = exburn.Sequential([layers.LSTM(5, name="lstm")], name="inner")
    h = inner(shared(shared(h)))
    h = layers.BatchNormalization(name="norm")(layers.Dropout(0.5, name="drop")(h))
    model = exburn.Model(ids, layers.Dense(3, name="out")(h))
    model.compile("adam", "cross_entropy", seed=0)
    x = np.random.default_rng(0).integers(0, 20, (16, 6))
    y = np.arange(16) % 3
    before = [w.tobytes() for w in model.get_weights()]
    found = model.profile(x, y, batch_size=8, seconds=0.001)
    assert [w.tobytes() for w in model.get_weights()] == before
    paths = {layer.path: layer for layer in found.layers}
    assert list(paths) == ["table", "shared", "inner/lstm", "drop", "norm", "out"]
    assert paths["shared"].calls == 2 and paths["shared"].kind == "Dense"
    assert paths["out"].parameters == 18 and paths["drop"].parameters == 0
    assert all(layer.forward > 0 and layer.backward >= 0 for layer in found.layers)
    assert found.step > 0 and found.batch_size == 8 and found.slowest in found.layers
    assert "inner/lstm" in str(found) and "Backward" in str(found)
    labels = [text.get_text() for text in found.plot().axes[0].get_yticklabels()]
    assert labels[1] == "shared  (Dense)"
    with pytest.raises(ArgumentError, match="seconds must be a number > 0"):
        model.profile(x, y, seconds=0)
