"""What holds for each optimizer: it converges, never recompiles, scans, maps, saves."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.golden import keras

from exburn import optimizers
from exburn.optimizers import (
    LossScaleOptimizer,
    MultiOptimizer,
    OptaxOptimizer,
    OptimizerMap,
)

MODELS = 8

OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.02),
    "nesterov": lambda: optimizers.SGD(0.02, nesterov=True, global_clipnorm=5.0),
    "adam": lambda: optimizers.Adam(0.1),
    "amsgrad": lambda: optimizers.Adam(0.1, amsgrad=True, use_ema=True),
    "adamw": lambda: optimizers.AdamW(0.1, weight_decay=1e-4),
    "adamax": lambda: optimizers.Adamax(0.1),
    "nadam": lambda: optimizers.Nadam(0.1),
    "rmsprop": lambda: optimizers.RMSprop(0.03, momentum=0.5),
    "centered": lambda: optimizers.RMSprop(0.02, centered=True),
    "adagrad": lambda: optimizers.Adagrad(0.5),
    "adadelta": lambda: optimizers.Adadelta(1.0, epsilon=1e-3),
    "adafactor": lambda: optimizers.Adafactor(0.2),
    "lamb": lambda: optimizers.Lamb(0.05),
    "lion": lambda: optimizers.Lion(0.02),
    "ftrl": lambda: optimizers.Ftrl(1.0),
    "muon": lambda: optimizers.Muon(0.1),
    "soap": lambda: optimizers.SOAP(0.1, precondition_interval=2),
    "shampoo": lambda: optimizers.Shampoo(0.5, momentum=0.5),
    "schedule free": lambda: optimizers.ScheduleFreeAdamW(0.3, warmup_steps=5),
    "accumulating": lambda: optimizers.Adam(0.2, gradient_accumulation_steps=2),
    "loss scale": lambda: LossScaleOptimizer(optimizers.Adam(0.1)),
    "multi": lambda: MultiOptimizer(
        OptimizerMap(optimizers.Adam(0.1), {"dense/bias": optimizers.SGD(0.02)})
    ),
    "adamw in 8 bits": lambda: optimizers.AdamW(0.1, state_bits=8),
    "optax factory": lambda: OptaxOptimizer(optax.adabelief, 0.1),
    "optax injected": lambda: optimizers.get(
        optax.inject_hyperparams(optax.adamw)(learning_rate=0.1)
    ),
}

ALL = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def problem():
    """A linear regression that has an exact solution."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(16, 3)).astype(np.float32)
    y = (x @ rng.normal(size=(3, 2)) + 0.5).astype(np.float32)
    params = {"dense": {"kernel": 0.1 * rng.normal(size=(3, 2)), "bias": np.zeros(2)}}
    params = jax.tree.map(lambda a: a.astype(np.float32), params)

    def loss(params):
        dense = params["dense"]
        return jnp.mean((x @ dense["kernel"] + dense["bias"] - y) ** 2)

    return params, loss


def avals(tree):
    return jax.tree.map(
        lambda a: (jnp.shape(a), jnp.result_type(a), getattr(a, "weak_type", False)),
        tree,
    )


def _leaf(node):
    return isinstance(node, tuple) and len(node) == 3 and isinstance(node[2], bool)


CONFIGURABLE = {k: v for k, v in OPTIMIZERS.items() if not k.startswith("optax")}


@ALL
def test_converges_in_a_scan_over_several_models_without_recompiling(make):
    optimizer = make()
    params, loss = problem()
    state = optimizer.init(params)
    traces = []

    def step(carry, _):
        params, state = carry
        value, grads = jax.value_and_grad(
            lambda p: optimizer.scale_loss(loss(p), state)
        )(params)
        return optimizer.update(grads, state, params), value

    @jax.jit
    @jax.vmap
    def run(params, state):
        traces.append(None)
        (params, state), _ = jax.lax.scan(step, (params, state), length=200)
        return params, state, loss(params)

    stack = jax.tree.map(lambda a: np.stack([np.asarray(a)] * MODELS), (params, state))
    scales = np.array([0.0, *np.linspace(0.5, 1.0, MODELS - 1)], np.float32)
    if not isinstance(optimizer, MultiOptimizer):
        params_8, state_8 = stack
        values = optimizer.hyperparameters(state)
        rates = values["learning_rate"] * scales
        state_8 = optimizer.with_hyperparameters(state_8, learning_rate=rates)
    else:
        params_8, state_8 = stack
        state_8 = optimizer.with_hyperparameters(state_8, scale=scales)
    new, end_state, losses = run(params_8, state_8)
    assert avals(end_state) == avals(state_8)
    start = float(loss(params))
    if not isinstance(optimizer, optimizers.Ftrl):  # divides by the learning rate
        assert float(losses[0]) == pytest.approx(start, rel=1e-5)  # a rate of 0
    assert np.all(losses[1:] < 0.05 * start)
    end_state = optimizer.with_hyperparameters(end_state, scale=0.125)
    run(new, end_state)
    assert len(traces) == 1


@ALL
def test_state_keeps_its_types(make):
    optimizer = make()
    params, _ = problem()
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        cast = jax.tree.map(lambda a, d=dtype: a.astype(d), params)
        state = optimizer.init(cast)
        new_params, new_state = jax.eval_shape(optimizer.update, cast, state, cast)
        assert avals(new_params) == avals(cast)
        assert avals(new_state) == avals(state)
        assert not any(
            weak for *_, weak in jax.tree.leaves(avals(state), is_leaf=_leaf)
        )


@ALL
def test_init_is_what_the_rule_would_compute(make):
    optimizer = make()
    params, _ = problem()
    state = optimizer.init(params)
    # Under jit every value goes through the traced program, none through NumPy.
    traced = jax.jit(optimizer.init)(params)
    assert jax.tree.structure(state) == jax.tree.structure(traced)
    jax.tree.map(np.testing.assert_array_equal, state, traced)


@pytest.mark.parametrize("make", CONFIGURABLE.values(), ids=CONFIGURABLE)
def test_config_round_trip(make):
    optimizer = make()
    text = json.dumps(optimizers.serialize(optimizer))
    copy = optimizers.deserialize(json.loads(text))
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()
    params, _ = problem()
    programs = [
        str(jax.make_jaxpr(o.update)(params, o.init(params), params))
        for o in (optimizer, copy)
    ]
    assert programs[0] == programs[1]


# Keras 3.15 converts its variables by an __array__ that NumPy 2 warns about.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_configurations_of_keras_are_understood():
    schedule = keras.optimizers.schedules.CosineDecay(0.5, 100, warmup_target=0.7)
    theirs = keras.optimizers.AdamW(schedule, weight_decay=0.25, clipnorm=2.0)
    ours = optimizers.deserialize(keras.optimizers.serialize(theirs))
    assert isinstance(ours, optimizers.AdamW)
    assert (ours.weight_decay, ours.clipnorm, ours.epsilon) == (0.25, 2.0, 1e-7)
    assert ours.learning_rate == pytest.approx(0.7)
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    ours = optimizers.get(keras.optimizers.serialize(theirs))
    assert (ours.inner_optimizer.momentum, ours.learning_rate) == (0.0, 0.5)


@pytest.mark.parametrize(
    "name", ["Adam", "adamw", "SGD", "RMSprop", "schedulefreeadamw"]
)
def test_get_by_name_in_any_case(name):
    assert type(optimizers.get(name)).__name__.lower() == name.lower()


def test_init_compiles_nothing_and_shares_no_buffer():
    optimizer = optimizers.AdamW(use_ema=True)
    params = {f"w{i}": np.ones((i + 1, 7), np.float32) for i in range(40)}
    optimizer.init({"warm": np.ones((2, 2), np.float32)})
    compiles = []

    def listen(event, duration, **kwargs):
        if event == "/jax/core/compile/backend_compile_duration":
            compiles.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        state = optimizer.init(params)
    finally:
        jax.monitoring.clear_event_listeners()
    assert compiles == []
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state)]
    assert len(set(pointers)) == len(pointers)


def test_many_models_train_as_each_alone():
    optimizer = optimizers.Adam()
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(MODELS, 4)).astype(np.float32)}
    grads = {"w": rng.normal(size=(MODELS, 4)).astype(np.float32)}
    rates = np.linspace(0.01, 0.1, MODELS).astype(np.float32)
    state = jax.vmap(optimizer.init)(params)
    state = optimizer.with_hyperparameters(state, learning_rate=rates)
    together, _ = jax.jit(jax.vmap(optimizer.update))(grads, state, params)
    update = jax.jit(optimizer.update)
    for i, rate in enumerate(rates):
        one = {"w": params["w"][i]}
        alone = optimizer.with_hyperparameters(optimizer.init(one), learning_rate=rate)
        new, _ = update({"w": grads["w"][i]}, alone, one)
        np.testing.assert_allclose(together["w"][i], new["w"], rtol=1e-6)
