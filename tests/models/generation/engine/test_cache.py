"""Attention over pages: the same in both layouts."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.models.generation.engine.cache import PagedCache

PAGES, PAGE, GROUPS, HEADS, SIZE = 40, 4, 2, 4, 16
STARTS = np.array([0, 13, 30, 7])
TABLES = np.full((4, 8), PAGES)
TABLES[1, :4], TABLES[2, :8], TABLES[3, :2] = range(4), range(9, 17), (20, 4)


def draw(shape, seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def attend(heads_first, count, counts, spoil=None, **options):
    layer = types.SimpleNamespace(name="attention")
    keys, values = (draw((PAGES, PAGE, GROUPS, SIZE), seed) for seed in (0, 1))
    if heads_first:
        keys, values = (a.transpose(2, 0, 1, 3) for a in (keys, values))
    cache = PagedCache(
        {"attention:1": (keys, values)},
        jnp.asarray(TABLES),
        jnp.asarray(STARTS),
        jnp.asarray(counts),
        heads_first,
    )
    query, key, value = (
        draw((4, count, heads, SIZE), seed)
        for seed, heads in ((2, HEADS), (3, GROUPS), (4, GROUPS))
    )
    if spoil is not None:
        value = value.at[spoil].set(jnp.nan)
    out = cache.attend(layer, query, key, value, whole=None, scale=0.3, **options)
    return out, cache.entries["attention:1"], (query, key, value)


def by_hand(query, keys, values, window, soft_cap):
    """One token's heads, over the keys up to its own."""
    out = []
    for head in range(HEADS):
        group = head // (HEADS // GROUPS)
        scores = keys[:, group] @ query[head] * 0.3
        if soft_cap is not None:
            scores = soft_cap * np.tanh(scores / soft_cap)
        if window is not None:
            scores[: max(len(scores) - window, 0)] = -np.inf
        weights = np.exp(scores - scores.max())
        out.append(weights / weights.sum() @ values[:, group])
    return np.array(out)


@pytest.mark.parametrize("window, soft_cap", [(None, None), (5, 2.0)])
@pytest.mark.parametrize("count", [1, 3])
def test_both_layouts_read_what_a_row_has(count, window, soft_cap):
    counts = np.array([0, count, min(count, 2), 1])
    options = {"window": window, "soft_cap": soft_cap}
    out, entries, (query, key, value) = attend(False, count, counts, **options)
    if window is not None or count > 1:  # else the kernel runs
        other, turned, _ = attend(True, count, counts, **options)
        np.testing.assert_allclose(out[1:, :1], other[1:, :1], atol=1e-6)
        for first, second in zip(entries, turned, strict=True):
            np.testing.assert_array_equal(first.transpose(2, 0, 1, 3), second)
    for row in (1, 2, 3):
        for token in range(counts[row]):
            end = STARTS[row] + token + 1
            keys, values = (
                np.concatenate([np.asarray(a)[p] for p in TABLES[row] if p < PAGES])
                for a in entries
            )
            expected = by_hand(
                np.asarray(query)[row, token],
                keys[:end],
                values[:end],
                window,
                soft_cap,
            )
            np.testing.assert_allclose(out[row, token], expected, atol=1e-5)
            np.testing.assert_array_equal(keys[end - 1], key[row, token])
    # Nothing but the tokens that count was written.
    before = np.asarray(draw((PAGES, PAGE, GROUPS, SIZE), 0))
    changed = (np.asarray(entries[0]) != before).any(axis=(2, 3)).sum()
    assert changed == counts.sum()


@pytest.mark.parametrize("heads_first", [False, True])
def test_a_value_of_nan_reaches_those_alone_who_see_it(heads_first):
    counts, options = np.full(4, 3), {"window": 2, "soft_cap": None}
    out, (_, values), _ = attend(heads_first, 3, counts, spoil=(2, 1), **options)
    sound = np.isfinite(out).all(axis=(2, 3))
    expected = np.ones((4, 3), bool)
    expected[2, 1:] = False
    np.testing.assert_array_equal(sound, expected)
    assert np.isfinite(values).all()
