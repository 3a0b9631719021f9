"""Tests of ``exburn.runtime.kernels.one_pass_norm``."""

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import (
    DTYPES,
    close,
    derivatives,
    losses,
    pure,
)

import exburn as keras
from exburn import layers
from exburn.runtime.kernels import memory_bound, one_pass_norm


@pytest.mark.parametrize("features", [384, 2048])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_normalization_agrees_with_the_plain_form(request, features, dtype):
    rng = np.random.default_rng(0)
    x = jnp.asarray(3 * rng.standard_normal((2, 32, features)) + 1, dtype)
    layer = layers.LayerNormalization(dtype=f"mixed_{dtype}")
    normalize, weights = pure(layer, x.shape)
    plain = derivatives(normalize, x, *weights)
    calls = request.getfixturevalue("kernels")
    found = derivatives(normalize, x, *weights)
    assert len(calls) >= 2, "the kernels were not used"
    assert found[0].dtype == x.dtype
    close(found, plain, 1e-2)


@pytest.mark.parametrize(
    ("shape", "dtype", "runs"),
    [
        ((4, 16, 256), "bfloat16", True),
        ((4, 16, 256), "float32", False),
        ((4, 15, 256), "bfloat16", False),  # no whole number of programs
        ((4, 16, 260), "bfloat16", False),
        ((4, 16, 64), "bfloat16", False),  # fewer groups than threads
        ((1, 32, 8192), "bfloat16", False),  # more than registers hold
    ],
)
def test_arrays_that_layer_normalization_leaves_to_xla(kernels, shape, dtype, runs):
    layer = layers.LayerNormalization(dtype=dtype, center=False, scale=False)
    assert layer(jnp.ones(shape, dtype)).shape == shape
    assert bool(kernels) is runs


def test_other_axes_are_left_to_xla(kernels):
    layers.LayerNormalization(axis=(1, 2), dtype="bfloat16")(jnp.ones((64, 4, 256)))
    assert not kernels


def test_192_features_go_through_the_kernels_in_fit(kernels, monkeypatch):
    monkeypatch.setattr(memory_bound, "ELEMENTS", 1 << 40)  # small arrays
    data = np.random.default_rng(0).standard_normal((32, 16, 192)).astype("float32")

    def model():
        keras.set_random_seed(0)
        parts = layers.LayerNormalization(), layers.Dense(1)
        model = keras.Sequential([keras.Input((16, 192)), *parts])
        model.compile("adam", "mse")
        return model

    history = losses(model(), data)
    assert kernels
    monkeypatch.setattr(one_pass_norm, "_FEW_LANES", 0)
    traces = len(kernels)
    np.testing.assert_allclose(history, losses(model(), data), rtol=1e-5)
    assert len(kernels) == traces


@pytest.mark.parametrize(
    ("samples", "dtype", "runs"),
    [(2048, "bfloat16", False), (4096, "bfloat16", True), (2048, "float32", True)],
)
def test_few_samples_of_192_features_in_halves_are_left_to_xla(
    kernels, monkeypatch, samples, dtype, runs
):
    monkeypatch.setattr(memory_bound, "ELEMENTS", 1 << 40)  # small arrays
    context = types.SimpleNamespace(in_fit=True)
    monkeypatch.setattr(one_pass_norm.forward_context, "current", lambda: context)
    assert one_pass_norm.fits(jnp.ones((samples, 192), dtype)) is runs


def test_large_arrays_of_192_features_are_left_to_xla(kernels):
    assert one_pass_norm.fits(jnp.ones((4, 16, 384), "bfloat16"))
    assert not one_pass_norm.fits(jnp.ones((4, 32, 192), "bfloat16"))


@pytest.mark.parametrize("samples", [32, 256])
def test_192_features_agree_with_the_plain_form(kernels, samples):
    rng = np.random.default_rng(samples)
    x, gamma, beta = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32)
        for shape in ((samples, 192), (192,), (192,))
    )
    normalize: Any = one_pass_norm.normalize
    plain = one_pass_norm._plain_values
    close(
        jax.vjp(lambda *args: normalize(*args, 1e-3), x, gamma, beta)[1](x + 1),
        jax.vjp(lambda *args: plain(*args, epsilon=1e-3)[0], x, gamma, beta)[1](x + 1),
        1e-4,
    )
    assert kernels
