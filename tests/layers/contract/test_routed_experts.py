"""Tests of ``exburn.layers.contract.routed_experts``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.core.batch_independence import mixes_rows
from exburn.layers.contract.routed_experts import (
    Form,
    block_count,
    choose_form,
    exburn_routed_experts,
    route_experts,
)

FORMS = [Form("every"), Form("ragged"), *(Form("blocks", n) for n in (1, 4, 16))]
EXPERTS, TOP_K, WIDTH, UNITS = 5, 2, 4, 6


@functools.cache
def arrays(dtype="float32"):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 7, WIDTH))
    shares, chosen = jax.lax.top_k(rng.uniform(size=(2, 7, EXPERTS)), TOP_K)
    sizes = (WIDTH, UNITS), (WIDTH, UNITS), (UNITS, WIDTH)
    weights = [rng.normal(size=(EXPERTS, *size)) for size in sizes]
    floats = [jnp.asarray(v, dtype) for v in (x, shares, *weights)]
    return floats, chosen


def plain(x, shares, gate, up, down, chosen):
    """The formula, token by token and expert by expert."""
    total = 0
    for expert in range(EXPERTS):
        share = jnp.where(chosen == expert, shares, 0).sum(-1, keepdims=True)
        inner = jax.nn.silu(x @ gate[expert]) * (x @ up[expert])
        total += share * (inner @ down[expert])
    return total


def routed(form, x, shares, gate, up, down, chosen):
    return exburn_routed_experts(
        *(x, chosen, shares, gate, up, down), activation=jax.nn.silu, form=form
    )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.name}{form.block}")
def test_all_forms_and_their_gradients_are_the_formula(form):
    floats, chosen = arrays()

    def loss(function, *floats):
        return jnp.sum(function(*floats, chosen) ** 2)

    def both(function):
        run = functools.partial(loss, jax.checkpoint(function))
        return jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2, 3, 4)))(*floats)

    expected, slopes = both(plain)
    value, found = both(functools.partial(routed, form))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for one, other in zip(found, slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.name}{form.block}")
def test_no_token_is_dropped_however_they_choose(form):
    floats, _ = arrays()
    for experts in ([3, 1], [0, 4], [4, 3]):  # all the same ones
        chosen = jnp.broadcast_to(jnp.array(experts), (2, 7, TOP_K))
        np.testing.assert_allclose(
            routed(form, *floats, chosen),
            plain(*floats, chosen),
            rtol=1e-4,
            atol=1e-4,
        )


def test_second_derivatives_are_those_of_the_formula():
    floats, chosen = arrays()

    def curve(function):
        def slope(t):
            return jnp.sum(function(t * floats[0], *floats[1:], chosen) ** 2)

        return jax.jit(jax.grad(jax.grad(slope)))(1.0)

    for form in (Form("every"), Form("blocks", 4)):
        found = curve(functools.partial(routed, form))
        np.testing.assert_allclose(found, curve(plain), rtol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_summed_in_float32(dtype):
    floats, chosen = arrays(dtype)
    exact = plain(*arrays()[0], chosen)
    for form in (Form("every"), Form("blocks", 4)):
        y = routed(form, *floats, chosen)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.astype("float32"), exact, atol=0.35, rtol=0.05)


def test_the_form_is_the_cheapest():
    assert choose_form(1, 8, 2, "cpu") == Form("blocks", 1)
    assert choose_form(16, 8, 2, "cpu").name == "every"
    assert choose_form(256, 8, 2, "cpu") == Form("blocks", 64)
    assert choose_form(1, 8, 2, "gpu") == Form("blocks", 1)
    assert choose_form(32, 8, 2, "gpu").name == "ragged"
    assert choose_form(4096, 128, 8, "gpu").name == "blocks"
    assert choose_form(4096, 8, 8, "gpu").name == "every"
    few = choose_form(4096, 32, 8, "gpu", parts=4)  # of 128 experts
    assert few.rows == 10240 and few.block
    assert choose_form("n", 8, 2, "cpu").name == "every"
    assert choose_form(256, 8, 2, "tpu").name == "ragged"
    assert block_count(8, 64, 4) == 8


def test_rows_are_known_not_to_mix():
    (x, shares, *weights), chosen = arrays()

    def run(x, chosen, shares):
        form = Form("blocks", 4)
        return route_experts(x, chosen, shares, tuple(weights), jnp.tanh, form)

    specs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (x, chosen, shares)]
    assert not mixes_rows(run, *specs)
