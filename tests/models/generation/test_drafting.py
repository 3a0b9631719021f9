"""Tokens that n-grams propose, beside a search in Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.models.generation.drafting import LookupDrafter, with_tokens
from exburn.models.generation.loop import NO_TOKEN


def continuation(text, tokens, least, most):
    """What followed the longest n-gram of the text's end, where it stood last."""
    for size in range(most, least - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if size <= len(text) and text[end - size : end] == text[-size:]:
                period = text[end:]
                return (period * tokens)[:tokens]
    return [NO_TOKEN] * tokens


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 3), (2, 4), (3, 3)])
def test_lookups_find_what_a_search_finds(least, most):
    rng = np.random.default_rng(0)
    find = jax.jit(LookupDrafter(5, least, most)._continuation)
    proposed = 0
    for _ in range(60):
        text = rng.integers(0, 3, rng.integers(1, 14)).tolist()
        filled = jnp.array(text + rng.integers(0, 3, 20 - len(text)).tolist())
        expected = continuation(text, 5, least, most)
        assert find(filled, len(text)).tolist() == expected, text
        proposed += expected[0] != NO_TOKEN
    assert 5 < proposed < 60


def test_tokens_that_are_none_are_not_seen():
    seen = jnp.zeros((2, 4), bool)
    more = with_tokens(seen, jnp.array([[1, NO_TOKEN], [3, 0]]))
    assert more.tolist() == [[False, True, False, False], [True, False, False, True]]
    assert with_tokens(None, jnp.array([[1]])) is None
