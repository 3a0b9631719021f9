"""Tests of ``exburn.optimizers.loss_scale``."""

import jax
import jax.numpy as jnp
import numpy as np
from tests.golden import keras

from exburn import optimizers
from exburn.optimizers import SGD, AdamW, LossScaleOptimizer


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


def test_loss_scale_optimizer(trajectories):
    def make(library):
        return library.LossScaleOptimizer(
            library.SGD(0.1, momentum=0.5), initial_scale=16.0, dynamic_growth_steps=7
        )

    grads = trajectories.grads["kernel"]
    saved = grads[9].copy(), grads[30].copy()
    try:  # two overflows among the gradients
        grads[9, 0, 0], grads[30, 2, 3] = float("inf"), float("nan")
        ours = trajectories.ours(make(optimizers))
        theirs = trajectories.keras(lambda: make(keras.optimizers))
    finally:
        grads[9], grads[30] = saved
    trajectories.assert_close(ours, theirs)


def test_loss_scale_judges_a_group_of_batches_by_its_mean():
    optimizer = optimizers.LossScaleOptimizer(
        plain(1.0, gradient_accumulation_steps=2), initial_scale=8.0
    )
    params = {"w": np.zeros(1, np.float32)}
    state, seen = optimizer.init(params), []
    for grad in (8.0, 24.0, np.inf, 8.0, 4.0, 4.0):
        params, state = optimizer.update({"w": jnp.array([grad])}, state, params)
        seen.append((float(params["w"][0]), float(state["loss_scale"]["factor"])))
    # One finite group; one that is left out and halves the scale; one more.
    assert seen == [(0, 8), (-2, 8), (-2, 8), (-2, 4), (-2, 4), (-3, 4)]


def test_loss_scale_stays_finite_and_above_zero():
    optimizer = LossScaleOptimizer(plain(), initial_scale=2.0**99)
    params = {"w": np.zeros(1, np.float32)}
    for grad, end in ((0.0, 2.0**100), (np.nan, 2.0**-100)):
        optimizer.dynamic_growth_steps = 1

        def step(carry, _, grad=grad):
            return optimizer.update({"w": jnp.full(1, grad)}, *carry[::-1]), None

        carry, _ = jax.lax.scan(step, (params, optimizer.init(params)), length=300)
        assert float(carry[1]["loss_scale"]["factor"]) == end
        assert float(carry[0]["w"][0]) == 0.0


def test_loss_scale_optimizer_passes_the_rate_through():
    inner = AdamW(0.5, use_ema=True)
    optimizer = LossScaleOptimizer(inner)
    params = {"w": np.ones(2, np.float32)}
    box = [optimizer.init(params)]
    optimizer.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    optimizer.learning_rate = 0.25
    optimizer.scale = 0.5
    assert (inner.learning_rate, inner.scale) == (0.25, 0.5)
    assert float(optimizer.rate(box[0])) == 0.125
    box[0] = optimizer.with_hyperparameters(box[0], loss_scale=4.0, learning_rate=1.0)
    found = optimizer.hyperparameters(box[0])
    assert (found["loss_scale"], found["learning_rate"]) == (4.0, 1.0)
    np.testing.assert_array_equal(optimizer.final_params(box[0], params)["w"], [1, 1])
