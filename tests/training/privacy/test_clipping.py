"""Clipped sums, beside opacus, and what one row can change of them."""

import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.training.privacy import clipping
from exburn.training.privacy.clipping import (
    Mechanism,
    add_noise,
    clipped_sum,
    sum_over_rows,
    sum_over_turns,
)

RECORDED = Path(__file__).parents[2] / "insight" / "recorded" / "privacy.npz"


def scores_of(name, w, x):
    if name == "cnn":
        x = jax.lax.conv_general_dilated(x[None], w[0], (1, 1), "VALID")[0]
        x = jnp.tanh(x + w[1][:, None, None]).reshape(-1)
    else:
        x = jnp.tanh(w[0] @ x + w[1])
    return w[2] @ x + w[3]


@pytest.mark.parametrize("budget", [256 << 20, 1000])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_clipped_sums_are_those_of_opacus(monkeypatch, name, budget):
    with np.load(RECORDED) as arrays:
        x, y = arrays[f"{name}/x"], arrays[f"{name}/y"]
        weights = [arrays[f"{name}/weight{i}"] for i in range(4)]
        sums = [arrays[f"{name}/sum{i}"] for i in range(4)]
    monkeypatch.setattr(clipping, "_BYTES", budget)  # all at once, or some by some

    def loss(w, row):
        return -jax.nn.log_softmax(scores_of(name, w, row[0]))[row[1]]

    def differentiate(row, number):
        return jax.value_and_grad(loss)(weights, row)

    ours, losses = jax.jit(
        lambda: sum_over_rows(
            differentiate, (x, y), jnp.ones(len(x), bool), 0.8, row_bytes=300
        )
    )()
    for one, other in zip(ours, sums, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert losses.shape == (9,)
    np.testing.assert_allclose(losses[3], loss(weights, (x[3], y[3])), rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e3, 1e30, np.inf, np.nan])
def test_one_row_changes_the_sum_by_no_more_than_the_clip(scale):
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=(5, 3, 2)), "b": rng.normal(size=(5,))}
    rows = jax.tree.map(jnp.float32, rows)
    other = jax.tree.map(lambda v: v.at[2].multiply(scale), rows)
    without = clipped_sum(rows, 0.5, jnp.arange(5) != 2)
    change = jax.tree.map(jnp.subtract, clipped_sum(other, 0.5), without)
    norm = np.sqrt(sum(np.sum(np.square(v)) for v in jax.tree.leaves(change)))
    assert norm <= 0.5 * (1 + 1e-5)
    if scale == 1e30:
        assert norm == pytest.approx(0.5, rel=1e-5)


def test_rows_that_fill_up_count_for_nothing():
    rows = {"w": jnp.asarray([[1.0, 0.0], [np.nan, 1.0], [0.0, 9.0]])}
    mask = jnp.asarray([True, False, True])
    np.testing.assert_allclose(clipped_sum(rows, 2.0, mask)["w"], [1.0, 2.0])
    none = clipped_sum(rows, 2.0, jnp.zeros(3, bool))
    np.testing.assert_array_equal(none["w"], [0.0, 0.0])


def test_turns_without_rows_are_left_out(monkeypatch):
    monkeypatch.setattr(clipping, "_BYTES", 600)  # two rows
    turns = []

    def differentiate(row, number):
        return number, {"w": row}

    def turn(part, counts, numbers):
        jax.debug.callback(lambda n: turns.append(n.tolist()), numbers)
        return clipped_sum({"w": part}, 9.0, counts), numbers

    x = jnp.arange(12.0).reshape(6, 2)
    for count in (0, 2, 3, 6):
        turns.clear()
        mask = jnp.arange(6) < count
        sums, seen = jax.jit(lambda m: sum_over_turns(turn, x, m, 300))(mask)
        jax.effects_barrier()
        by_rows, _ = sum_over_rows(differentiate, x, mask, 9.0, 300)
        np.testing.assert_allclose(sums["w"], by_rows["w"], rtol=1e-6)
        assert sorted(turns) == [[n, n + 1] for n in range(0, count, 2)]
        np.testing.assert_array_equal(seen[:count], np.arange(6)[:count])


@pytest.mark.parametrize("size", [4_000, 3_900])
def test_noise_that_is_drawn_in_pieces_is_another_for_each(monkeypatch, size):
    monkeypatch.setattr(clipping, "_PIECE", 1_000)
    values = jnp.linspace(0, 9, size).reshape(2, -1)
    noisy = jax.jit(lambda v: add_noise(v, 3.0, jax.random.key(1)))(values)
    noise = np.ravel(noisy - values)
    assert np.std(noise) == pytest.approx(3, rel=0.05)
    pieces = np.split(noise, [1_000, 2_000, 3_000])
    for one, other in itertools.combinations(pieces, 2):
        least = min(len(one), len(other))
        assert abs(np.corrcoef(one[:least], other[:least])[0, 1]) < 0.15
        assert np.std(other) == pytest.approx(3, rel=0.1)


def test_the_noise_has_its_spread_and_is_another_for_each_step_and_weight():
    mechanism = Mechanism(clip=0.5, noise=3.0, rows=10.0)
    sums = {"a": jnp.full(40_000, 10.0), "b": jnp.full(40_000, 10.0)}
    key = jax.random.key(0)
    first, again = mechanism.gradient(sums, key), mechanism.gradient(sums, key)
    other = mechanism.gradient(sums, jax.random.fold_in(key, 1))
    np.testing.assert_array_equal(first["a"], again["a"])
    for one in (other["a"], first["b"]):
        assert abs(np.corrcoef(first["a"], one)[0, 1]) < 0.02
    assert np.mean(first["a"]) == pytest.approx(1.0, abs=0.005)
    assert np.std(first["a"]) == pytest.approx(0.15, rel=0.02)
