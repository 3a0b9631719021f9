"""A model's weights and key figures: read, replaced, copied."""

import jax
import numpy as np
import pytest
from tests.elixir.networks import X, Y, make

import exburn
from exburn.errors import (
    DTypeError,
    ShapeError,
    UnknownNameError,
)


def test_update_params_is_all_or_nothing(model):
    before = model.get_weights()
    for bad, error in (
        ({"hidden/bias": np.ones(6), "nowhere": np.ones(1)}, UnknownNameError),
        ({"hidden/bias": np.ones(6), "out/bias": np.ones(4)}, ShapeError),
        ({"hidden/bias": np.ones(6), "out/bias": ["a", "b", "c"]}, DTypeError),
        ({"hidden/bias": np.ones(6), "out/bias": [1, 2, 3j]}, DTypeError),
        ({"hidden/bias": np.ones(6), "out/bias": [[1], [1, 2], 3]}, DTypeError),
        ([np.ones(6)], DTypeError),
    ):
        with pytest.raises(error):
            exburn.update_params(model, bad)
        for a, b in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    made = make()
    exburn.update_params(made, {"hidden/bias": np.ones(6)})
    assert made.get_layer("hidden").bias.numpy().tolist() == [1.0] * 6


@pytest.mark.long
def test_clone_shares_nothing():
    one = make(clip_norm=1.0)
    one.fit(X, Y, verbose=0)
    twin = exburn.clone(one)
    assert twin.optimizer.iterations == one.optimizer.iterations == 1
    assert twin.optimizer.global_clipnorm == 1.0
    for m in (one, twin):
        m.fit(X, Y, verbose=0, shuffle=False)
    for a, b in zip(one.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)  # the same step, dropout included
    twin.fit(X, Y, verbose=0)
    assert one.optimizer.iterations == 2
    one.fit(X, Y, verbose=0)  # its arrays were not donated by the twin's


def test_info():
    made = make(learning_rate=0.02, weight_decay=0.1)
    found = exburn.info(made)
    assert found == {
        "total_params": 75,
        "layer_count": 4,
        "loss_function": "cross_entropy",
        "optimizer": "adam",
        "learning_rate": 0.02,
        "device": str(jax.devices()[0]),
        "weight_decay": 0.1,
        "frozen_layers_count": 0,
        "estimated_memory_mb": pytest.approx(75 * 4 / 2**20),
        "compiled": True,
    }
    made.get_layer("hidden").trainable = False
    assert exburn.info(made)["frozen_layers_count"] == 1
