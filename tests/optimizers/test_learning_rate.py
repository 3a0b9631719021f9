"""The learning rate is state: it changes before, during and after training."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from exburn import optimizers
from exburn.errors import ArgumentError, DTypeError, NotBuiltError, UnknownNameError
from exburn.optimizers import (
    SGD,
    MultiOptimizer,
    OptaxOptimizer,
    OptimizerMap,
    schedules,
)

PARAMS = {"w": np.zeros(3, np.float32)}
ONES = {"w": np.ones(3, np.float32)}


def plain(rate=0.1, **options):
    return SGD(rate, momentum=0.0, **options)


class Live:
    """A training run's state, as the trainer holds it."""

    def __init__(self, optimizer, params=PARAMS):
        self.optimizer, self.params, self.state, self.traces = (
            optimizer,
            params,
            None,
            0,
        )
        optimizer.bind(lambda: self.state, self.put)

        def update(grads, state, params):
            self.traces += 1
            return optimizer.update(grads, state, params)

        self.update = jax.jit(update)

    def put(self, state):
        self.state = state

    def step(self):
        """The size of one step on a gradient of ones."""
        if self.state is None:
            self.state = self.optimizer.init(self.params)
        new, self.state = self.update(ONES, self.state, self.params)
        size = float(self.params["w"][0] - new["w"][0])
        self.params = new
        return round(size, 6)


def test_set_before_during_and_between():
    optimizer = plain(0.5)
    optimizer.learning_rate = 0.25
    live = Live(optimizer)
    assert live.step() == 0.25
    optimizer.learning_rate = 0.125
    assert optimizer.learning_rate == 0.125
    assert live.step() == 0.125
    optimizer.scale = 0.5
    assert live.step() == 0.0625
    assert (optimizer.learning_rate, optimizer.scale) == (0.125, 0.5)
    assert (optimizer.iterations, live.traces) == (3, 1)
    optimizer.bind(None, None)  # the next run goes on where this one ended
    assert (optimizer.learning_rate, optimizer.scale) == (0.125, 0.5)
    assert Live(optimizer).step() == 0.0625
    assert optimizer.get_config()["learning_rate"] == 0.125


def test_warmup_of_the_state():
    optimizer = plain(0.5)
    live = Live(optimizer)
    live.state = optimizer.with_hyperparameters(
        optimizer.init(PARAMS),
        warmup_from=0.1,
        warmup_to=0.4,
        warmup_steps=3,
        scale=0.5,
    )
    assert [live.step() for _ in range(5)] == [0.1, 0.2, 0.3, 0.25, 0.25]
    assert live.traces == 1


def test_with_hyperparameters_leaves_the_old_state_alone():
    optimizer = plain(0.5)
    old = optimizer.init(PARAMS)
    new = optimizer.with_hyperparameters(old, learning_rate=0.1)
    assert optimizer.hyperparameters(old)["learning_rate"] == 0.5
    assert optimizer.hyperparameters(new) == {
        "learning_rate": 0.1,
        "scale": 1.0,
        "warmup_from": 0.0,
        "warmup_to": 0.0,
        "warmup_steps": 0,
    }


def test_with_hyperparameters_works_on_donated_state():
    optimizer = plain(0.5)
    state = optimizer.init(PARAMS)
    jax.jit(lambda s: s, donate_argnums=0)(state)
    with pytest.raises(RuntimeError, match="deleted"):
        optimizer.hyperparameters(state)
    new = optimizer.with_hyperparameters(state, learning_rate=0.25)
    assert float(new["rate"]["learning_rate"]) == 0.25


def test_schedule_is_followed_and_cannot_be_overwritten():
    optimizer = plain(schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.125]))
    live = Live(optimizer)
    assert optimizer.learning_rate == 0.5
    assert [live.step(), live.step()] == [0.5, 0.25]
    assert optimizer.learning_rate == 0.125
    assert optimizer.hyperparameters(live.state)["learning_rate"] == 0.125
    for change in (
        lambda: setattr(optimizer, "learning_rate", 0.1),
        lambda: optimizer.with_hyperparameters(live.state, learning_rate=0.1),
    ):
        with pytest.raises(ArgumentError, match=r"optimizer\.scale"):
            change()
    optimizer.scale = 0.5
    assert live.step() == 0.0625
    assert live.traces == 1


def test_schedule_over_epochs_is_told_their_length_after_init():
    optimizer = plain(("exponential", 0.5, 0.5))
    live = Live(optimizer)
    live.state = optimizer.init(PARAMS)
    with pytest.raises(NotBuiltError, match="steps_per_epoch"):
        live.step()
    optimizer.set_epochs(2, None)
    assert [live.step() for _ in range(4)] == [0.5, 0.5, 0.25, 0.25]


def test_plain_function_as_schedule():
    optimizer = plain(lambda step: 0.5 / (step + 1))
    live = Live(optimizer)
    assert [live.step(), live.step()] == [0.5, 0.25]
    with pytest.raises(ArgumentError, match="Register it"):
        optimizer.get_config()


def test_revision_grows_with_what_a_program_has_built_in():
    optimizer = plain()
    before = optimizer.revision
    optimizer.learning_rate = 0.3
    optimizer.scale = 0.5
    assert optimizer.revision == before
    optimizer.momentum = 0.5
    assert optimizer.revision > before
    before = optimizer.revision
    optimizer.learning_rate = schedules.CosineSchedule(0.1)
    assert optimizer.revision > before
    before = optimizer.revision
    optimizer.set_epochs(10, 5)
    optimizer.set_epochs(10, 5)
    assert optimizer.revision == before + 1
    wrapped = optimizers.LossScaleOptimizer(optimizer)
    before = wrapped.revision
    optimizer.nesterov = True
    assert wrapped.revision > before


def test_rate_inside_a_program():
    optimizer = plain(schedules.ExponentialDecay(0.5, 1, 0.5))
    state = optimizer.init(PARAMS)
    _, state = optimizer.update(ONES, state, PARAMS)
    assert float(jax.jit(optimizer.rate)(state)) == 0.25


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"learning_rate": -1.0}, ArgumentError),
        ({"learning_rate": float("nan")}, ArgumentError),
        ({"learning_rate": [0.1, 0.2]}, ArgumentError),
        ({"learning_rate": "fast"}, ArgumentError),
        ({"warmup_steps": -1}, ArgumentError),
        ({"warmup_steps": 1.5}, ArgumentError),
        ({"momentum": 0.5}, UnknownNameError),
    ],
)
def test_bad_hyperparameters_are_refused(values, error):
    optimizer = plain()
    with pytest.raises(error):
        optimizer.with_hyperparameters(optimizer.init(PARAMS), **values)


# optax


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


# Several optimizers


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


def test_a_function_of_nothing_gives_the_number():
    optimizer = plain(lambda: 0.25)
    assert optimizer.learning_rate == 0.25
    assert optimizer.get_config()["learning_rate"] == 0.25
    optimizer.learning_rate = lambda: 0.5
    assert optimizer.learning_rate == 0.5
    with pytest.raises(ArgumentError):
        plain(lambda: -1.0)
