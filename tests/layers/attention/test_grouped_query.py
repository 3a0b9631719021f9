"""Tests of ``exburn.layers.attention.grouped_query``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.peer import assert_same, data

from exburn import layers
from exburn.module.traversal import iter_weights

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
    "its options": (
        lambda **k: layers.GroupedQueryAttention(
            *(4, 4, 2),
            scale=0.3,
            logit_soft_cap=2.0,
            query_norm=layers.RMSNormalization(),
            key_norm=layers.RMSNormalization(axis=(-2, -1), unit_offset=True),
            use_output_bias=False,
            **k,
        ),
        (X, X),
        {},
    ),
}

ERRORS = {
    "groups": (lambda: layers.GroupedQueryAttention(4, 3, 2), "multiple"),
    "scale": (lambda: layers.GroupedQueryAttention(4, 4, 2, scale=0), "scale"),
    "cap": (lambda: layers.GroupedQueryAttention(4, 4, 2, logit_soft_cap=-1), "cap"),
    "norm": (
        lambda: layers.GroupedQueryAttention(4, 4, 2, query_norm=3),
        "query_norm must be a layer",
    ),
    "flash": (
        lambda: layers.GroupedQueryAttention(
            4, 4, 2, logit_soft_cap=2.0, flash_attention=True
        ),
        "does not bound its scores",
    ),
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


def rms(x, scale, axes):
    mean = (x * x).mean(axes, keepdims=True)
    return x / jnp.sqrt(mean + 1e-6) * scale


def by_formula(weights, x, mask, *, scale, cap, query_axes, key_axes):
    """Causal attention of 4 heads of queries and 2 of keys, step by step."""
    q, k, v = (
        jnp.einsum("btd,dnh->btnh", x, weights[f"{part}/kernel"])
        + weights[f"{part}/bias"]
        for part in ("query", "key", "value")
    )
    q = rms(q, weights["query_norm/scale"], query_axes)
    k = rms(k, 1 + weights["key_norm/scale"], key_axes)
    k, v = jnp.repeat(k, 2, 2), jnp.repeat(v, 2, 2)
    scores = scale * jnp.einsum("btnh,bsnh->bnts", q, k)
    scores = cap * jnp.tanh(scores / cap)
    seen = jnp.tri(x.shape[1], dtype=bool) & mask[:, None]
    shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
    out = jnp.einsum("bnts,bsnh->btnh", shares, v)
    return jnp.einsum("btnh,nhd->btd", out, weights["attention_output/kernel"])


@pytest.mark.parametrize("axes", [(-1, (-2, -1)), ((-2, -1), -1)], ids=str)
def test_norms_bound_and_factor_are_those_of_the_formula(axes):
    layer = layers.GroupedQueryAttention(
        *(4, 4, 2),
        scale=0.7,
        logit_soft_cap=1.5,
        query_norm=layers.RMSNormalization(axes[0]),
        key_norm=layers.RMSNormalization(axes[1], unit_offset=True),
        use_output_bias=False,
        bias_initializer="normal",
    )
    x = 3 * jnp.asarray(data(2, 6, 8))
    layer(x, x)
    arrays = {}
    for seed, (path, weight, _) in enumerate(iter_weights(layer)):
        weight.set_raw_value(jnp.asarray(data(*weight.shape, seed=seed)))
        arrays[path] = weight.get_value()
    assert len(arrays) == 9  # none for the output's bias
    mask = np.ones((2, 6, 6), bool)
    mask[1, :, 1] = False

    def ours(x):
        out = layer(x, x, attention_mask=mask, use_causal_mask=True)
        return jnp.sum(out**2), out

    def formula(x):
        options = {"scale": 0.7, "cap": 1.5, "query_axes": axes[0]}
        out = by_formula(arrays, x, mask, key_axes=axes[1], **options)
        return jnp.sum(out**2), out

    for one, other in zip(
        *(jax.tree.leaves(jax.grad(f, has_aux=True)(x)) for f in (ours, formula)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
