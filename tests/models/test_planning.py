"""``model.plan()``: what one step takes, before it runs."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.models.networks import network

import exburn
from exburn import distribution, layers
from exburn.errors import ArgumentError, LayoutError
from exburn.runtime.sharding.arrays import held_bytes

X = np.random.default_rng(0).standard_normal((96, 6)).astype(np.float32)
Y = np.arange(96) % 3


def test_a_plan_compiles_and_runs_nothing_that_counts():
    model = network()
    before = model.get_weights()
    plan = model.plan(32, largest=False)
    assert (plan.program, plan.batch_size, plan.fits) == ("train", 32, True)
    # Forward 2·32·(6·8 + 8·3); the gradients of both kernels, and of the hidden layer.
    assert plan.flops == 2 * 32 * (2 * 48 + 3 * 24)
    parts = plan.state_bytes + plan.batch_bytes + plan.temporary_bytes
    assert parts <= plan.peak_bytes <= parts + plan.output_bytes + 64
    assert plan["largest_batch"] is None and "Peak" in str(plan)
    assert model.trace_counts == {}
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.fit(X, Y, verbose=0)
    assert model.trace_counts["train"] == 1


@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        ({"loss": "mse"}, 4 * 3 * 16),
        ({"loss": "cross_entropy"}, 4 * 3 * 16),
        ({"loss": "sparse_categorical_crossentropy"}, 4 * 16),
    ],
)
def test_a_plan_guesses_targets(settings, targets):
    plan = network(metrics=None, **settings).plan(16, largest=False)
    assert plan.batch_bytes == 4 * 6 * 16 + targets


def test_without_a_loss_it_is_a_plan_of_predict():
    model = network(compiled=False)
    plan = model.plan(64, largest=False)
    assert plan.program == "predict" and plan.flops == 2 * 64 * 72
    assert plan.output_bytes == 64 * 3 * 4


def test_free_sizes_need_data():
    model = exburn.Sequential([exburn.Input((None, 4)), layers.LSTM(3)])
    with pytest.raises(ArgumentError, match="is free"):
        model.plan(8)
    plan = model.plan(8, np.zeros((1, 7, 4), np.float32), largest=False)
    assert plan.batch_bytes == 4 * 8 * 7 * 4


# ------------------------------------------------------------------ several devices
def wide(**settings):
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(256, "relu", name="up"),
            layers.Dense(64, name="down"),
        ]
    )
    model.compile("adam", "mse", seed=0, **settings)
    return model


MESH = {"data": 2, "model": 4}
WIDE = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.mark.parametrize("kind", ["data", "fsdp", "model"])
@on_devices
def test_a_plan_of_a_mesh_is_of_each_device(kind):
    model = wide()
    one = model.plan(4096, largest=False)
    layout = distribution.tensor_parallel(model) if kind == "model" else None
    mesh = MESH if kind == "model" else kind
    mesh = distribution.FSDP(min_size=1) if kind == "fsdp" else mesh
    plan = model.plan(4096, largest=False, mesh=mesh, layout=layout, rate=1e9)
    assert model.trace_counts == {} and model._training_session.distribution is None
    assert one.mesh is None and one.step_time is None and plan.flops == one.flops
    parts = 2 if kind == "model" else 8
    assert plan.batch_bytes == one.batch_bytes / parts
    assert plan.temporary_bytes < one.temporary_bytes
    if kind == "data":
        assert plan.state_bytes == one.state_bytes
    else:
        assert plan.state_bytes <= one.state_bytes / (8 if kind == "fsdp" else 4) * 1.05
    parts = plan.state_bytes + plan.batch_bytes + plan.temporary_bytes
    assert parts <= plan.peak_bytes <= parts + plan.output_bytes + 64
    assert plan.step_time.compute == pytest.approx(one.flops / 8 / 1e9, rel=0.01)
    said = str(plan)
    assert "bytes of each" in said and "all-reduce" in said and "latency" in said
    # What is compiled in is planned without being asked for, and is what then runs.
    ours = wide(mesh=mesh, layout=layout)
    again = ours.plan(4096, largest=False, rate=1e9)
    assert (again.state_bytes, again.peak_bytes) == (plan.state_bytes, plan.peak_bytes)
    ours.fit(WIDE, WIDE, 64, verbose=0)
    state = ours._training_session.preparer.initial_state()
    assert held_bytes(state.params) <= plan.state_bytes
    assert ours.plan(4096, largest=False, rate=1e9).peak_bytes == plan.peak_bytes
    summary = ours.sharding_summary()
    weights = summary.bytes_per_device + summary.optimizer_bytes
    assert 0 <= plan.state_bytes - weights < 64


@on_devices
def test_a_planned_batch_is_filled_up():
    model = wide(mesh="data")
    plan = model.plan(60, largest=False)
    assert plan.batch_size == 60 and plan.batch_bytes == 8 * 2 * 64 * 4
    most = model.plan(60).largest_batch
    assert most > 60
    predicted = exburn.Sequential([exburn.Input((64,)), layers.Dense(8)])
    plan = predicted.plan(64, largest=False, mesh="data")
    assert plan.program == "predict" and plan.batch_bytes == 8 * 64 * 4


@on_devices
def test_plans_of_meshes_that_cannot_be():
    model = wide()
    for mesh, layout in (({"data": 99}, None), (MESH, {"up/kernell": (None, "model")})):
        with pytest.raises(LayoutError):
            model.plan(64, mesh=mesh, layout=layout)
    with pytest.raises(ArgumentError, match="link must be"):
        model.plan(64, mesh="data", link="nvlinks")
    with pytest.raises(ArgumentError, match="rate must be"):
        model.plan(64, mesh="data", rate=-1)
    model.fit(WIDE, WIDE, verbose=0)
