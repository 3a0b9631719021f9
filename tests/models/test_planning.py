"""``model.plan()``: what one step takes, before it runs."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError

X = np.random.default_rng(0).standard_normal((96, 6)).astype(np.float32)
Y = np.arange(96) % 3


def network(compiled=True, **settings):
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3)]
    )
    if compiled:
        settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
        model.compile("adam", seed=0, **settings)
    return model


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
