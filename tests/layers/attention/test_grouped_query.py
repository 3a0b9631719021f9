"""Tests of ``exburn.layers.attention.grouped_query``."""

import pytest
from tests.golden import keras
from tests.layers.peer import assert_same, data

from exburn import layers

Q, V, K = data(2, 5, 6), data(2, 4, 7, seed=1), data(2, 4, 8, seed=2)
A, B, C = data(2, 5, 6), data(2, 4, 6, seed=1), data(2, 4, 6, seed=2)
SEEN = data(2, 5, 5, seed=3) > -0.5
SCORES = {"return_attention_scores": True}
CAUSAL = {"use_causal_mask": True}

GROUPED = {
    "multi-query": ({"num_key_value_heads": 1}, (A, B, C), SCORES),
    "gate-window-mask": (
        {"use_gate": True, "sliding_window": 3, "use_bias": False},
        (Q, Q),
        {"attention_mask": SEEN} | CAUSAL,
    ),
}

X = data(4, 6, 8)

CONTRACT = {
    "GroupedQueryAttention": (
        lambda **k: layers.GroupedQueryAttention(4, 4, 2, dropout=0.2, **k),
        (X, X[:, :3]),
        {"random": True, "call": {"return_attention_scores": True}},
    ),
}

ERRORS = {
    "groups": (lambda: layers.GroupedQueryAttention(4, 3, 2), "multiple"),
}


@pytest.mark.parametrize("case", GROUPED)
def test_grouped_query(case):
    options, args, call = GROUPED[case]
    options = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2} | options
    assert_same(
        layers.GroupQueryAttention(**options),
        lambda: keras.layers.GroupQueryAttention(**options),
        *args,
        **call,
    )
