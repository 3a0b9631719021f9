"""Tests of ``exburn.optimizers.optax_optimizer``."""

import jax
import jax.numpy as jnp
import optax
import pytest
from tests.optimizers.quadratic import PARAMS, Live

from exburn import optimizers
from exburn.errors import ArgumentError, DTypeError, NotBuiltError, UnknownNameError
from exburn.optimizers import SGD, OptaxOptimizer, schedules


def test_injected_learning_rate():
    rule = optax.inject_hyperparams(optax.sgd, static_args=("momentum", "nesterov"))
    optimizer = optimizers.get(
        optax.chain(optax.clip(5.0), rule(learning_rate=0.5, momentum=None))
    )
    assert optimizer.learning_rate == 0.5
    live = Live(optimizer)
    assert live.step() == 0.5
    optimizer.learning_rate = 0.25
    assert live.step() == 0.25
    assert optimizer.learning_rate == 0.25
    live.state = optimizer.with_hyperparameters(
        live.state, scale=0.5, warmup_from=0.1, warmup_to=0.1, warmup_steps=3
    )
    assert [live.step(), live.step()] == [0.1, 0.125]
    assert live.traces == 1


def test_learning_rate_set_before_init_reaches_the_injected_state():
    optimizer = optimizers.get(optax.inject_hyperparams(optax.sgd)(learning_rate=0.5))
    optimizer.learning_rate = 0.125
    assert Live(optimizer).step() == 0.125


def test_other_injected_hyperparameters():
    rule = optax.inject_hyperparams(optax.adamw)(learning_rate=0.5, weight_decay=0.25)
    optimizer = optimizers.get(rule)
    state = optimizer.init(PARAMS)
    state = optimizer.with_hyperparameters(state, weight_decay=0.125, b1=0.5)
    found = optimizer.hyperparameters(state)
    assert (found["weight_decay"], found["b1"], found["learning_rate"]) == (
        0.125,
        0.5,
        0.5,
    )
    with pytest.raises(UnknownNameError, match="weight_decay"):
        optimizer.with_hyperparameters(state, weight_deca=0.1)


def test_hidden_learning_rate_tells_the_way_out():
    optimizer = optimizers.get(optax.adam(0.1))
    live = Live(optimizer)
    live.step()
    for use in (
        lambda: optimizer.learning_rate,
        lambda: setattr(optimizer, "learning_rate", 0.1),
        lambda: optimizer.with_hyperparameters(live.state, scale=0.1),
    ):
        with pytest.raises(ArgumentError, match="inject_hyperparams"):
            use()
    assert optimizer.hyperparameters(live.state) == {}


def test_injected_schedule_can_be_read_but_not_set():
    rule = optax.inject_hyperparams(optax.sgd)(learning_rate=lambda s: 0.5 / (s + 1))
    optimizer = optimizers.get(rule)
    live = Live(optimizer)
    assert [live.step(), live.step()] == [0.5, 0.25]
    assert optimizer.learning_rate == 0.25
    with pytest.raises(ArgumentError, match="schedule inside"):
        optimizer.learning_rate = 0.1


def test_learning_rate_that_needs_real_parameters_is_unknown_before_init():
    def picky(learning_rate):
        inner = optax.sgd(learning_rate)
        return optax.GradientTransformation(lambda p: inner.init(p["w"]), inner.update)

    optimizer = optimizers.get(optax.inject_hyperparams(picky)(learning_rate=0.5))
    with pytest.raises(NotBuiltError):
        _ = optimizer.learning_rate


def test_factory_has_every_feature():
    schedule = schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    optimizer = OptaxOptimizer(optax.sgd, schedule, clipvalue=0.5)
    live = Live(optimizer)
    assert [live.step(), live.step()] == [0.25, 0.125]


def test_optax_rules_keep_their_own_precision():
    optimizer = optimizers.get(optax.adam(0.1))
    params = {"w": jnp.zeros(3, jnp.bfloat16)}
    state = optimizer.init(params)
    assert {a.dtype for a in jax.tree.leaves(state["inner"])} == {
        jnp.dtype("bfloat16"),
        jnp.dtype("int32"),
    }
    new, _ = optimizer.update(params, state, params)
    assert new["w"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "make",
    [
        lambda: OptaxOptimizer(optax.adam(0.1), learning_rate=0.1),
        lambda: OptaxOptimizer("adam"),
        lambda: optimizers.get(optax.adam),
        lambda: optimizers.get(SGD),
        lambda: optimizers.get(3),
        lambda: optimizers.get("adamm"),
        lambda: optimizers.get(optax.adam(0.1)).get_config(),
        lambda: OptaxOptimizer(lambda rate: rate, 0.1).init(PARAMS),
    ],
)
def test_wrong_identifiers_are_refused(make):
    with pytest.raises((ArgumentError, DTypeError, UnknownNameError)) as caught:
        make()
    assert len(str(caught.value).splitlines()) <= 12
