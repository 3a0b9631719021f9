"""Tests of ``exburn.layers.attention.dot_product``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.peer import assert_same, data

from exburn import layers
from exburn.core import forward_context

A, B, C = data(2, 5, 6), data(2, 4, 6, seed=1), data(2, 4, 6, seed=2)
SEEN = data(2, 5, 5, seed=3) > -0.5
CROSS = data(2, 5, 4, seed=4) > 0
SCORES = {"return_attention_scores": True}
CAUSAL = {"use_causal_mask": True}
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

X = data(4, 6, 8)

CONTRACT = {
    "Attention": (
        lambda **k: layers.Attention(use_scale=True, score_mode="concat", **k),
        ([X, X[:, :3]],),
        {},
    ),
    "AdditiveAttention": (
        lambda **k: layers.AdditiveAttention(dropout=0.2, **k),
        ([X, X],),
        {"free": (1,), "random": True},
    ),
}

ERRORS = {
    "no-list": (lambda: layers.Attention()(X), "list"),
    "mode": (lambda: layers.Attention(score_mode="sum"), "score_mode"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_without_projections(case):
    kind, options, inputs, call = PLAIN[case]
    layer = getattr(layers, kind)(**options)
    peer = lambda: getattr(keras.layers, kind)(**options)  # noqa: E731
    assert_same(layer, peer, inputs, **call)


def test_masks_of_a_plain_attention():
    ids = np.array([[3, 1, 0], [2, 0, 0]])
    embed = layers.Embedding(5, 8, mask_zero=True)
    with forward_context.forward(forward_context.Context()) as ctx:
        x = embed(ids)
        y = layers.Attention()([x, x])
        assert ctx.mask_of(y).tolist() == (ids != 0).tolist()
    assert (np.array(y)[ids == 0] == 0).all()
