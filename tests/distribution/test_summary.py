"""What ``model.sharding_summary()`` tells agrees with where the arrays lie."""

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import distribution, layers
from exburn.distribution import tensor_parallel
from exburn.errors import LayoutError

X = np.random.default_rng(0).standard_normal((16, 32)).astype("float32")
MESH = {"data": 2, "model": 4}


def network(**keys):
    model = exburn.Sequential(
        [
            exburn.Input((32,)),
            layers.Dense(128, "relu", name="up"),
            layers.Dense(32, name="down"),
            layers.BatchNormalization(name="norm"),
        ]
    )
    model.compile("adam", "mse", **keys)
    return model


def test_one_device():
    model = network()
    summary = model.sharding_summary()
    assert [row.path for row in summary] == [w.path for w in model.weights]
    assert (
        summary.bytes_per_device
        == summary.replicated_bytes
        == 4 * (32 * 128 + 128 + 128 * 32 + 32 + 4 * 32)
    )
    trained = sum(w.value.nbytes for w in model.trainable_weights)
    assert 2 * trained <= summary.optimizer_bytes < 2 * trained + 64
    assert "One device" in str(summary) and "33.12 KB a device" in str(summary)
    bare = exburn.Sequential([exburn.Input((4,)), layers.Dense(2)])
    assert bare.sharding_summary().optimizer_bytes is None


def test_before_it_is_built():
    model = exburn.Sequential([layers.Dense(4)])
    model.compile("sgd", "mse", mesh={"data": 1})
    assert not model.sharding_summary()
    assert "No weights before the model is built" in str(model.sharding_summary())
    model.fit(X, X[:, :4], verbose=0)
    assert len(model.sharding_summary()) == 2


def held(model):
    """Bytes of the weights on each device, as they lie there."""
    arrays = [weight.value for weight in model.weights]
    return sum(array.addressable_shards[0].data.nbytes for array in arrays)


SETTINGS = {
    "data": {"mesh": "data"},
    "fsdp": {"mesh": "fsdp"},
    "zero": {"mesh": "zero"},
    "model": {"mesh": MESH},
}


@pytest.mark.parametrize("kind", SETTINGS)
@on_devices
def test_it_agrees_with_the_arrays(kind):
    settings = dict(SETTINGS[kind])
    if kind == "zero":
        settings["mesh"] = distribution.ZeRO(1)
    if kind == "model":
        settings["layout"] = {
            "up/kernel": (None, "model"),
            "up/bias": ("model",),
            "down/kernel": ("model", None),
        }
    model = network(**settings)
    planned = model.sharding_summary()
    model.fit(X, X, verbose=0)
    summary = model.sharding_summary()
    assert list(summary) == list(planned)
    assert summary.bytes_per_device == held(model)
    slots = jax.tree.leaves(model._training_session.holder.opt_state)
    own = sum(v.addressable_shards[0].data.nbytes for v in slots)
    assert summary.optimizer_bytes == planned.optimizer_bytes == own
    for row, weight in zip(summary, model.weights, strict=True):
        assert row.is_whole == weight.value.is_fully_replicated
    rules = {row.path: row.rule for row in summary}
    assert (
        rules["up/kernel"]
        == {
            "data": "whole on every device",
            "fsdp": "longest axis that divides evenly",
            "zero": "stage 1",
            "model": "up/kernel",
        }[kind]
    )


@on_devices
def test_adapters_bits_and_global_distributions():
    model = network()
    model.add_lora(4)
    model.compile("adam", "mse", mesh=MESH, layout=tensor_parallel(model))
    rows = {row.path: row for row in model.sharding_summary()}
    assert rows["up/lora_a"].is_whole and not rows["down/lora_a"].is_whole
    assert rows["norm/gamma"].rule == "whole on every device"
    model.fit(X, X, verbose=0)
    assert model.sharding_summary().bytes_per_device == held(model)
    small = network().quantize("int8")
    with distribution.FSDP().scope():
        summary = small.sharding_summary()
        assert "FSDP(DeviceMesh(fsdp=8))" in str(summary)
        assert len(summary) == len([*summary]) and summary.bytes_per_device > 0
    assert "One device" in str(small.sharding_summary())


@on_devices
def test_bad_rules_are_told():
    model = network(mesh=MESH, layout={"nowhere": ("model",)})
    with pytest.raises(LayoutError, match="matches no weight"):
        model.sharding_summary()
