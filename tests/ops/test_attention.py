"""Tests of ``exburn.ops.attention``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import Draws, case
from tests.ops.check import Cases

from exburn import ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "dot_product_attention": [
            case(floats(2, 5, 4, 8), floats(2, 6, 4, 8), floats(2, 6, 4, 8)),
            case(
                floats(2, 5, 4, 8),
                floats(2, 5, 2, 8),
                floats(2, 5, 2, 8),
                is_causal=True,
                scale=0.3,
            ),
            case(
                floats(2, 5, 2, 4),
                floats(2, 6, 2, 4),
                floats(2, 6, 2, 4),
                floats(1, 2, 5, 6),
                floats(2, 1, 5, 6) > 0.3,
            ),
        ],
    }
)


UNKNOWN_BATCH = ["dot_product_attention"]


def test_attention_with_capped_logits():
    q = np.random.default_rng(0).normal(size=(2, 5, 4, 8)).astype("float32") * 5
    free = ops.dot_product_attention(q, q, q, is_causal=True)
    loose = ops.dot_product_attention(q, q, q, is_causal=True, attn_logits_soft_cap=1e9)
    capped = ops.dot_product_attention(
        q, q, q, is_causal=True, attn_logits_soft_cap=1.0
    )
    np.testing.assert_allclose(loose, free, rtol=1e-4, atol=1e-4)
    assert not np.allclose(capped, free, atol=0.1)
