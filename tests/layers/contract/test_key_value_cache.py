"""Keys and values of tokens: which slots they lie in, and which of them are read."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.layers.contract.key_value_cache import SpanCache

SLOTS = 7


class Attention:
    """A layer as the cache sees it."""

    name = "attention"


def heads(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def by_formula(query, keys, values, places, scale, window, cap):
    """Attention of one head, row by row and token by token."""
    out = np.zeros((*query.shape[:3], values.shape[-1]))
    each = query.shape[2] // keys.shape[1]
    for row, token, head in np.ndindex(query.shape[:3]):
        place = places[row][token]
        first = 0 if window is None else max(place - window + 1, 0)
        seen = slice(first, place + 1)
        scores = keys[row, head // each, seen] @ query[row, token, head] * scale
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        weights = np.exp(scores - scores.max())
        out[row, token, head] = (
            weights / weights.sum() @ values[row, head // each, seen]
        )
    return out


@pytest.mark.parametrize(("window", "cap"), [(None, None), (3, None), (2, 1.5)])
def test_tokens_of_rows_lie_at_their_positions(window, cap):
    old = heads(2, 2, SLOTS, 4, seed=1), heads(2, 2, SLOTS, 3, seed=2)
    query, key, value = heads(2, 3, 4, 4), heads(2, 3, 2, 4, seed=3), heads(2, 3, 2, 3)
    cache = SpanCache({"attention:1": old}, jnp.array([4, 1]))
    options = {"scale": 0.5, "window": window, "soft_cap": cap}
    found = cache.attend(Attention(), query, key, value, whole=None, **options)
    places = [[4, 5, 6], [1, 2, 3]]
    assert cache.positions(3).tolist() == places
    keys, values = (np.array(array) for array in old)
    for row in (0, 1):  # what was taken back is written over, all else stays
        keys[row][:, places[row]] = np.swapaxes(key[row], 0, 1)
        values[row][:, places[row]] = np.swapaxes(value[row], 0, 1)
    for array, expected in zip(
        cache.entries["attention:1"], (keys, values), strict=True
    ):
        np.testing.assert_array_equal(array, expected)
    expected = by_formula(query, keys, values, places, 0.5, window, cap)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
