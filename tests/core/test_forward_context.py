"""What a forward pass knows: keys, masks, sources, and the seeds of the process."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.core import forward_context
from exburn.core.forward_context import Context, forward, key_scope
from exburn.errors import ArgumentError


def test_keys_are_a_function_of_the_pass_the_path_and_the_draw():
    def draws(seed):
        context = Context(key=jax.random.key(seed))
        paths = ["a", "a", "b"]
        return [jax.random.key_data(context.random_key(p)).tolist() for p in paths]

    one = draws(0)
    assert one == draws(0) != draws(1)
    assert len(set(map(tuple, one))) == 3
    part = Context(key=jax.random.key(0)).within()
    assert jax.random.key_data(part.random_key("a")).tolist() == one[0]
    assert part.drew and not Context().drew


def test_masks_are_of_the_array_itself_and_are_carried_to_the_next_pass():
    context, x, mask = Context(), jnp.ones(3), jnp.array([True, False, True])
    context.set_mask(x, mask)
    assert context.mask_of(x) is mask and context.mask_of(x + 0) is None
    context.carry({"out": x})
    assert Context().mask_of(x) is mask is forward_context.carried_mask(x)
    context.attach([x, jnp.zeros(1)], [None, mask])
    assert context.attachments([x])[1] == [mask]


def test_the_source_of_what_was_cast_twice_is_the_first():
    context, x = Context(), np.arange(3)
    half, double = x.astype("float16"), x.astype("float64")
    context.set_source(half, x)
    context.set_source(double, half)
    assert context.source_of(double) is x and context.source_of(x) is x


def test_a_pass_is_under_way_in_its_block():
    assert forward_context.current() is None
    with forward(Context(training=True)) as context:
        assert forward_context.current() is context and context.training
    assert forward_context.current() is None


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
        forward_context.set_random_seed(7)
        keys = [Context().random_key("") for _ in range(2)]
        data = [jax.random.key_data(key).tolist() for key in keys]
        return random.random(), np.random.rand(), forward_context.layer_seed(), data

    assert values() == values()
    assert forward_context.global_seed() == 7


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "a"])
def test_seeds_are_checked(seed):
    with pytest.raises(ArgumentError, match="set_random_seed: seed must be"):
        forward_context.set_random_seed(seed)


def test_the_values_of_a_parameter_follow_seed_and_path():
    def draw(path, seed):
        return forward_context.philox(path, seed).random()

    assert draw("dense/kernel", 1) == draw("dense/kernel", 1)
    assert len({draw(path, s) for path in "ab" for s in (1, 2)}) == 4
    assert forward_context.path_hash("dense/kernel") == 988593171  # everywhere
