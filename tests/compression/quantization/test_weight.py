"""A weight of few bits in the place of an exact one: its products."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compression.quantization.plain import every_layer, rounded_up

from exburn import ops
from exburn.compression.quantization.scheme import Scheme
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.module.variable import Parameter


@pytest.fixture(scope="module")
def zoo():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 6, 16)).astype(np.float32)
    return every_layer(), [x, rng.integers(0, 50, (3, 7)).astype(np.int32)]


def test_int8_dynamic_rounds_rows_of_the_input(zoo):
    model, x = zoo
    small = model.quantize("int8_dynamic", filters=["dense", "einsum"])
    outputs = small.predict(x, verbose=0)
    step = np.abs(x[0]).max(-1, keepdims=True) / 127
    rounded = np.rint(x[0] / step)
    for name, activation in (("dense", lambda v: np.maximum(v, 0)), ("einsum", None)):
        layer = model.get_layer(name)
        kernel = layer.kernel.numpy()
        scale = rounded_up(np.abs(kernel).max(0) / np.float32(127))
        y = (rounded @ np.rint(kernel / scale)) * step * scale + layer.bias.numpy()
        want = activation(y) if activation else y
        np.testing.assert_allclose(outputs[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "int4", "float8", "dynamic"])
def test_a_single_row_by_sums_equals_a_matrix_product(rng, monkeypatch, dtype):
    weight = Parameter(rng.standard_normal((70, 9)).astype(np.float32))
    stored = "int8" if dtype == "dynamic" else dtype
    scheme = Scheme(
        stored, (70, 9), (0,), 32 if dtype == "int4" else None, dtype == "dynamic"
    )
    small = QuantizedWeight(weight, scheme)
    x = jnp.asarray(rng.standard_normal((1, 1, 70)), jnp.float32)
    wanted = small.multiply(jnp.tile(x, (2, 1, 1)))[:1]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "dot_general" not in str(jax.make_jaxpr(small.multiply)(x))
    np.testing.assert_allclose(small.multiply(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [3, 4, 70])
def test_integer_products_on_a_gpu_sum_a_multiple_of_four_terms(
    rng, monkeypatch, columns
):
    """Of others XLA's kernels there give twice the product."""
    x = jnp.asarray(rng.integers(-127, 128, (2, columns)), jnp.int8)
    y = jnp.asarray(rng.integers(-127, 128, (columns, 5)), jnp.int8)
    scheme = Scheme("int8", (columns, 5), (0,), dynamic=True)
    weight = QuantizedWeight(Parameter(y.astype(jnp.float32)), scheme)
    exact = weight.multiply(x.astype(jnp.float32))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for product, wanted, given in (
        (ops.matmul, np.asarray(x, int) @ np.asarray(y, int), (x, y)),
        (weight.multiply, exact, (x.astype(jnp.float32),)),
    ):
        np.testing.assert_array_equal(product(*given), wanted)
        text = jax.jit(product).lower(*given).as_text()
        (terms,) = re.findall(r"dot_general.*\(tensor<2x(\d+)xi8>", text)
        assert int(terms) % 4 == 0


def test_the_gradient_of_dynamic_rounding_is_that_of_the_product(rng):
    weight = Parameter(rng.standard_normal((16, 4)).astype(np.float32))
    small = QuantizedWeight(weight, Scheme("int8", (16, 4), (0,), dynamic=True))
    x = jnp.asarray(rng.standard_normal((3, 16)), jnp.float32)
    gradient = jax.grad(lambda x: (small.multiply(x) ** 2).sum())(x)
    wanted = 2 * small.multiply(x) @ small.get_value().T
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["int8", "int4", "nf4", "float8"])
def test_gradients_keep_no_matrix(rng, mode):
    """Of a frozen weight only its stored parts are kept for the gradient."""
    weight = Parameter(rng.standard_normal((64, 48)).astype(np.float32))
    block = 32 if mode in ("int4", "nf4") else None
    scales = "float32" if mode == "nf4" else "bfloat16"
    small = QuantizedWeight(weight, Scheme(mode, (64, 48), (0,), block, scales=scales))
    x = jnp.asarray(rng.standard_normal((5, 64)), jnp.float32)
    y, pull = jax.vjp(small.multiply, x)
    kept = jax.tree.leaves(pull)
    assert {v.dtype.itemsize for v in kept if v.size >= 64 * 24} == {1}  # as stored
    slope = jnp.asarray(rng.standard_normal(y.shape), jnp.float32)
    matrix = np.asarray(small)
    np.testing.assert_allclose(y, x @ matrix, atol=1e-4)
    np.testing.assert_allclose(pull(slope)[0], slope @ matrix.T, atol=1e-4)


@pytest.mark.parametrize("mode", ["int4", "nf4"])
def test_second_derivatives_vmap_and_scan_of_products(rng, mode):
    weight = Parameter(rng.standard_normal((8, 8)).astype(np.float32))
    scales = "float32" if mode == "nf4" else "bfloat16"
    small = QuantizedWeight(weight, Scheme(mode, (8, 8), (0,), 4, scales=scales))
    matrix = jnp.asarray(np.asarray(small))
    x = jnp.asarray(rng.standard_normal((3, 8)), jnp.float32)

    def energy(product):
        def run(x):
            step = jax.checkpoint(lambda h, _: (jnp.tanh(product(h)), None))
            return jax.vmap(lambda v: jax.lax.scan(step, v[None], None, 3)[0])(x).sum()

        return run

    for derive in (jax.grad, jax.hessian, lambda f: jax.jit(jax.jacfwd(f))):
        ours, plain = (
            derive(energy(p))(x) for p in (small.multiply, lambda v: v @ matrix)
        )
        np.testing.assert_allclose(ours, plain, atol=1e-4)
