"""Decoders in the style of Llama beside their formulas in NumPy, and trained."""

import numpy as np
import pytest
from tests.applications.test_gpt2 import random_weights, softmax

import exburn
from exburn.applications import Llama
from exburn.errors import ArgumentError, FileFormatError

SIZES = {"vocabulary_size": 13, "layers": 2, "width": 16, "heads": 4, "mlp_width": 20}


def rms(x, scale):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def turned(x, base):
    """``[batch, heads, time, size]`` by the complex numbers of the paper."""
    half = x.shape[-1] // 2
    speeds = base ** (-np.arange(half) / half)
    turns = np.exp(1j * np.arange(x.shape[2])[:, None] * speeds)
    z = (x[..., :half] + 1j * x[..., half:]) * turns
    return np.concatenate([z.real, z.imag], axis=-1)


def reference(weights, ids, base):
    """Scores by the formulas, in float64."""
    time = ids.shape[1]
    x = weights["token_embedding/embeddings"][ids]
    for block in ("block_0", "block_1"):
        part = {
            name.removeprefix(f"{block}_"): value
            for name, value in weights.items()
            if name.startswith(f"{block}_")
        }
        h = rms(x, part["attention_norm/scale"])
        q, k, v = (
            np.einsum("btd,dnh->bnth", h, part[f"attention/{n}/kernel"])
            for n in ("query", "key", "value")
        )
        k, v = (np.repeat(turned(k, base), 2, 1), np.repeat(v, 2, 1))
        scores = turned(q, base) @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(time, dtype=bool), scores, -np.inf)
        kernel = part["attention/attention_output/kernel"]
        x = x + np.einsum("bnth,nhd->btd", softmax(scores) @ v, kernel)
        h = rms(x, part["mlp_norm/scale"])
        gate = h @ part["gate/kernel"]
        h = gate / (1 + np.exp(-gate)) * (h @ part["up/kernel"])
        x = x + h @ part["down/kernel"]
    x = rms(x, weights["norm/scale"])
    return x @ weights["token_embedding/reverse_embeddings"]


def test_scores_are_those_of_the_formulas_and_it_learns():
    exburn.set_random_seed(0)
    model = Llama(**SIZES, key_value_heads=2, rope_base=500.0)
    ids = np.random.default_rng(1).integers(0, 13, (3, 7))
    expected = reference(random_weights(model), ids, 500.0)
    np.testing.assert_allclose(model(ids), expected, atol=1e-4, rtol=1e-4)
    model.compile("adam", exburn.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(ids, np.roll(ids, -1, 1), epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"heads": 3}, "multiple of heads"),
        ({"key_value_heads": 3}, "multiple of key_value_heads"),
        ({"mlp_width": 2.5}, "mlp_width must be an integer"),
    ],
)
def test_bad_arguments_are_errors(options, text):
    with pytest.raises(ArgumentError, match=text):
        Llama(**(SIZES | options))


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"rope_scaling": {"type": "linear"}}, "'linear' scaling .* needs factor"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "needs factor, low_freq_factor"),
        ({"rope_parameters": {"type": "polar"}}, "'rope_parameters.type' in config"),
        ({"rope_parameters": {"beta_fast": 32}}, "does not take: 'beta_fast'"),
        ({"rope_parameters": 3}, "must be an object"),
        ({"head_dim": 7.5}, "'head_dim' in config.json must be"),
        (
            {"attention_bias": 1},
            "'attention_bias' in config.json must be true or false",
        ),
        ({"sliding_window": 3}, "'sliding_window'"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "'architectures'"),
        ({"hidden_act": "leaky_relu"}, "'hidden_act' in config.json must be one of"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config'"),
        ({"attention_multiplier": 0.5, "logit_scale": 2}, "multiplier', 'logit_scale'"),
    ],
)
def test_a_configuration_of_another_computation_is_refused(told, text):
    with pytest.raises(FileFormatError, match=text):
        Llama.arguments_of({"model_type": "llama"} | told, {})


def test_a_folder_with_linear_positions_computes_with_them(tmp_path):
    model = Llama(**SIZES, rope_factor=4.0)
    model.save_pretrained(tmp_path)
    again = exburn.applications.from_pretrained(tmp_path)
    scaling, ids = {"rope_type": "linear", "factor": 4.0}, np.arange(6)[None]
    layer = next(v for v in again._flatten_layers() if hasattr(v, "max_wavelength"))
    assert layer.get_config()["scaling"] == scaling
    for other in (again, type(again).from_config(again.get_config())):
        other.set_weights(model.get_weights())
        np.testing.assert_allclose(other(ids), model(ids), atol=1e-6)
    with pytest.raises(ArgumentError, match="rope_factor and rope_scaling"):
        Llama(**SIZES, rope_factor=4.0, rope_scaling={"rope_type": "linear"})


def test_what_a_configuration_says_of_positions():
    def read(kind="llama", **told):
        return Llama.arguments_of({"model_type": kind} | told, {})

    for told, base, factor in (
        ({}, 10000.0, 1.0),
        ({"rope_theta": 500}, 500.0, 1.0),
        ({"rope_theta": 500, "rope_parameters": {"rope_theta": 5}}, 5.0, 1.0),
        ({"rope_parameters": {"type": "linear", "factor": 4}}, 10000.0, 4.0),
        ({"rope_theta": 5, "rope_scaling": {"type": "linear", "factor": 2}}, 5.0, 2.0),
        ({"rope_scaling": {"rope_type": "default", "factor": 2}}, 10000.0, 1.0),
        ({"rope_scaling": None}, 10000.0, 1.0),
    ):
        found = read(**told)
        assert (found["rope_base"], found["rope_factor"]) == (base, factor), told
    assert read("mistral")["sliding_window"] == 4096
    assert read("mistral", sliding_window=None)["sliding_window"] is None
    assert read("mistral")["key_value_heads"] == 8 and read()["key_value_heads"] == 32
