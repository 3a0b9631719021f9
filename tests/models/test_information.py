"""``model.info()``: parameters, bytes, loss, optimizer and device."""

import pytest
from tests.models.networks import network

import exburn
from exburn import layers
from exburn.errors import NotBuiltError


def test_info():
    info = network().info()
    assert (info.parameters, info.layers, info["bytes"]) == (83, 2, {"float32": 332})
    assert (info.optimizer, info.loss, info.metrics) == (
        "adam",
        "cross_entropy",
        ("accuracy",),
    )
    assert info.learning_rate == pytest.approx(0.001) and info.compiled
    assert 2 * 332 <= info.optimizer_bytes < 2 * 332 + 64
    assert dict(info)["trainable"] == 83 and set(info) == set(dict(info))
    assert "332 B float32" in str(info) and "adam" in str(info)
    bare = network(compiled=False).info()
    assert (bare.optimizer, bare.loss, bare.compiled) == (None, None, False)
    with pytest.raises(NotBuiltError):
        exburn.Sequential([layers.Dense(2)]).info()


def test_info_counts_bytes_by_dtype():
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, dtype="bfloat16"), layers.Dense(3)]
    )
    assert model.info()["bytes"] == {"bfloat16": 112, "float32": 108}
