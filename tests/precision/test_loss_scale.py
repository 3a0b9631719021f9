"""Training in float16: the loss is scaled by itself, and overflows are left out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.optimizers import (
    SGD,
    Adam,
    LossScaleOptimizer,
    MultiOptimizer,
    OptimizerMap,
)

FAINT = 1e-8  # the smallest positive float16 is 6e-8


def regression():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 8)).astype(np.float32)
    return x, x @ rng.standard_normal((8, 1)).astype(np.float32)


def network(policy="mixed_float16", optimizer="sgd", **settings):
    model = exburn.Sequential(
        [exburn.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(1)], dtype=policy
    )
    model.compile(optimizer, "mse", seed=0, **settings)
    return model


@pytest.mark.filterwarnings("ignore::exburn.errors.ConstantLossWarning")
def test_gradients_that_vanish_in_float16_train_with_scaling():
    x, y = regression()
    ends = {}
    for name, policy, scaled in (
        ("float32", "float32", False),
        ("scaled", "mixed_float16", True),
        ("unscaled", "mixed_float16", False),
    ):
        model = network(
            policy,
            SGD(0.05 / FAINT, momentum=0.9),
            loss_weights=FAINT,
            auto_scale_loss=scaled,
        )
        before = model.get_weights()
        losses = model.fit(x, y, epochs=20, verbose=0).history["loss"]
        ends[name] = losses[-1] / losses[0]
        after = model.get_weights()
        moved = any(bool((a != b).any()) for a, b in zip(after, before, strict=True))
        assert moved is (name != "unscaled")
    assert ends["unscaled"] == pytest.approx(1.0, rel=1e-3)
    assert ends["scaled"] < 0.02
    assert ends["scaled"] == pytest.approx(ends["float32"], rel=0.05)


def test_steps_that_overflow_are_left_out_and_counted():
    x, y = regression()
    model = network(optimizer=Adam(0.01))
    optimizer = model.optimizer
    assert isinstance(optimizer, LossScaleOptimizer)
    assert (optimizer.skipped_steps, optimizer.loss_scale) == (0, 2.0**15)
    before = model.get_weights()
    model.fit(x[:32], y[:32] * 1e4, verbose=0)  # 2¹⁵ · 2e4 is no float16
    assert (optimizer.skipped_steps, optimizer.loss_scale) == (1, 2.0**14)
    assert optimizer.iterations == 0
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.fit(x, y * 1e4, epochs=4, verbose=0)
    assert optimizer.skipped_steps + optimizer.iterations == 1 + 4 * 8
    assert optimizer.iterations > 16
    assert optimizer.loss_scale == 2.0 ** (15 - optimizer.skipped_steps)


def test_statistics_of_a_step_that_is_left_out_stay():
    model = exburn.Sequential(
        [exburn.Input((1,)), layers.BatchNormalization(), layers.Dense(1)],
        dtype="mixed_float16",
    )
    model.compile("sgd", "mse", seed=0)
    x = np.full((32, 1), 1.0, np.float32)
    model.train_on_batch(x, x * 1e6)
    assert model.optimizer.skipped_steps == 1
    assert model.layers[0].moving_mean.numpy() == 0.0
    model.train_on_batch(x, x)
    assert model.layers[0].moving_mean.numpy() == pytest.approx(0.01)


def test_the_scale_grows_after_enough_finite_steps():
    x, y = regression()
    optimizer = LossScaleOptimizer(SGD(0.01), 8.0, dynamic_growth_steps=3)
    model = network(optimizer=optimizer)
    model.fit(x[:224], y[:224], verbose=0)  # 7 steps
    assert model.optimizer is optimizer and optimizer.loss_scale == 32.0


@pytest.mark.parametrize(
    ("policy", "options", "wrapped"),
    [
        ("mixed_float16", {}, True),
        ("float16", {}, True),
        ("mixed_bfloat16", {}, False),
        ("float32", {}, False),
        ("mixed_float16", {"auto_scale_loss": False}, False),
        ("mixed_float16", {"optimizer": SGD(0.1, loss_scale_factor=64.0)}, False),
    ],
)
def test_who_gets_a_loss_scale(policy, options, wrapped):
    model = network(policy, **options)
    assert isinstance(model.optimizer, LossScaleOptimizer) is wrapped


def test_a_model_built_by_its_data_gets_one_too():
    class Late(exburn.Model):
        def build(self, input_shape):
            self.head = layers.Dense(1, dtype="mixed_float16")

        def call(self, x):
            return self.head(x)

    x, y = regression()
    model = Late()
    model.compile("sgd", "mse")
    assert not isinstance(model.optimizer, LossScaleOptimizer)
    model.fit(x, y, verbose=0)
    assert isinstance(model.optimizer, LossScaleOptimizer)


def slots(model):
    """What the optimizer keeps for the first kernel."""
    state = model._training_session.holder.opt_state["inner"]
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return [np.array(v) for path, v in leaves if "'dense/kernel'" in str(path)]


def test_a_policy_set_after_training_keeps_the_optimizers_slots():
    x, y = regression()
    model = network("float32", Adam(0.01))
    model.fit(x, y, verbose=0)
    first = slots(model)
    model.get_layer("dense").precision = "mixed_float16"
    model.fit(x[:64], y[:64], verbose=0)
    optimizer = model.optimizer
    assert isinstance(optimizer, LossScaleOptimizer)
    assert optimizer.iterations + optimizer.skipped_steps == 8 + 2
    assert optimizer.skipped_steps < 2
    for now, then in zip(slots(model), first, strict=True):
        assert 0 < np.abs(now - then).max() < 0.5 * np.abs(then).max()


def test_rates_and_schedules_go_through_to_the_optimizer_within():
    inner = Adam(0.01)
    model = network(optimizer=inner)
    x, y = regression()
    model.fit(x, y, verbose=0, callbacks=[exburn.callbacks.LambdaCallback()])
    model.optimizer.learning_rate = 0.5
    assert inner.learning_rate == model.optimizer.learning_rate == 0.5
    model.fit(x, y, verbose=0)
    assert model.trace_counts["train"] == 1


def test_it_surrounds_optimizers_by_path():
    chosen = OptimizerMap(SGD(0.0), {"dense_1/.*": SGD(0.1)})
    model = network(optimizer=MultiOptimizer(chosen))
    x, y = regression()
    before = model.get_weights()
    model.fit(x, y, verbose=0)
    after = model.get_weights()
    np.testing.assert_array_equal(after[0], before[0])
    assert (after[2] != before[2]).any()


def test_its_state_is_part_of_the_optimizers_state():
    model = network()
    x, y = regression()
    model.fit(x, y, verbose=0)
    scale = model._training_session.holder.opt_state["loss_scale"]
    assert scale["factor"].dtype == jnp.float32
    assert model.optimizer.iterations + int(scale["skipped"]) == 8
    assert int(scale["factor"]) == 2 ** (15 - int(scale["skipped"]))
