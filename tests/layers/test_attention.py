"""Attention layers against Keras 3, and what Keras has no test for."""

import keras
import pytest
from tests.layers.peer import assert_same, data

from exburn.layers import attention

Q, V, K = data(2, 5, 6), data(2, 4, 7, seed=1), data(2, 4, 8, seed=2)
SEEN = data(2, 5, 5, seed=3) > -0.5
SEEN[..., 0] = True
CROSS = data(2, 5, 4, seed=4) > 0
SCORES = {"return_attention_scores": True}
CAUSAL = {"use_causal_mask": True}

MULTI_HEAD = {
    "self": ({}, (Q, Q), {}),
    "causal": ({}, (Q, Q), CAUSAL),
    "causal-scores": ({}, (Q, Q), CAUSAL | SCORES),
    "mask": ({}, (Q, Q), {"attention_mask": SEEN}),
    "mask-causal-scores": (
        {"dropout": 0.3},
        (Q, Q),
        {"attention_mask": SEEN} | CAUSAL | SCORES,
    ),
    "cross": ({"use_bias": False}, (Q, V), {"attention_mask": CROSS}),
    "key": ({"value_dim": 5, "output_shape": 3}, (Q, V, K), SCORES),
    "output-sizes": ({"output_shape": (3, 2)}, (Q, V, K), {}),
    "window": ({"sliding_window": 2}, (Q, Q), {}),
    "window-causal": ({"sliding_window": 2}, (Q, Q), CAUSAL),
    "gate": ({"use_gate": True}, (Q, Q), SCORES),
    "plane": ({}, (data(2, 3, 4, 5), data(2, 3, 4, 5)), SCORES),
    "columns": ({"attention_axes": 2}, (data(2, 3, 4, 5), data(2, 3, 2, 5)), SCORES),
    "rows": (
        {"attention_axes": (1,)},
        (data(2, 3, 4, 5), data(2, 2, 4, 5)),
        SCORES | {"attention_mask": data(2, 3, 2, seed=5) > -1},
    ),
}


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_multi_head_is_the_same_as_keras(case):
    options, args, call = MULTI_HEAD[case]
    assert_same(
        attention.MultiHeadAttention(2, 4, **options),
        keras.layers.MultiHeadAttention(2, 4, **options),
        *args,
        **call,
    )
