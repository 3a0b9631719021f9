"""The one pure state of a training run."""

import jax
import jax.numpy as jnp
import numpy as np

from exburn.training.state import TrainState, seed_data

STATE = TrainState(
    params={"w": jnp.ones(2)},
    frozen={"f": jnp.zeros(2)},
    others={"mean": jnp.zeros(1)},
    opt_state={},
    metrics={},
    step=jnp.asarray(4),
    seed=jnp.asarray(seed_data(7)),
)


def test_it_is_a_tree_and_replacing_leaves_it():
    doubled = jax.tree.map(lambda v: v * 2, STATE)
    assert isinstance(doubled, TrainState) and int(doubled.step) == 8
    other = STATE.replace(step=jnp.asarray(5))
    assert (int(other.step), int(STATE.step)) == (5, 4)
    assert other.params is STATE.params


def test_the_key_is_that_of_seed_and_step():
    def words(state):
        return jax.random.key_data(state.key()).tolist()

    assert words(STATE) == words(STATE.replace())
    others = [STATE.replace(step=jnp.asarray(5)), STATE.replace(seed=seed_data(8))]
    assert len({tuple(words(s)) for s in (STATE, *others)}) == 3
    np.testing.assert_array_equal(seed_data(2**32 + 3), [1, 3])


def test_what_a_pass_assigned_is_in_the_next_state_unless_the_step_was_left_out():
    new = STATE.assign({"f": jnp.ones(2), "mean": jnp.ones(1)})
    assert STATE.assigned_frozen(new) == {"f"}
    assert STATE.assigned_frozen(STATE.assign({"mean": jnp.ones(1)})) == set()
    arrays = {"mean": jnp.ones(1)}
    assert STATE.others_after(arrays, None) is arrays
    for left_out, value in ((True, 0), (False, 1)):
        after = STATE.others_after(arrays, jnp.asarray(left_out))
        assert after["mean"].tolist() == [value]
