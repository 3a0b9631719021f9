"""Attention over pages: the same in both layouts."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.models.generation.engine.cache import PagedCache
from exburn.runtime.kernels.cached_attention import round_heads

PAGES, PAGE, GROUPS, HEADS, SIZE = 40, 4, 2, 4, 16
STARTS = np.array([0, 13, 30, 7])
TABLES = np.full((4, 8), PAGES)
TABLES[1, :4], TABLES[2, :8], TABLES[3, :2] = range(4), range(9, 17), (20, 4)


def draw(shape, seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def attend(heads_first, count, counts, spoil=None, few_bits=False, **options):
    layer = types.SimpleNamespace(name="attention")
    entry = [draw((PAGES, PAGE, GROUPS, SIZE), seed) for seed in (0, 1)]
    if few_bits:
        (keys, scales), (values, others) = map(round_heads, entry)
        entry = [keys, values, scales, others]
    if heads_first:
        entry = [a.transpose(2, 0, 1, *range(3, a.ndim)) for a in entry]
    cache = PagedCache(
        {"attention:1": tuple(entry)},
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


@pytest.mark.parametrize("window, soft_cap", [(None, None), (5, 2.0)])
def test_pages_of_int8_read_what_a_row_has_but_for_the_rounding(window, soft_cap):
    counts = np.array([0, 3, 2, 1])
    options = {"window": window, "soft_cap": soft_cap}
    exact, _, _ = attend(False, 3, counts, **options)
    out, entry, (_, key, _) = attend(False, 3, counts, few_bits=True, **options)
    assert [a.dtype.name for a in entry] == ["int8", "int8", "float32", "float32"]
    for row in (1, 2, 3):
        seen = out[row, : counts[row]], exact[row, : counts[row]]
        np.testing.assert_allclose(*seen, atol=0.03)
    assert 0 < np.abs(out[1:, 0] - exact[1:, 0]).max()
    at, page = STARTS[1] % PAGE, TABLES[1][STARTS[1] // PAGE]
    whole = np.asarray(entry[0][page, at]) * np.asarray(entry[2][page, at])[:, None]
    np.testing.assert_allclose(whole, key[1, 0], atol=0.02)


@pytest.mark.parametrize("heads_first, few_bits", [(0, 0), (1, 0), (0, 1)])
def test_a_value_of_nan_reaches_those_alone_who_see_it(heads_first, few_bits):
    counts, options = np.full(4, 3), {"window": 2, "soft_cap": None}
    options["few_bits"] = few_bits
    out, entry, _ = attend(heads_first, 3, counts, spoil=(2, 1), **options)
    sound = np.isfinite(out).all(axis=(2, 3))
    expected = np.ones((4, 3), bool)
    expected[2, 1:] = False
    np.testing.assert_array_equal(sound, expected)
    values = entry[3] if few_bits else entry[1]
    assert np.isfinite(values).all()
