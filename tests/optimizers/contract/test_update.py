"""Tests of ``exburn.optimizers.contract.update``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

from exburn import optimizers
from exburn.errors import ArgumentError
from exburn.optimizers import SGD, Adam


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


@pytest.mark.parametrize("every", [None, 4])
def test_moving_average(every, trajectories):
    options = {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": every}
    ours = trajectories.ours(optimizers.SGD(0.1, 0.5, **options))
    theirs = trajectories.keras(lambda: keras.optimizers.SGD(0.1, 0.5, **options))
    trajectories.assert_close(ours, theirs)


def test_options_cost_nothing_unless_used():
    params = {"w": np.ones((4, 3), np.float32)}

    def primitives(optimizer):
        state = optimizer.init(params)
        text = str(jax.make_jaxpr(optimizer.update)(params, state, params))
        return text, set(state)

    text, keys = primitives(plain())
    assert keys == {"rate", "inner"}
    arrays = [line for line in text.splitlines() if ":f32[4,3] =" in line]
    # -η·g, p + that (and conversions that are free)
    assert len([a for a in arrays if " = convert" not in a]) <= 3, arrays
    assert not any("select_n" in line for line in arrays)
    _, keys = primitives(plain(use_ema=True, gradient_accumulation_steps=2))
    assert keys == {"rate", "inner", "average", "accumulated"}


def test_bfloat16_parameters_have_float32_moments():
    optimizer = Adam(0.01)
    params = {"w": jnp.ones(4, jnp.bfloat16)}
    state = optimizer.init(params)
    moments = jax.tree.leaves(state["inner"])
    assert {m.dtype for m in moments} == {jnp.dtype("float32")}


def test_moving_average_and_final_parameters():
    optimizer = plain(1.0, use_ema=True, ema_momentum=0.5)
    params = {"w": np.zeros(1, np.float32)}
    state = optimizer.init(params)
    np.testing.assert_array_equal(optimizer.ema_params(state)["w"], [0.0])
    ones = {"w": np.ones(1, np.float32)}
    for _ in range(3):  # −1, −2, −3
        params, state = optimizer.update(ones, state, params)
    assert float(optimizer.ema_params(state)["w"][0]) == -2.25
    assert float(optimizer.final_params(state, params)["w"][0]) == -2.25
    without = plain()
    assert without.final_params(without.init(params), params) is params
    with pytest.raises(ArgumentError, match="use_ema=True"):
        without.ema_params(without.init(params))


def test_final_parameters_have_the_dtype_of_the_parameters():
    optimizer = plain(use_ema=True)
    params = {"w": jnp.ones(2, jnp.bfloat16)}
    state = optimizer.init(params)
    assert optimizer.ema_params(state)["w"].dtype == jnp.float32
    assert optimizer.final_params(state, params)["w"].dtype == jnp.bfloat16
