"""``model.explain(method="attention")``: the flow through all attention layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import exburn
from exburn import applications, layers
from exburn.applications import GPT2
from exburn.errors import ArgumentError

RNG = np.random.default_rng(4)
RECORDED = Path(__file__).parents[1] / "recorded" / "rollout.npz"


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def model_of(heads=2, size=3, causal=True):
    """Two attention layers over vectors, each beside a shortcut, and scores."""
    x = exburn.Input((5, 6))
    h = x
    for _ in range(2):
        attend = layers.MultiHeadAttention(heads, size)
        h = h + attend(h, h, use_causal_mask=causal)
    return exburn.Model(x, layers.Dense(4)(h))


def flow_by_hand(model, x):
    """The rollout in NumPy: half the weights, half the shortcut, layer by layer."""
    flow, h = np.eye(5)[None], x
    causal = np.tril(np.ones((5, 5), bool))
    for layer in model.layers:
        if isinstance(layer, layers.MultiHeadAttention):
            query, key, value = (
                np.einsum("bta,anh->btnh", h, np.asarray(part.kernel))
                + np.asarray(part.bias)
                for part in (layer.query, layer.key, layer.value)
            )
            scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(3)
            weights = softmax(np.where(causal, scores, -1e9))
            out = np.einsum("bnts,bsnh->btnh", weights, value)
            last = layer.attention_output
            kernel, bias = np.asarray(last.kernel), np.asarray(last.bias)
            h = h + np.einsum("btnh,nho->bto", out, kernel) + bias
            flow = (0.5 * weights.mean(1) + 0.5 * np.eye(5)) @ flow
    return flow


def test_the_flow_is_that_of_numpy():
    model = model_of()
    x = RNG.normal(size=(3, 5, 6)).astype(np.float32)
    flow = flow_by_hand(model, x)
    outputs = model.predict(x, verbose=0)
    found = model.explain(x, "attention", target=([4, 2, 0], 1), batch_size=2)
    expected = flow[np.arange(3), [4, 2, 0]]
    np.testing.assert_allclose(found.values, expected, atol=1e-5)
    np.testing.assert_allclose(found.values.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(found.outputs, outputs, atol=1e-5)
    first = model.explain(x, "attention", target=(4, 1), position=0)
    np.testing.assert_allclose(first.values, np.eye(5)[[0, 0, 0]], atol=1e-6)


def test_a_pooled_model_has_the_mean_of_all_positions():
    base = model_of()
    pooled = layers.GlobalAveragePooling1D()(base.outputs[0])
    model = exburn.Model(base.inputs, layers.Dense(2, "softmax")(pooled))
    x = RNG.normal(size=(2, 5, 6)).astype(np.float32)
    found = model.explain(x, "attention")
    expected = flow_by_hand(model, x).mean(1)
    np.testing.assert_allclose(found.values, expected, atol=1e-5)
    assert "add up to 1" in found.text()


def test_tokens_of_language_models_are_followed():
    model = GPT2(50, layers=2, width=8, heads=2, positions=6)
    tokens = RNG.integers(1, 50, (2, 6))
    found = model.explain(tokens, "attention", target=(3, 7))
    assert found.values.shape == (2, 6)
    assert (found.values[:, :4] > 0).all() and not found.values[:, 4:].any()
    words = [f"w{number}" for number in range(50)]
    named = model.explain(tokens, "attention", target=(3, 7), vocabulary=words)
    (texts,) = named.texts.values()
    assert "".join(texts[0]) == " ".join(f"w{number}" for number in tokens[0])


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_flow_is_that_of_transformers(name, tmp_path):
    with np.load(RECORDED) as file:
        arrays, begin = dict(file), f"{name}/weights/"
    (tmp_path / "config.json").write_text(str(arrays[f"{name}/config"]))
    weights = {k.removeprefix(begin): v for k, v in arrays.items() if begin in k}
    save_file(weights, tmp_path / "model.safetensors")
    model = applications.from_pretrained(tmp_path)
    x = tokens = arrays["tokens"]
    if name == "bert":
        x = {"input_ids": tokens, "attention_mask": arrays["mask"]}
        x["token_type_ids"] = np.zeros_like(tokens)
    for position in (0, 4, 6):
        found = model.explain(x, "attention", target=(0, 0), position=position)
        flow = arrays[f"{name}/flow"][:, position]
        np.testing.assert_allclose(found.values, flow, atol=1e-6)


def test_layers_that_have_no_positions_of_their_own_are_refused():
    x, other = exburn.Input((5, 6)), exburn.Input((3, 6))
    cross = layers.MultiHeadAttention(2, 3)(x, other)
    model = exburn.Model([x, other], layers.Dense(2)(layers.Flatten()(cross)))
    arrays = [RNG.normal(size=(2, n, 6)).astype(np.float32) for n in (5, 3)]
    programs = model.trace_counts
    with pytest.raises(ArgumentError, match="their own positions"):
        model.explain(arrays, "attention")
    plain = exburn.Sequential([exburn.Input((3,)), layers.Dense(2)])
    with pytest.raises(ArgumentError, match="no attention layer"):
        plain.explain(np.ones((2, 3)), "attention")
    whole = model_of()
    with pytest.raises(ArgumentError, match="position must be below 5"):
        whole.explain(arrays[0], "attention", target=(0, 1), position=5)
    assert model.trace_counts == programs
