"""Tests of ``exburn.layers.attention.multi_head``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.peer import assert_same, data

from exburn import layers, ops
from exburn import layers as L
from exburn.core import forward_context
from exburn.module.symbolic_tensor import Symbol

Q, V, K = data(2, 5, 6), data(2, 4, 7, seed=1), data(2, 4, 8, seed=2)
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

X = data(4, 6, 8)

CONTRACT = {
    "MultiHeadAttention": (
        lambda **k: layers.MultiHeadAttention(2, 4, sliding_window=2, **k),
        (X, X),
        {"free": (1,), "call": {"use_causal_mask": True}},
    ),
}

ERRORS = {
    "heads": (lambda: layers.MultiHeadAttention(0, 4), "num_heads"),
    "dropout": (lambda: layers.MultiHeadAttention(2, 4, dropout=1.5), "dropout"),
    "flash-dropout": (
        lambda: layers.MultiHeadAttention(2, 4, dropout=0.1, flash_attention=True),
        "dropout",
    ),
    "axes": (lambda: layers.MultiHeadAttention(2, 4, attention_axes=3)(X, X), "axes"),
    "ranks": (lambda: layers.MultiHeadAttention(2, 4)(X, X[:, None]), "rank"),
    "positions": (
        lambda: layers.MultiHeadAttention(2, 4)(X, X, X[:, :2]),
        "same positions",
    ),
    "mask-rank": (
        lambda: layers.MultiHeadAttention(2, 4)(X, X, attention_mask=X[0, 0] > 0),
        "targets, sources",
    ),
}

BAD_ARGUMENTS = [
    (lambda: L.MultiHeadAttention(2, 4, value_dim=0), "value_dim must be an integer"),
    (lambda: L.MultiHeadAttention(2, 4, rotary=True), "rotary must be a layer"),
]


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_multi_head(case):
    options, args, call = MULTI_HEAD[case]
    assert_same(
        layers.MultiHeadAttention(2, 4, **options),
        lambda: keras.layers.MultiHeadAttention(2, 4, **options),
        *args,
        **call,
    )


def test_masks_of_the_inputs_hold_and_are_passed_on():
    ids = np.array([[3, 1, 2, 0], [2, 0, 0, 0]])
    embed = layers.Embedding(5, 8, mask_zero=True)
    layer = layers.MultiHeadAttention(2, 4)
    with forward_context.forward(forward_context.Context()) as ctx:
        x = embed(ids)
        y, scores = layer(x, x, return_attention_scores=True)
        assert ctx.mask_of(y).tolist() == (ids != 0).tolist()
        assert ctx.mask_of(scores) is None
        named = layer(query=x, value=x)
        assert ctx.mask_of(named).tolist() == (ids != 0).tolist()
        cross = layer(jnp.asarray(X[:2]), x)
        assert ctx.mask_of(cross) is None
    assert (np.array(scores)[0, :, :3, 3] == 0).all()
    assert (np.array(scores)[1, :, 0, 1:] == 0).all()
    alone = layer(embed(ids[:, :3])[:1], embed(ids[:, :3])[:1])
    np.testing.assert_allclose(np.array(y)[0, :3], alone[0], rtol=1e-5, atol=1e-5)


def test_masks_of_several_axes():
    """Attention over a plane is attention over its flattened positions."""
    plane = data(2, 3, 4, 8)
    flat = plane.reshape(2, 12, 8)
    mask = data(2, 12, 12, seed=1) > 0
    seen = data(2, 12, seed=2) > 0
    seen[:, 0] = True
    layer, over = layers.MultiHeadAttention(2, 4), layers.MultiHeadAttention(2, 4)
    a = layer(flat, flat, attention_mask=mask, value_mask=seen)
    over(plane, plane)
    over.set_weights(layer.get_weights())
    b = over(
        plane,
        plane,
        attention_mask=mask.reshape(2, 3, 4, 3, 4),
        value_mask=seen.reshape(2, 3, 4),
    )
    np.testing.assert_allclose(b.reshape(2, 12, 8), a, rtol=1e-5, atol=1e-5)


def test_mask_a_head():
    layer = layers.MultiHeadAttention(2, 4)
    mask = np.ones((1, 2, 6, 6), bool)
    mask[:, 1, :, 1:] = False
    _, scores = layer(X, X, attention_mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(np.array(scores)[:, 1, :, 0], 1, rtol=1e-6)
    assert (np.array(scores)[:, 0] < 1).all()


def test_dropout_drops_weights_in_training():
    layer = layers.MultiHeadAttention(1, 4, dropout=0.5, seed=3)
    _, scores = layer(X, X, return_attention_scores=True)
    np.testing.assert_allclose(np.array(scores).sum(-1), 1, rtol=1e-5)
    a, b = (np.array(layer(X, X, training=True)) for _ in range(2))
    assert np.abs(a - b).max() > 1e-3
    np.testing.assert_array_equal(layer(X, X), layer(X, X))


def test_symbols():
    x = Symbol((None, None, 8), "float32")
    other = Symbol((None, 7, 4), "float32")
    layer = layers.MultiHeadAttention(2, 4)
    y, scores = layer(x, other, return_attention_scores=True)
    assert y.shape == (None, None, 8)
    assert scores.shape == (None, 2, None, 7)
    plane = Symbol((None, None, None, 8), "float32")
    assert layers.MultiHeadAttention(2, 4)(plane, plane).shape == (None, None, None, 8)


def test_a_subclass_with_a_cache_runs_as_in_keras():
    """By the names that Keras' layer has for its projections and sizes."""

    def subclass_of(base, ops):
        class Cached(base):
            def call(self, query, cache, index):
                heads = self._query_dense(query)
                cache = ops.slice_update(
                    cache, [0, index, 0, 0], self._key_dense(query)
                )
                assert cache.shape[-2:] == (self._num_heads, self._key_dim)
                values = self._value_dense(query)
                out, _ = self._compute_attention(
                    heads, cache[:, : index + 1], values, training=False
                )
                return self._output_dense(out)

        return Cached(2, 4, value_dim=4)

    ours = subclass_of(layers.MultiHeadAttention, ops)
    theirs = subclass_of(keras.layers.MultiHeadAttention, keras.ops)
    x = np.random.default_rng(0).normal(size=(3, 1, 8)).astype("float32")
    for layer in (ours, theirs):
        layer.build((3, 1, 8), (3, 1, 8))
    ours.set_weights([np.array(w.value) for w in theirs.weights])
    cache = np.zeros((3, 5, 2, 4), "float32")
    np.testing.assert_allclose(
        ours(x, cache, index=0), theirs(x, cache, index=0), atol=1e-5
    )
