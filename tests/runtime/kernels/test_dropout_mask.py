"""Tests of ``exburn.runtime.kernels.dropout_mask``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers as L
from exburn.runtime.kernels.dropout_mask import keep_mask


def masks(rate, shape, keys=200):
    many = jax.random.split(jax.random.key(5), keys)
    draw = jax.jit(jax.vmap(lambda key: keep_mask(key, rate, shape)[0]))
    return np.asarray(draw(many)), keep_mask(many[0], rate, shape)[1]


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.3, 1e-3, 0.999])
def test_the_share_of_what_is_kept_is_the_rate(rate):
    kept, share = masks(rate, (64, 33), keys=100)
    assert share == pytest.approx(1 - rate, abs=1e-9)
    spread = (rate * (1 - rate) / kept.size) ** 0.5
    assert abs(kept.mean() - share) < 4 * spread
    # Neither rows, columns nor masks differ more than chance has them differ.
    for axes in ((0, 1), (0, 2), (1, 2)):
        means = kept.mean(axes)
        noise = (rate * (1 - rate) * means.size / kept.size) ** 0.5
        assert 0.7 < means.std() / noise < 1.4


def test_neighbours_and_masks_are_independent():
    """Correlations between places at any distance, and between keys, are noise."""
    kept = 2.0 * masks(0.5, (4096,))[0] - 1
    for apart in (1, 2, 3, 4, 8, 16, 31, 32, 64, 128, 1024, 2048):
        along = (kept[:, apart:] * kept[:, :-apart]).mean()
        assert abs(along) < 4.5 / kept[:, apart:].size ** 0.5
    between = kept @ kept.T / kept.shape[1]
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 5.5 / kept.shape[1] ** 0.5
    triples = (kept[:, 2:] * kept[:, 1:-1] * kept[:, :-2]).mean()
    assert abs(triples) < 4.5 / kept.size**0.5


def test_keys_that_differ_in_one_bit_give_other_masks():
    words = [np.array([0, 1 << bit], np.uint32) for bit in range(32)]
    words += [np.array([1 << bit, 0], np.uint32) for bit in range(32)]
    kept = [keep_mask(jax.random.wrap_key_data(w), 0.5, (8192,))[0] for w in words]
    signs = 2.0 * np.asarray(kept) - 1
    between = signs @ signs.T / signs.shape[1]
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 5.5 / signs.shape[1] ** 0.5


def test_draws_of_one_key_are_independent():
    key = jax.random.key(1)
    kept = [keep_mask(key, 0.5, (8192,), draw)[0] for draw in range(100)]
    signs = 2.0 * np.asarray(kept) - 1
    between = signs @ signs.T / signs.shape[1]
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 5.5 / signs.shape[1] ** 0.5
    moved = [(signs[0, d:] * signs[1, :-d]).mean() for d in range(1, 2000)]
    assert np.abs(moved).max() < 5.5 / 6192**0.5


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_any_key_of_jax_will_do(impl):
    keep, share = keep_mask(jax.random.key(3, impl=impl), 0.25, (50, 40))
    assert share == 0.75 and abs(float(keep.mean()) - share) < 0.05
    assert not (keep[0] == keep[1]).all()


def test_a_mask_is_the_same_inside_of_a_program():
    key = jax.random.key(9)
    inside = jax.jit(lambda k: keep_mask(k, 0.4, (7, 5))[0])(key)
    np.testing.assert_array_equal(inside, keep_mask(key, 0.4, (7, 5))[0])
    assert keep_mask(key, 0.4, (0, 3))[0].shape == (0, 3)


def test_dropout_in_fit_loops_over_no_array():
    """Threefry's rounds would: what is left of them is for one key."""
    model = exburn.Sequential([exburn.Input((40,)), L.Dense(40), L.Dropout(0.5)])
    grad = jax.grad(lambda x: jnp.sum(L.Dropout(0.5)(x, training=True) ** 2))
    with exburn.key_scope(jax.random.key(0)):
        text = jax.jit(grad).lower(jnp.ones((30, 40))).compile().as_text()
    loops = [line for line in text.splitlines() if " while(" in line]
    assert not any("1200]" in line or "30,40]" in line for line in loops)
    x = np.ones((64, 40), "float32")
    model.compile("adam", "mse")
    model.fit(x, x, verbose=0)
    assert 0 < float((model(x, training=True) == 0).mean()) < 1
