"""The kernel beside the products that it stands for, interpreted."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.runtime.kernels import paged_attention

ROWS, HEADS, GROUPS, SIZE, PAGES, PAGE = 3, 6, 2, 16, 20, 4
LENGTHS = np.array([1, 13, 32])


@pytest.mark.parametrize("splits, soft_cap", [(1, None), (16, 3.0)])
def test_agrees_with_the_products(monkeypatch, splits, soft_cap):
    monkeypatch.setattr(paged_attention, "_SPLITS", splits)
    rng = np.random.default_rng(0)
    query = rng.normal(size=(ROWS, 1, HEADS, SIZE)).astype("float32")
    shape = GROUPS, PAGES, PAGE, SIZE
    keys, values = (rng.normal(size=shape).astype("float32") for _ in range(2))
    tables = rng.permutation(PAGES)[:16].reshape(2, 8)
    tables = np.concatenate([np.full((1, 8), PAGES), tables])  # no page: clipped
    tables[0, 0] = 3
    out = paged_attention.attend(
        *map(jnp.asarray, (query, keys, values, tables, LENGTHS)),
        soft_cap,
        interpret=True,
    )
    assert out.shape == query.shape
    for row, length in enumerate(LENGTHS):
        for head in range(HEADS):
            pages = tables[row, : -(-length // PAGE)]
            k, v = (
                a[head // (HEADS // GROUPS), pages].reshape(-1, SIZE)[:length]
                for a in (keys, values)
            )
            scores = k @ query[row, 0, head]
            if soft_cap is not None:
                scores = soft_cap * np.tanh(scores / soft_cap)
            weights = np.exp(scores - scores.max())
            expected = weights / weights.sum() @ v
            np.testing.assert_allclose(out[row, 0, head], expected, atol=1e-5)
