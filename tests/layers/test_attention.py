"""Attention layers against Keras 3."""

import keras
import numpy as np
import pytest
from tests.layers.peer import assert_same, data

from exburn import layers

Q, V, K = data(2, 5, 6), data(2, 4, 7, seed=1), data(2, 4, 8, seed=2)
A, B, C = data(2, 5, 6), data(2, 4, 6, seed=1), data(2, 4, 6, seed=2)
SEEN = data(2, 5, 5, seed=3) > -0.5
CROSS = data(2, 5, 4, seed=4) > 0
PLANE = data(2, 3, 4, 5), data(2, 3, 2, 5, seed=1), data(2, 2, 4, 5, seed=2)
SCORES = {"return_attention_scores": True}
CAUSAL = {"use_causal_mask": True}

MULTI_HEAD = {
    "causal": ({}, (Q, Q), CAUSAL),
    "mask-causal-scores": (
        {"dropout": 0.3},
        (Q, Q),
        {"attention_mask": SEEN} | CAUSAL | SCORES,
    ),
    "cross": ({"use_bias": False}, (Q, V), {"attention_mask": CROSS}),
    "key": ({"value_dim": 5, "output_shape": (3, 2)}, (Q, V, K), SCORES),
    "window-causal": ({"sliding_window": 2}, (Q, Q), CAUSAL),
    "gate-window": ({"use_gate": True, "sliding_window": 2}, (Q, Q), SCORES),
    "value-mask": ({}, (Q, V), {"value_mask": CROSS[:, 0]}),
    "plane": ({}, (PLANE[0], PLANE[0]), SCORES),
    "columns": ({"attention_axes": 2}, PLANE[:2], SCORES),
    "rows": (
        {"attention_axes": (1,)},
        PLANE[::2],
        SCORES | {"attention_mask": data(2, 3, 2, seed=5) > -1},
    ),
}


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_multi_head(case):
    options, args, call = MULTI_HEAD[case]
    assert_same(
        layers.MultiHeadAttention(2, 4, **options),
        keras.layers.MultiHeadAttention(2, 4, **options),
        *args,
        **call,
    )


GROUPED = {
    "multi-query": ({"num_key_value_heads": 1}, (A, B, C), SCORES),
    "gate-window-mask": (
        {"use_gate": True, "sliding_window": 3, "use_bias": False},
        (Q, Q),
        {"attention_mask": SEEN} | CAUSAL,
    ),
}


@pytest.mark.parametrize("case", GROUPED)
def test_grouped_query(case):
    options, args, call = GROUPED[case]
    options = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2} | options
    assert_same(
        layers.GroupQueryAttention(**options),
        keras.layers.GroupQueryAttention(**options),
        *args,
        **call,
    )


MASKS = [SEEN[..., 0], CROSS[:, 0]]
FIRST = np.array([[1, 1, 0, 0], [1, 0, 1, 1]], bool)  # every row sees something
PLAIN = {
    "dot": ("Attention", {}, [A, B], {}),
    "dot-key": ("Attention", {"use_scale": True}, [A, B, C], SCORES | {"mask": MASKS}),
    "causal": ("Attention", {}, [A, B], CAUSAL | {"mask": [None, FIRST]}),
    "concat": (
        "Attention",
        {"score_mode": "concat", "use_scale": True},
        [A, B],
        {"mask": [MASKS[0], None]},
    ),
    "additive": ("AdditiveAttention", {}, [A, B, C], SCORES | {"mask": MASKS}),
    "additive-bare": ("AdditiveAttention", {"use_scale": False}, [A, B], CAUSAL),
}


@pytest.mark.parametrize("case", PLAIN)
def test_without_projections(case):
    kind, options, inputs, call = PLAIN[case]
    layer, peer = getattr(layers, kind), getattr(keras.layers, kind)
    assert_same(layer(**options), peer(**options), inputs, **call)


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "GroupedQueryAttention"])
def test_an_overridden_computation_is_called(kind):
    """As Keras calls it: it gets the heads, and all masks of the call as one."""
    queries, values = data(2, 5, 8), data(2, 5, 8, seed=1)
    seen = np.arange(5) < np.array([[3], [5]])
    outputs, masks = [], []
    options = {"num_heads": 4, "key_dim": 2}
    if kind == "GroupedQueryAttention":
        options = {"num_query_heads": 4, "num_key_value_heads": 2, "head_dim": 2}
    for library in (keras.layers, layers):
        base = getattr(library, kind, None) or library.GroupQueryAttention

        class Moved(base):
            def _compute_attention(self, query, key, value, mask=None, *rest, **more):
                mask = more.pop("attention_mask", mask)
                masks.append(np.asarray(mask))
                out, weights = super()._compute_attention(
                    query, key, value, mask, *rest, **more
                )
                return out + key.mean(), weights

        layer = Moved(**options)
        layer.build(queries.shape, values.shape)
        weights = [data(*w.shape, seed=i) for i, w in enumerate(layer.weights)]
        layer.set_weights(weights)
        given = {"value_mask": seen, "use_causal_mask": True}
        outputs.append(np.asarray(layer(queries, values, **given)))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.broadcast_to(masks[-1], (2, 5, 5)), masks[0])
    assert len(masks) == 2
