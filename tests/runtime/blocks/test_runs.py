"""Runs of equal blocks that are found in programs."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.blocks import forms
from exburn.runtime.blocks.runs import find_runs


def runs_of(function, *args):
    code = jax.make_jaxpr(function)(*args).jaxpr
    return [(run.start, run.length, run.blocks) for run in find_runs(code)]


WEIGHTS = [jnp.ones((3, 3))] * 8


def test_runs_are_cut_where_one_value_is_handed_on():
    def function(x, weights):
        x = jnp.sin(x)
        for w in weights:
            x = x + jnp.tanh(x @ w) * 2
        return jnp.cos(x)

    code = jax.make_jaxpr(function)(jnp.ones((2, 3)), WEIGHTS).jaxpr
    (run,) = find_runs(code)
    assert (run.start, run.length, run.blocks) == (1, 4, 8)
    assert len(run.carried) == 1 and len(run.stacked) == 1


def test_blocks_that_read_the_one_before_the_last_are_no_run():
    def function(x, weights):
        before = [x, x]
        for w in weights:
            before.append(jnp.sin(jnp.tanh(before[-1] @ w)) + before[-2])
        return before[-1]

    pairs = runs_of(function, jnp.ones((2, 3)), WEIGHTS)
    assert all(length > 4 for _, length, _ in pairs)  # two together read the two before


def test_blocks_of_other_shapes_are_no_run():
    def function(x, weights):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    weights = [jnp.ones((n, n + 1)) for n in range(3, 12)]
    assert runs_of(function, jnp.ones((2, 3)), weights) == []


def test_a_pair_of_unlike_layers_is_one_block():
    def function(x, weights):
        for one, two in zip(weights[::2], weights[1::2], strict=True):
            x = jnp.sin(jnp.tanh(x @ one) @ two)
        return x

    (run,) = runs_of(function, jnp.ones((2, 3)), WEIGHTS)
    assert run == (0, 4, 4)


def test_literals_that_differ_are_stacked():
    def function(x):
        for number in range(8):
            x = jnp.sin(x) * np.float32(number) + 1
        return x

    code = jax.make_jaxpr(function)(jnp.ones(3)).jaxpr
    (run,) = find_runs(code)
    assert [len(one.values) for one in run.stacked] == [8]


def test_blocks_that_do_not_pay_are_not_found_in_pairs():
    def function(x, weights):
        for w in weights:
            x = jnp.sin(jnp.tanh(x @ w) + 1)
        return x

    code = jax.make_jaxpr(function)(jnp.ones((2, 3)), WEIGHTS).jaxpr
    sizes = []
    runs = find_runs(code, pays=lambda code, run: bool(sizes.append(run.length)))
    assert runs == [] and sizes == [4]


def test_gradients_are_traced_only_of_what_occurs_in_enough_blocks(monkeypatch):
    traced = []
    trace = forms._gradient

    def note(equation):
        traced.append(equation)
        return trace(equation)

    monkeypatch.setattr(forms, "_gradient", note)

    def deep(x, weights):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x

    widths = range(2, 12)
    unlike = [jnp.ones((a, b)) for a, b in itertools.pairwise(widths)]
    code = jax.make_jaxpr(deep)(jnp.ones((3, 2)), unlike).jaxpr
    assert list(find_runs(code)) == [] and traced == []
    alike = jax.make_jaxpr(deep)(jnp.ones((3, 4)), [jnp.ones((4, 4))] * 8).jaxpr
    assert [run.blocks for run in find_runs(alike)] == [8] and traced
