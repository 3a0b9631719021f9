"""The kernel of a product with one row, interpreted, beside NumPy's product."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.runtime.kernels import vector_product
from exburn.runtime.kernels.vector_product import Around, Tiling, call

# form, terms, outputs, tiling: whole tiles, and tiles that go beyond the ends
CASES = [
    ("columns", 64, 32, Tiling(16, 32, 4)),
    ("columns", 72, 40, Tiling(16, 32, 4)),
    ("columns", 24, 8, None),
    ("rows", 64, 32, Tiling(4, 32, 4)),
    ("rows", 100, 41, Tiling(4, 32, 4)),
    ("int4", 128, 16, Tiling(8, 64, 4)),
    ("int4", 96, 11, Tiling(8, 64, 4)),
    ("int4", 96, 11, None),
]


def _matrix(form: str, terms: int, outputs: int, rng) -> tuple[list, np.ndarray]:
    """The parts of a matrix, and the matrix as ``[terms, outputs]``."""
    if form in ("columns", "rows"):
        exact = rng.normal(size=(terms, outputs)).astype("float32")
        return [exact if form == "columns" else exact.T], exact
    values = rng.integers(0, 256, (outputs, terms // 16, 8)).astype(np.uint8)
    scale = rng.random(values.shape[:2]).astype("float32")
    signed = values.view(np.int8)
    whole = np.concatenate([(signed << 4) >> 4, signed >> 4], -1)
    return [values, scale], (whole * scale[..., None]).reshape(outputs, terms).T


@pytest.mark.parametrize(("form", "terms", "outputs", "tiling"), CASES)
def test_product_is_numpys_with_what_is_around_it(
    form, terms, outputs, tiling, monkeypatch
):
    monkeypatch.setattr(vector_product, "options", lambda *_, **__: {"interpret": True})
    rng = np.random.default_rng(0)
    x, gamma = rng.normal(size=(2, terms)).astype("float32")
    other = rng.normal(size=outputs).astype("float32")
    first, exact = _matrix(form, terms, outputs, rng)
    second, more = _matrix(form, terms, outputs, rng)
    around = Around(
        lambda v, filled: [jnp.sum(jnp.where(filled, v[0] + 1, 0))],
        lambda v, totals: v[0] * v[1] * totals[0],
        lambda y, others: [y[0] * jnp.tanh(y[1]) + others[0], y[0] * others[1]],
    )
    ys = call(
        form,
        [first, second],
        [x, gamma],
        [other, np.float32([2.0])],
        ["float32", "float32"],
        around,
        tiling,
    )
    row = x * gamma * (x + 1).sum()
    product = row @ exact
    scale = np.abs(row) @ np.abs(exact)
    want = product * np.tanh(row @ more) + other
    np.testing.assert_array_less(np.abs(ys[0] - want), 2e-6 * scale + 1e-5)
    np.testing.assert_array_less(np.abs(ys[1] - 2 * product), 2e-6 * scale + 1e-5)


@pytest.mark.parametrize("form", ["columns", "rows", "int4"])
def test_kernel_lowers_for_a_gpu(form):
    rng = np.random.default_rng(0)
    parts, _ = _matrix(form, 96, 40, rng)

    def run(x, *parts):
        return call(form, [parts], [x], [], ["bfloat16"])

    traced = jax.jit(run).trace(jnp.ones(96, jnp.bfloat16), *parts)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert f"vector_product_{form}" in text


@pytest.mark.parametrize(
    ("form", "terms", "dtype", "faster"),
    [
        ("columns", 768, "bfloat16", True),  # GPT-2
        ("columns", 3072, "bfloat16", False),
        ("columns", 2048, "bfloat16", False),  # a Llama of 1B
        ("columns", 8192, "bfloat16", False),
        ("columns", 768, "float32", False),
        ("int4", 2048, "bfloat16", True),
        ("int4", 8192, "bfloat16", True),
        ("int4", 768, "bfloat16", False),
    ],
)
def test_the_kernel_is_for_sizes_of_which_it_was_faster(form, terms, dtype, faster):
    assert vector_product.wins(form, terms, dtype) == faster
