"""Points of a run: the arrays of its state by name, and back."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from exburn.training.checkpoint.run_points import flatten, unflatten
from exburn.training.state import TrainState, seed_data


def state(value, device=None):
    made = TrainState(
        params={"dense/kernel": jnp.full(2, value)},
        frozen={},
        others={"rng": jax.random.key(int(value)), "count": jnp.asarray(value)},
        opt_state=({"m": jnp.full(2, value * 2)}, ()),
        metrics=None,
        step=jnp.asarray(int(value)),
        seed=jnp.asarray(seed_data(7)),
    )
    return made if device is None else jax.device_put(made, device)


def test_names_say_where_an_array_is_in_the_state():
    assert set(flatten(state(1.0))) == {
        "state/params/dense/kernel",
        "state/others/rng",
        "state/others/count",
        "state/opt_state/0/m",
        "state/step",
        "state/seed",
    }


def test_what_was_flattened_is_put_back_into_a_state_of_that_form():
    arrays = {name: np.asarray(array) for name, array in flatten(state(3.0)).items()}
    device = jax.devices()[0]
    for like in (state(0.0), state(0.0, device)):
        again = unflatten(like, arrays)
        kernel = again.params["dense/kernel"]
        assert kernel.tolist() == [3, 3] and int(again.step) == 3
        assert again.others["rng"] == jax.random.key(3)
        bound = like.params["dense/kernel"].committed
        assert kernel.committed == bound
        assert isinstance(kernel.sharding, SingleDeviceSharding)
