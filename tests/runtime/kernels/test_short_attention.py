"""Tests of ``exburn.runtime.kernels.short_attention``."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import close, derivatives

from exburn.core import forward_context
from exburn.runtime.kernels import short_attention
from exburn.runtime.kernels.short_attention import attend, fits, plain_attend

HEADS, SCALE = 2, 0.25


def arrays(batch=2, tokens=16, size=16):
    rng = np.random.default_rng(tokens)
    shapes = (batch, tokens, 3 * HEADS * size), (3 * HEADS * size,)
    return [jnp.asarray(rng.standard_normal(s), jnp.float32) for s in shapes]


def by_kernel(product, bias):
    return attend(product, bias, HEADS, SCALE)


def plain(product, bias):
    return plain_attend(product, bias, HEADS, SCALE)


@pytest.mark.parametrize(("tokens", "size"), [(16, 32), (64, 16)])
def test_attention_of_short_rows_agrees_with_the_plain_form(kernels, tokens, size):
    args = arrays(3, tokens, size)  # a shape that is not traced yet
    close(derivatives(by_kernel, *args), derivatives(plain, *args), 1e-4)
    assert len(kernels) >= 2, "the kernels were not used"


def test_large_scores_do_not_overflow(kernels):
    product, bias = arrays()
    close(by_kernel(40 * product, bias), plain(40 * product, bias), 1e-4)


FORMS = {
    "vmap": lambda f: lambda x, bias: jax.vmap(f, (0, None))(jnp.stack([x, -x]), bias),
    "vmap of biases": lambda f: (
        lambda x, bias: jax.vmap(f, (None, 0))(x, jnp.stack([bias, -bias]))
    ),
    "remat": jax.checkpoint,
    "scan": lambda f: (
        lambda x, bias: jax.lax.scan(lambda c, x: (c, f(x, bias)), 0, x[:, None])[1]
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_under_transformations_it_is_the_plain_form(kernels, form):
    args = arrays()

    def gradients(function):
        call = FORMS[form](function)
        total = jax.jit(lambda *args: (call(*args) ** 2).sum())
        return call(*args), jax.grad(total, (0, 1))(*args)

    close(gradients(by_kernel), gradients(plain), 1e-4)


@pytest.mark.parametrize(
    ("shape", "dtype", "heads", "size", "taken"),
    [
        ((32, 64, 192), "float32", 3, 64, True),
        ((32, 64, 192), "bfloat16", 3, 64, False),
        ((32, 48, 192), "float32", 3, 64, False),
        ((32, 128, 192), "float32", 3, 64, False),  # not measured
        ((32, 64, 192), "float32", 6, 32, False),  # not measured
        ((16, 64, 192), "float32", 3, 64, False),  # fewer programs than a GPU runs
        ((32, 8, 8, 192), "float32", 3, 64, False),
    ],
)
def test_rows_that_the_kernels_take(
    kernels, monkeypatch, shape, dtype, heads, size, taken
):
    x = jax.ShapeDtypeStruct(shape, dtype)
    assert not fits(x, heads, size)  # outside of fit
    context = types.SimpleNamespace(in_fit=True)
    monkeypatch.setattr(forward_context, "current", lambda: context)
    assert fits(x, heads, size) is taken


def test_without_kernels_it_is_left_to_xla(monkeypatch):
    context = types.SimpleNamespace(in_fit=True)
    monkeypatch.setattr(forward_context, "current", lambda: context)
    monkeypatch.setattr(short_attention, "runs_kernels", lambda: False)
    assert not fits(jax.ShapeDtypeStruct((32, 64, 192), "float32"), 3, 64)
