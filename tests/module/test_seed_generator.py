"""Streams of seeds, and the keys of single draws."""

import jax
import numpy as np
import pytest

from exburn.core.forward_context import Context, forward
from exburn.core.random_keys import key_scope
from exburn.errors import ArgumentError
from exburn.module.seed_generator import SeedGenerator, draw_key


def words(key):
    return jax.random.key_data(key).tolist()


def test_a_stream_begins_at_its_seed_and_goes_on():
    generator = SeedGenerator(42)
    assert [words(draw_key(generator)) for _ in range(3)] == [[42, i] for i in range(3)]
    assert np.asarray(generator.next()).tolist() == [42, 3]
    again = SeedGenerator.from_config(generator.get_config())
    assert words(draw_key(again)) == [42, 0]


def test_an_integer_a_key_and_its_words_are_keys():
    key = jax.random.key(3)
    assert draw_key(key) is key
    assert words(draw_key(jax.random.key_data(key))) == words(key)
    assert words(draw_key(5)) == words(draw_key(np.int64(5))) == [5, 0]


def test_within_a_pass_its_key_decides():
    generator = SeedGenerator(1)
    for seed in (generator, 7, None):
        with forward(Context(key=jax.random.key(0))):
            one = [words(draw_key(seed)) for _ in range(2)]
        with forward(Context(key=jax.random.key(0))):
            assert one == [words(draw_key(seed)) for _ in range(2)]
        assert one[0] != one[1]
    assert generator.state.get_value().tolist() == [1, 0]  # it was left alone


def test_a_function_that_somebody_else_compiles_needs_a_key():
    generator = SeedGenerator(1)
    with pytest.raises(ArgumentError, match="key_scope"):
        jax.eval_shape(lambda _: generator.next(), 0)
    with key_scope(jax.random.key(0)):
        jax.eval_shape(lambda _: generator.next(), 0)


@pytest.mark.parametrize("seed", [1.5, True, "a", [1]])
def test_what_is_no_seed(seed):
    with pytest.raises(ArgumentError, match="a seed is an integer"):
        SeedGenerator(seed)
    with pytest.raises(ArgumentError, match="a seed is an integer"):
        draw_key(seed)
