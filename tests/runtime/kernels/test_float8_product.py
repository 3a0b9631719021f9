"""Tests of ``exburn.runtime.kernels.float8_product`` and ``float8_rounding``."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from exburn.core import forward_context
from exburn.core.precision.matmul import FLOAT8, matmuls_in
from exburn.runtime import portable
from exburn.runtime.kernels import float8_product as module
from exburn.runtime.kernels import float8_rounding
from exburn.runtime.kernels.float8_product import fits, pays, product

RNG = np.random.default_rng(0)
X, KERNEL, SLOPE = (
    jnp.asarray(RNG.standard_normal(shape) * size, jnp.bfloat16)
    for shape, size in [((128, 64), 3), ((64, 192), 0.02), ((128, 192), 1e-4)]
)


def rounded(x, kind):
    """In 8 bits and back, by NumPy."""
    x = np.asarray(x, np.float64)
    largest = float(ml_dtypes.finfo(kind).max)
    scale = 2.0 ** np.floor(np.log2(largest / abs(x).max()))
    return (x * scale).astype(np.float32).astype(kind).astype(np.float64) / scale


def all_three(function):
    y, back = jax.vjp(function, X, KERNEL)
    return [np.asarray(v, np.float64) for v in (y, *back(SLOPE))]


def expected():
    x, kernel = (rounded(v, ml_dtypes.float8_e4m3fn) for v in (X, KERNEL))
    slope = rounded(SLOPE, ml_dtypes.float8_e5m2)
    return x @ kernel, slope @ kernel.T, x.T @ slope


def test_values_and_gradients_are_products_of_rounded_numbers():
    for found, wanted in zip(all_three(product), expected(), strict=True):
        error = abs(found - wanted) / abs(wanted).max()
        assert error.max() < 2**-8  # the result's own rounding, to bfloat16
    for found, plain in zip(all_three(product), all_three(jnp.matmul), strict=True):
        error = np.linalg.norm(found - plain) / np.linalg.norm(plain)
        assert 1e-3 < error < 0.1


def test_the_kernel_rounds_as_xla_does(monkeypatch):
    plain, calls = all_three(product), []

    def options(warps):
        calls.append(warps)
        return {"interpret": True}

    monkeypatch.setattr(float8_rounding, "runs_kernels", lambda **_: True)
    monkeypatch.setattr(float8_rounding, "options", options)
    found = all_three(product)
    assert len(calls) == 3
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_of_gradients_are_those_of_the_exact_product():
    def bend(function):
        def total(x, kernel):
            return function(x, kernel).astype(jnp.float32).mean() ** 2

        def steep(x, kernel):
            slopes = jax.grad(total, (0, 1))(x, kernel)
            return sum((v.astype(jnp.float32) ** 2).sum() for v in slopes)

        return jax.grad(steep, (0, 1))(jnp.abs(X), jnp.abs(KERNEL))

    for found, exact in zip(bend(product), bend(jnp.matmul), strict=True):
        found, exact = np.asarray(found, float), np.asarray(exact, float)
        np.testing.assert_allclose(found, exact, rtol=0.1)


@pytest.mark.parametrize("size", [0.0, 1e-15, 1e30])
def test_any_size_of_numbers_keeps_its_order(size):
    found = np.asarray(product(X * jnp.bfloat16(size), KERNEL), np.float64)
    wanted = np.asarray(X, np.float64) * size @ np.asarray(KERNEL, np.float64)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - wanted) <= 0.1 * np.linalg.norm(wanted)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_hidden(bad):
    assert np.isnan(np.asarray(product(X.at[3, 5].set(bad), KERNEL), float)).all()
    slope = jax.vjp(product, X, KERNEL)[1](SLOPE.at[0, 0].set(bad))
    assert all(np.isnan(np.asarray(v, float)).all() for v in slope)


def test_it_runs_where_it_pays_in_training_in_layers_that_ask_for_it(monkeypatch):
    assert pays(16_384, 2_048, 2_048) and not pays(16_384, 2_048, 2_050)
    small = (64, 4_096, 4_096), (16_384, 2_048, 512), (2_048, 2_048, 2_048)
    assert not any(pays(*sizes) for sizes in [*small, (0, 64, 64)])
    monkeypatch.setattr(module, "LEAST", (20, 0))

    def runs(x=X, kernel=KERNEL, precision=FLOAT8, in_fit=True):
        context = forward_context.Context(training=True)
        context.in_fit = in_fit
        with forward_context.forward(context), matmuls_in(precision):
            return fits(x, kernel)

    assert runs() and not runs(in_fit=False) and not runs(precision=None)
    assert not runs(x=X.astype("float32")) and not runs(kernel=KERNEL[:, :100])
    with portable.portable("onnx"):
        assert not runs()
