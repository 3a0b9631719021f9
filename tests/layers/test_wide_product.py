"""The product with very many columns, and GELU in half precision, as on a GPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import activations
from exburn.kernels import padded_matmul as module
from exburn.kernels.padded_matmul import wide_product
from exburn.layers import Dense

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 8)).astype(np.float32)
KERNEL = RNG.standard_normal((8, 5_001)).astype(np.float32)


@pytest.mark.parametrize("backend", ["gpu", "cpu"])
def test_values_and_gradients_are_those_of_a_plain_product(monkeypatch, backend):
    monkeypatch.setattr(module.jax, "default_backend", lambda: backend)

    def of(product):
        total = lambda x, kernel: jnp.sin(product(x, kernel)).sum()  # noqa: E731
        return product(X, KERNEL), *jax.grad(total, (0, 1))(X, KERNEL)

    for ours, plain in zip(of(wide_product), of(jnp.matmul), strict=True):
        assert ours.shape == plain.shape
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.cpu
def test_columns_are_filled_up_on_a_gpu_only(monkeypatch):
    def widths():
        text = str(jax.make_jaxpr(lambda x: wide_product(x, KERNEL))(X))
        return "5120" in text

    assert not widths()
    monkeypatch.setattr(module.jax, "default_backend", lambda: "gpu")
    assert widths()


@pytest.mark.cpu
@pytest.mark.parametrize("activation", ["relu", "softmax", "gelu", "glu"])
def test_on_a_cpu_rows_get_bias_and_activation_before_they_are_sequences(activation):
    layer = Dense(6, activation=activation, bias_initializer="random_normal")
    out = layer(X)
    wanted = layer.activation(X @ layer.kernel.numpy() + layer.bias.numpy())
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    *_, last = jax.make_jaxpr(layer)(X).eqns
    assert last.primitive.name == "reshape"


def test_a_function_of_ones_own_sees_sequences():
    seen = []
    layer = Dense(6, activation=lambda y: seen.append(y.shape) or y[:, ::-1])
    assert layer(X).shape == (2, 3, 6)
    assert set(seen) == {(2, 3, 6)}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_in_half_precision_is_as_exact_as_its_dtype(dtype):
    x = jnp.linspace(-8, 8, 401).astype(dtype)
    wide = x.astype(jnp.float32)
    exact = lambda v: jax.nn.gelu(v, approximate=False)  # noqa: E731
    step = float(jnp.finfo(dtype).eps)
    for ours, true in (
        (activations.gelu(x), exact(wide)),
        (jax.vmap(jax.grad(activations.gelu))(x), jax.vmap(jax.grad(exact))(wide)),
    ):
        assert ours.dtype == dtype
        error = np.abs(ours.astype(jnp.float32) - true)
        assert (error <= step * (np.abs(true) + 1e-3)).all()


def test_gelu_in_float32_is_exact_to_a_millionth():
    x = jnp.linspace(-12, 12, 2401)
    exact = functools.partial(jax.nn.gelu, approximate=False)
    values = [f(x) for f in (activations.gelu, exact)]
    slopes = [jax.vmap(jax.grad(f))(x) for f in (activations.gelu, exact)]
    assert np.abs(values[0] - values[1]).max() < 1.5e-6
    assert np.abs(slopes[0] - slopes[1]).max() < 1.5e-6
