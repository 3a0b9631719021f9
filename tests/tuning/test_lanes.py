"""Many models as one: what a step of one becomes, and states with an axis of lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.training.state import TrainState, seed_data
from exburn.tuning import lanes
from exburn.tuning.lanes import Lanes


def state_of(values, totals):
    arrays = {"w": jnp.asarray(values)}
    loss = {"total": jnp.asarray(totals), "rows": jnp.zeros(len(totals))}
    count = jnp.zeros(len(totals), jnp.int32)
    seeds = jnp.asarray(lanes.seeds_data([0] * len(totals)))
    return TrainState(arrays, {}, {}, {}, {"loss": loss}, count, seeds)


def step(state, data, item):
    """Adds the rows to the weight; the loss is its logarithm."""
    rows = data[item[0]].sum()
    weight = state.params["w"] + rows
    loss = state.metrics["loss"]
    metrics = {"loss": {**loss, "total": loss["total"] + jnp.log(weight)}}
    new = state.replace(params={"w": weight}, metrics=metrics)
    return new.replace(step=state.step + 1)


KINDS = "state", "shared", "rows"
DATA = jnp.arange(1.0, 7.0)


@pytest.mark.parametrize("own", [False, True])
def test_lanes_share_rows_or_have_their_own(own):
    index = np.array([[0, 1], [4, 5]] if own else [0, 1])
    of = Lanes(own_rows=own).over(step, KINDS)
    new = of(state_of([1.0, 2.0], [0.0, 0.0]), DATA, (index, None, 0))
    wanted = [4.0, 13.0] if own else [4.0, 5.0]
    assert new.params["w"].tolist() == wanted and new.step.tolist() == [1, 1]


def test_a_lane_in_turn_is_what_it_is_among_others():
    index = np.array([[[2, 3]]])  # [steps of a group, lanes, rows]
    grouped = lambda state, data, items: step(state, data, (items[0][0], None, 0))  # noqa: E731
    for kind, rows, function in (("rows", index[0], step), ("groups", index, grouped)):
        of = Lanes(own_rows=True, in_turn=True)
        together = Lanes(own_rows=True).over(function, (*KINDS[:2], kind))
        alone = of.over(function, (*KINDS[:2], kind))
        args = state_of([1.0], [0.5]), DATA, (rows, None, 0)
        jax.tree.map(np.testing.assert_array_equal, alone(*args), together(*args))


def test_a_lane_whose_loss_is_not_finite_keeps_its_weights_for_good():
    of = jax.jit(Lanes().over(step, KINDS))
    item = np.array([0]), None, 0
    new = of(state_of([1.0, -9.0], [0.0, 0.0]), DATA, item)
    assert new.params["w"].tolist() == [2.0, -9.0] and new.step.tolist() == [1, 0]
    assert np.isnan(new.metrics["loss"]["total"]).tolist() == [False, True]
    totals = {"loss": {"total": np.float32(0), "rows": np.float32(0)}}
    fresh = lanes.fresh_totals(totals, [False, True])  # of the next epoch
    states = state_of([2.0, 3.0], [0.0, 0.0]).replace(metrics=fresh)
    assert of(states, DATA, item).params["w"].tolist() == [3.0, 3.0]
    alive = of(state_of([2.0, 3.0], [0.0, 0.0]), DATA, item)
    assert alive.params["w"][0] == 3.0  # the same bits beside a lane that is alive


def test_lanes_are_chosen_and_taken_apart():
    tree = {"a": jnp.asarray([[0, 0], [1, -1], [2, -2]])}
    chosen = lanes.join([tree], [[0, 1, 2]], [2, 0, 2])
    assert chosen["a"].tolist() == [[2, -2], [0, 0], [2, -2]]
    assert lanes.lane(tree, 1)["a"].tolist() == [1, -1]
    new = lanes.join([tree, tree], [[0, 2], [2]], [0, 1, 2])
    assert new["a"].tolist() == [[0, 0], [2, -2], [2, -2]]
    repeated = lanes.repeat({"b": np.float32(3)}, 2)["b"]
    assert repeated.tolist() == [3, 3]
    assert lanes.seeds_data([1, 2**31])[1].tolist() == seed_data(2**31).tolist()


def test_numbers_of_lanes_take_part_in_any_precision():
    rates = lanes.numbers_array([0.5, 2])
    half = jax.vmap(lambda rate: rate * jnp.ones(2, jnp.bfloat16))(rates)
    assert half.dtype == jnp.bfloat16 and half[:, 0].tolist() == [0.5, 2.0]


def test_states_of_several_groups_are_joined():
    def state(*values):
        arrays = {"w": jnp.asarray(values)}
        step = jnp.zeros(len(values), jnp.int32)
        return TrainState(arrays, {}, {}, {}, None, step, jnp.zeros((len(values), 2)))

    states = state(1.0, 2.0, 3.0), state(4.0, 5.0)
    joined = lanes.join(states, [[2, 0], [1]], [2, 0, 1, 1])
    assert joined.params["w"].tolist() == [5.0, 3.0, 1.0, 1.0]
    assert joined.step.shape == (4,)
