"""States for other parameters: slots follow them, newcomers have their own count."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from exburn import optimizers
from exburn.optimizers.contract.newcomers import NEWCOMERS
from exburn.optimizers.contract.trees import path_of

RANDOM = np.random.default_rng(0)


def arrays(names, shape=(3, 4)):
    return {n: RANDOM.standard_normal(shape).astype(np.float32) for n in names}


class ByHand(optimizers.Optimizer):
    """Adam as a Keras user writes it, with a number that all parameters share."""

    def build(self, variables):
        super().build(variables)
        self.power = self.add_variable((), "ones", name="power")
        self.means, self.squares = self.add_optimizer_variables(variables, ["m", "v"])

    def update_step(self, gradient, variable, learning_rate):
        i = self._get_variable_index(variable)
        mean, square = self.means[i], self.squares[i]
        if i == 0:
            self.power.assign(self.power.value * 0.9)
        mean.assign(0.9 * mean + 0.1 * gradient)
        square.assign(0.9 * square + 0.1 * gradient**2)
        left = 1 - self.power.value
        variable.assign_sub(learning_rate * mean / left / ((square / left) ** 0.5 + 1))


BY_HAND: Any = ByHand  # its ``transformation`` comes of ``update_step``

OPTIMIZERS = {
    "adam": functools.partial(optimizers.Adam, 0.01),
    "nadam": functools.partial(optimizers.Nadam, 0.01),
    "adamax": functools.partial(optimizers.Adamax, 0.01),
    "lamb": functools.partial(optimizers.Lamb, 0.01),
    "adafactor": functools.partial(optimizers.Adafactor, 0.01),
    "muon": functools.partial(optimizers.Muon, 0.01),
    "schedule free": functools.partial(optimizers.ScheduleFreeAdamW, 0.01),
    "optax": lambda: optimizers.OptaxOptimizer(optax.adam, 0.01),
    "injected optax": lambda: optimizers.OptaxOptimizer(
        optax.inject_hyperparams(optax.adam)(0.01)
    ),
    "by hand": functools.partial(BY_HAND, 0.01),
    "momentum": functools.partial(optimizers.SGD, 0.01, momentum=0.9),
    "several": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(optimizers.Adam(0.01), {"[ac]": optimizers.SGD(0.1)})
    ),
    "loss scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01), 1.0),
    "average": functools.partial(optimizers.Adam, 0.01, use_ema=True),
    "accumulation": functools.partial(
        optimizers.Adam, 0.01, gradient_accumulation_steps=2
    ),
}


def train(optimizer, params, gradients, state=None):
    state = optimizer.init(params) if state is None else state
    update = jax.jit(optimizer.update)
    for one in gradients:
        params, state = update({name: one[name] for name in params}, state, params)
    return params, state


def join(optimizer, state, params):
    return optimizer.refit(state, optimizer.init(params), params)


def groups(state):
    return [({*g["of"]}, int(g["since"])) for g in state[NEWCOMERS].values()]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_newcomers_are_trained_as_if_the_optimizer_had_begun_with_them(name):
    make = OPTIMIZERS[name]
    first, later = arrays("ab"), arrays("cd")
    before = [arrays("abcd") for _ in range(20)]
    after = [arrays("abcd") for _ in range(6)]
    optimizer = make()
    first, state = train(optimizer, first, before)
    both, _ = train(
        optimizer, first | later, after, join(optimizer, state, first | later)
    )
    alone, _ = train(optimizer, first, after, state)
    fresh, _ = train(make(), later, after)
    for path, value in (alone | fresh).items():
        np.testing.assert_allclose(both[path], value, rtol=1e-5, atol=1e-7)


def test_with_the_count_of_the_others_steps_were_too_large():
    """The reason for all of this, so that it is seen if it goes away."""
    optimizer = optimizers.Adam(0.01)
    first, later = arrays("a"), arrays("b")
    gradients = [arrays("ab") for _ in range(1000)]
    first, state = train(optimizer, first, gradients)
    state = join(optimizer, state, first | later)
    one = {name: np.ones((3, 4), np.float32) for name in "ab"}
    largest = {}
    for kind, begun in (
        ("own", state),
        ("of the others", optimizer.as_initial(state)),
    ):
        both, largest[kind] = first | later, 0.0
        for _ in range(10):
            before = both["b"]
            both, begun = train(optimizer, both, [one], begun)
            step = float(np.abs(both["b"] - before).max())
            largest[kind] = max(largest[kind], step / 0.01)
    assert largest["own"] == pytest.approx(1, abs=1e-3)
    assert largest["of the others"] > 5


def test_who_leaves_and_comes_back_is_a_newcomer():
    optimizer, params = optimizers.Adam(0.01), arrays("ab")
    params, state = train(optimizer, params, [arrays("ab")] * 3)
    a = {"a": params["a"]}
    state = join(optimizer, state, a)
    assert NEWCOMERS not in state
    _, state = train(optimizer, a, [arrays("a")] * 2, state)
    state = join(optimizer, state, params)
    assert groups(state) == [({"b"}, 5)]
    with_c = params | arrays("c")
    state = join(optimizer, state, with_c)
    assert groups(state) == [({"b"}, 5), ({"c"}, 5)]
    assert groups(join(optimizer, state, {"c": with_c["c"]})) == [({"c"}, 5)]
    assert NEWCOMERS not in join(optimizer, state, a)


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_nobody_is_a_newcomer_before_the_first_update(name):
    optimizer, params = OPTIMIZERS[name](), arrays("ab")
    state = join(optimizer, optimizer.init({"a": params["a"]}), params)
    assert NEWCOMERS not in state and optimizer.fits(state, params)


def test_rules_that_read_no_count_need_none():
    optimizer, params = OPTIMIZERS["momentum"](), arrays("ab")
    _, state = train(optimizer, {"a": params["a"]}, [params])
    assert NEWCOMERS not in join(optimizer, state, params)


def test_slots_by_hand_stay_with_their_parameters():
    """Shapes are alike: by its place, b would get the slots of a."""
    optimizer, params = BY_HAND(0.01), arrays("ab")
    params, state = train(optimizer, params, [arrays("ab")] * 3)
    b = {"b": params["b"]}
    kept = join(optimizer, state, b)
    for mine, before in zip(kept["inner"]["b"], state["inner"]["b"], strict=True):
        np.testing.assert_array_equal(mine, before)


def test_other_shapes_begin_anew():
    optimizer = optimizers.Adam(0.01)
    _, state = train(optimizer, arrays("a"), [arrays("a")])
    narrow = arrays("a", (2, 4))
    state = join(optimizer, state, narrow)
    assert groups(state) == [({"a"}, 1)] and not any(
        np.any(slot) for slot in jax.tree.leaves(state["inner"])
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.LBFGS(),
        optimizers.OptaxOptimizer(optax.flatten(optax.adam(0.01))),
    ],
)
def test_a_rule_that_mixes_parameters_begins_anew(optimizer):
    params = arrays("ab")

    def loss(p):
        return sum(jnp.sum(v**2) for v in p.values())

    only = {"a": params["a"]}
    extra = {"value_fn": loss} if optimizer.searches else {}
    new, state = optimizer.update(
        jax.grad(loss)(only), optimizer.init(only), only, **extra
    )
    state = join(optimizer, state, params)
    fresh = optimizer.init(params)
    for mine, begun in zip(
        *map(jax.tree.leaves, (state["inner"], fresh["inner"])), strict=True
    ):
        np.testing.assert_array_equal(mine, begun)
    assert int(state["rate"]["count"]) == 1
    optimizer.update(jax.grad(loss)(params), state, params, **extra)


@pytest.mark.parametrize(("count", "since"), [(0, 0), (1, 0), (10, 8)])
def test_a_count_that_is_set_keeps_ages(count, since):
    optimizer, params = optimizers.Adam(0.01), arrays("ab")
    _, state = train(optimizer, {"a": params["a"]}, [params] * 3)
    box = [join(optimizer, state, params)]
    box = [train(optimizer, params, [params] * 2, box[0])[1]]
    optimizer.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    optimizer.iterations.assign(count)
    assert int(box[0]["rate"]["count"]) == count
    assert groups(box[0]) == [({"b"}, since)]


@pytest.mark.parametrize(
    "around",
    [
        lambda optimizer: optimizer,
        optimizers.LossScaleOptimizer,
        lambda optimizer: optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizer)),
    ],
)
def test_schedules_are_restarted(around):
    schedule = optimizers.schedules.PiecewiseConstantDecay([3], [1.0, 0.5])
    inner = optimizers.SGD(schedule, gradient_accumulation_steps=2)
    optimizer, params = around(inner), arrays("a")
    state = optimizer.init(params)
    assert jax.tree.structure(optimizer.restart_schedule(state)) == jax.tree.structure(
        state
    )  # there is nothing before it
    box = [train(optimizer, params, [params] * 4, state)[1]]
    optimizer.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    assert float(inner.learning_rate) == 0.5
    box[0] = optimizer.restart_schedule(box[0])
    assert float(inner.learning_rate) == 1.0 and optimizer.fits(box[0], params)
    paths = [path_of(p) for p, _ in jax.tree_util.tree_leaves_with_path(box[0])]
    stored = optimizer.as_stored(optimizer.init(params), params, paths)
    assert jax.tree.structure(stored) == jax.tree.structure(box[0])
    both = params | arrays("b")
    joined = join(optimizer, box[0], both)
    box[0] = train(optimizer, both, [both] * 4, joined)[1]
    assert float(inner.learning_rate) == 0.5


def test_injected_numbers_are_those_that_are_set():
    optimizer, params = OPTIMIZERS["injected optax"](), arrays("ab")
    _, state = train(optimizer, {"a": params["a"]}, [params])
    state = join(optimizer, state, params)
    still = optimizer.with_hyperparameters(state, learning_rate=0.0)
    new, _ = train(optimizer, params, [params], still)
    for name, value in params.items():
        np.testing.assert_array_equal(new[name], value)
