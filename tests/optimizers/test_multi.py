"""Tests of ``exburn.optimizers.multi``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.optimizers.quadratic import plain

from exburn import optimizers
from exburn.errors import ArgumentError, DTypeError, UnknownNameError
from exburn.optimizers import (
    SGD,
    LossScaleOptimizer,
    MultiOptimizer,
    OptimizerMap,
    schedules,
)


def plain_of_options(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


def one_step(optimizer, grads, params):
    return optimizer.update(grads, optimizer.init(params), params)


def test_multi_optimizer(trajectories):
    def make(library):
        choice = library.OptimizerMap(
            library.Lion(0.01), {"bias": library.SGD(0.1, momentum=0.5)}
        )
        choice["k.*l|em"] = library.Adamax(0.1)
        return library.MultiOptimizer(choice)

    names = ("kernel", "bias", "embedding")
    ours = trajectories.ours(make(optimizers), names)
    theirs = trajectories.keras(lambda: make(keras.optimizers), names)
    trajectories.assert_close(ours, theirs)


def test_multi_optimizer_has_many_rates():
    params = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}
    grads = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    slow, fast = plain(0.25), plain(schedules.ExponentialDecay(0.5, 1, 0.5))
    optimizer = MultiOptimizer(OptimizerMap(slow, {"b": fast}))
    box = [optimizer.init(params)]
    optimizer.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    update = jax.jit(optimizer.update)

    def steps():
        new, box[0] = update(grads, box[0], params)
        return [-round(float(new[name][0]), 6) for name in ("a", "b")]

    assert steps() == [0.25, 0.5]
    slow.learning_rate = 0.125
    assert steps() == [0.125, 0.25]
    optimizer.scale = 0.5
    assert steps() == [0.0625, 0.0625]
    assert (slow.iterations, fast.iterations, optimizer.iterations) == (3, 3, 3)
    index = optimizer.optimizers.index(slow)
    box[0] = optimizer.with_hyperparameters(
        box[0], **{f"{index}/learning_rate": 0.5, f"{index}/scale": 1.0}
    )
    assert steps()[0] == 0.5
    assert optimizer.hyperparameters(box[0])[f"{index}/learning_rate"] == 0.5
    optimizer.bind(None, None)  # the next run goes on where this one ended
    assert (slow.learning_rate, slow.scale, fast.scale) == (0.5, 1.0, 0.5)
    for use in (
        lambda: optimizer.learning_rate,
        lambda: setattr(optimizer, "learning_rate", 0.1),
    ):
        with pytest.raises(ArgumentError, match="one for each"):
            use()
    with pytest.raises(UnknownNameError):
        optimizer.with_hyperparameters(box[0], learning_rate=0.1)


def test_function_chooses_an_optimizer_once_per_parameter():
    asked = []

    def choose(parameter):
        asked.append((parameter.path, parameter.name, parameter.shape))
        return plain(1.0 if parameter.name == "bias" else 0.5)

    params = {"d": {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}}
    optimizer = MultiOptimizer(choose)
    state = optimizer.init(params)
    ones = jax.tree.map(jnp.ones_like, params)
    new, _ = optimizer.update(ones, state, params)
    assert float(new["d"]["bias"][0]) == -1.0
    assert float(new["d"]["kernel"][0, 0]) == -0.5
    assert sorted(asked) == [("d/bias", "bias", (2,)), ("d/kernel", "kernel", (2, 2))]


def test_optimizer_map_refuses_what_is_ambiguous():
    optimizer = plain()
    chosen = OptimizerMap(optimizer, {"a/.*": plain(), "a/b": plain(0.5)})
    assert chosen["a/b"].learning_rate == 0.5  # the exact path goes first
    chosen["a/c.*"] = plain()
    with pytest.raises(ArgumentError, match="more than one pattern"):
        _ = chosen["a/cd"]
    with pytest.raises(ArgumentError, match="already"):
        chosen["a/b"] = plain()
    with pytest.raises(ArgumentError, match="regular expression"):
        chosen["a/("] = plain()
    with pytest.raises(DTypeError, match="LossScaleOptimizer around"):
        chosen["x"] = optimizers.LossScaleOptimizer(plain())
    with pytest.raises(DTypeError, match="OptimizerMap"):
        MultiOptimizer({"a": plain()})  # type: ignore[arg-type]


def test_loss_scale_around_several_optimizers_divides_once():
    parts = optimizers.OptimizerMap(plain_of_options(), {"b": plain_of_options(0.5)})
    several = optimizers.MultiOptimizer(parts, loss_scale_factor=8.0)
    assert [o.loss_scale_factor for o in several.optimizers] == [8.0, 8.0]
    optimizer = LossScaleOptimizer(several, initial_scale=4.0)
    params = {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}
    grads = {"a": np.full(1, 4.0, np.float32), "b": np.full(1, 4.0, np.float32)}
    new, _ = one_step(optimizer, grads, params)
    assert (float(new["a"][0]), float(new["b"][0])) == (-1.0, -0.5)
