"""Tests of ``exburn.layers.core.flax_layer``."""

import copy

import flax.linen as nn
import numpy as np
import pytest
from tests.layers.core.made import (
    PLANES,
    RNG,
    Net,
    Y,
    check_they_learn_and_come_back_from_files,
)

import exburn
from exburn import layers
from exburn.errors import ArgumentError

MAKERS = {
    "linen": lambda **options: layers.FlaxLayer(Net(), **options),
    "a method": lambda **options: layers.FlaxLayer(Net(), Net.plain, **options),
}


def doubled(inputs):
    return 2 * inputs


@pytest.mark.parametrize("name", MAKERS)
def test_they_learn_and_come_back_from_files(name, tmp_path):
    check_they_learn_and_come_back_from_files(MAKERS[name], tmp_path)


def test_statistics_of_a_short_batch_are_its_own():
    """Batch normalization of ``flax.linen`` knows nothing of padding."""
    norm = nn.BatchNorm(use_running_average=False, momentum=0.0)
    inputs = exburn.Input((6, 6, 1))
    layer = layers.FlaxLayer(norm)
    outputs = layers.Dense(3)(layers.Flatten()(layer(inputs)))
    model = exburn.Model(inputs, outputs)
    model.compile("sgd", "mse")
    model.fit(PLANES, Y, batch_size=16, shuffle=False, verbose=0)
    stats = layer.state["batch_stats"]
    np.testing.assert_allclose(stats["mean"], [PLANES[32:].mean()], rtol=1e-5)
    np.testing.assert_allclose(stats["var"], [PLANES[32:].var()], rtol=1e-5)


def test_copies_share_a_module_that_has_no_configuration(tmp_path):
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.FlaxLayer(nn.Dense(3)), layers.JaxLayer(doubled)]
    )
    x = RNG.random((5, 4)).astype("float32")
    for copied in (copy.deepcopy(model), model.clone()):
        np.testing.assert_array_equal(copied(x), model(x))
    fresh = exburn.models.clone_model(model)
    assert not np.array_equal(fresh(x), model(x))
    model.compile("sgd", "mse")
    before = np.asarray(fresh(x))
    model.fit(x, x[:, :3], verbose=0)
    np.testing.assert_array_equal(fresh(x), before)
    with pytest.raises(ArgumentError, match="cannot be described"):
        model.save(tmp_path / "model.keras")
