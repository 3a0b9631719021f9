"""Tests of ``exburn.runtime.kernels.padded_matmul``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.wide import KERNEL, X

from exburn.core import forward_context
from exburn.runtime.kernels import padded_matmul as module
from exburn.runtime.kernels.padded_matmul import table_product, wide_product


@pytest.mark.parametrize("backend", ["gpu", "cpu"])
def test_values_and_gradients_are_those_of_a_plain_product(monkeypatch, backend):
    monkeypatch.setattr(module.jax, "default_backend", lambda: backend)

    def of(product):
        total = lambda x, kernel: jnp.sin(product(x, kernel)).sum()  # noqa: E731
        return product(X, KERNEL), *jax.grad(total, (0, 1))(X, KERNEL)

    for ours, plain in zip(of(wide_product), of(jnp.matmul), strict=True):
        assert ours.shape == plain.shape
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 3)])
def test_a_table_is_not_transposed_for_one_vector(shape):
    x = jnp.sin(jnp.arange(np.prod(shape) * 8.0)).reshape(*shape, 8)
    table = KERNEL.T[:, :8]

    def of(product):
        total = lambda x, table: jnp.sin(product(x, table)).sum()  # noqa: E731
        return product(x, table), *jax.grad(total, (0, 1))(x, table)

    plain = of(lambda x, table: x @ table.T)
    for ours, expected in zip(of(table_product), plain, strict=True):
        assert ours.shape == expected.shape
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    text = str(jax.make_jaxpr(table_product)(x, table))
    assert ("transpose" in text) == (shape == (2, 3))
    half = jax.make_jaxpr(table_product)(x.astype("bfloat16"), table.astype("bfloat16"))
    assert "transpose" in str(half)


@pytest.mark.usefixtures("cpu_only")
def test_columns_are_filled_up_on_a_gpu_only(monkeypatch):
    def widths():
        text = str(jax.make_jaxpr(lambda x: wide_product(x, KERNEL))(X))
        return "5120" in text

    assert not widths()
    monkeypatch.setattr(module.jax, "default_backend", lambda: "gpu")
    assert widths()


@pytest.mark.usefixtures("cpu_only")
def test_while_a_text_is_written_rows_are_filled_up_and_no_columns(monkeypatch):
    monkeypatch.setattr(module.jax, "default_backend", lambda: "gpu")
    ctx = forward_context.Context()
    ctx.cache = object()
    row = X.reshape(-1, X.shape[-1])[:1][None]
    with forward_context.forward(ctx):
        text = str(jax.make_jaxpr(lambda x: wide_product(x, KERNEL))(row))
        found = wide_product(row, KERNEL)
    assert f"[8,{KERNEL.shape[1]}]" in text and "5120" not in text
    np.testing.assert_allclose(found, row @ KERNEL, rtol=1e-4, atol=1e-4)
