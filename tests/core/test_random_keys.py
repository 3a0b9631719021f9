"""Keys of random numbers outside of a pass, and the seeds of the process."""

import random

import jax
import numpy as np
import pytest

from exburn.core import random_keys
from exburn.core.forward_context import Context
from exburn.core.random_keys import key_scope
from exburn.errors import ArgumentError


def test_random_numbers_in_a_compiled_function_need_a_key():
    def drawn(_):
        return jax.random.uniform(Context().random_key("Dropout"))

    with pytest.raises(ArgumentError, match="Dropout: random numbers are drawn"):
        jax.eval_shape(drawn, 0.0)
    made = []

    def key():
        made.append(1)
        return jax.random.key(3)

    with key_scope(key):
        assert made == []  # nothing has drawn
        one, two = (drawn(0) for _ in range(2))
    assert one != two and len(made) == 2
    with key_scope(jax.random.key(3)):
        assert drawn(0) == one


def test_set_random_seed_seeds_python_and_numpy_too():
    def values():
        random_keys.set_random_seed(7)
        keys = [Context().random_key("") for _ in range(2)]
        data = [jax.random.key_data(key).tolist() for key in keys]
        return random.random(), np.random.rand(), random_keys.layer_seed(), data

    assert values() == values()
    assert random_keys.global_seed() == 7


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "a"])
def test_seeds_are_checked(seed):
    with pytest.raises(ArgumentError, match="set_random_seed: seed must be"):
        random_keys.set_random_seed(seed)


def test_the_values_of_a_parameter_follow_seed_and_path():
    def draw(path, seed):
        return random_keys.philox(path, seed).random()

    assert draw("dense/kernel", 1) == draw("dense/kernel", 1)
    assert len({draw(path, s) for path in "ab" for s in (1, 2)}) == 4
    assert random_keys.path_hash("dense/kernel") == 988593171  # everywhere
