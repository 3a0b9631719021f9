"""GPT-2 beside its formulas in NumPy, and trained."""

import json
import math

import numpy as np
import pytest
from safetensors.numpy import load_file

import exburn
from exburn.applications import GPT2, from_pretrained
from exburn.errors import ArgumentError, FileFormatError, MissingFileError

SIZES = {"vocabulary_size": 13, "layers": 2, "width": 12, "heads": 3}


def norm(x, gamma, beta):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def reference(weights, ids):
    """Scores by the formulas, in float64."""
    time = ids.shape[1]
    table = weights["token_embedding/embeddings"]
    x = table[ids] + weights["position_embedding/embeddings"][:time]
    for block in ("block_0", "block_1"):
        part = {
            name.removeprefix(f"{block}_"): value
            for name, value in weights.items()
            if name.startswith(f"{block}_")
        }
        h = norm(x, part["attention_norm/gamma"], part["attention_norm/beta"])
        q, k, v = (
            np.einsum("btd,dnh->bnth", h, part[f"attention/{n}/kernel"])
            + part[f"attention/{n}/bias"][:, None]
            for n in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(time, dtype=bool), scores, -np.inf)
        out = np.einsum(
            "bnth,nhd->btd",
            softmax(scores) @ v,
            part["attention/attention_output/kernel"],
        )
        x = x + out + part["attention/attention_output/bias"]
        h = norm(x, part["mlp_norm/gamma"], part["mlp_norm/beta"])
        h = h @ part["mlp_in/kernel"] + part["mlp_in/bias"]
        h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ part["mlp_out/kernel"] + part["mlp_out/bias"]
    return norm(x, weights["norm/gamma"], weights["norm/beta"]) @ table.T


def random_weights(model, seed=0):
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.get_weights()])
    return {w.path: np.asarray(w, np.float64) for w in model.weights}


def test_scores_are_those_of_the_formulas_and_it_learns():
    exburn.set_random_seed(0)
    model = GPT2(**SIZES, positions=10)
    ids = np.random.default_rng(1).integers(0, 13, (3, 7))
    expected = reference(random_weights(model), ids)
    np.testing.assert_allclose(model(ids), expected, atol=1e-4, rtol=1e-4)
    model.compile("adam", exburn.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(ids, np.roll(ids, -1, 1), epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.05


def test_the_size_by_default_is_that_of_the_paper():
    layers = GPT2(layers=1).count_params()
    block = 12 * 768**2 + 13 * 768
    assert layers + 11 * block == 124_439_808


def test_a_file_cannot_have_other_files_read(tmp_path):
    model = GPT2(**SIZES, positions=10)
    model.save_weights(other := tmp_path / "other.safetensors")
    told = json.loads(model.to_json())
    told["config"]["weights"] = str(other)
    with pytest.raises(ValueError, match="must not name other files"):
        exburn.models.model_from_json(json.dumps(told))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"layers": 0}, ArgumentError, "layers must be an integer"),
        ({"width": 10, "heads": 3}, ArgumentError, "multiple of heads"),
        ({"weights": "./no/such/file"}, MissingFileError, "no/such/file"),
    ],
)
def test_bad_arguments_are_errors(options, error, text):
    with pytest.raises(error, match=text):
        GPT2(**(SIZES | options))


def test_folders_of_others_are_written_and_read(tmp_path):
    model = GPT2(**SIZES, positions=10)
    random_weights(model)
    ids = np.array([[1, 2, 3]])
    expected = model(ids)
    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    assert type(again) is GPT2 and again.get_config() == model.get_config()
    np.testing.assert_array_equal(again(ids), expected)
    file = tmp_path / "model.safetensors"
    assert "transformer.h.1.attn.c_attn.weight" in load_file(file)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"activation_function": "gelu_10"}, "'activation_function' in config.json"),
        ({"scale_attn_by_inverse_layer_idx": True}, "'scale_attn_by_inverse_layer_idx"),
        (
            {"tie_word_embeddings": False},
            "'tie_word_embeddings' in config.json must be",
        ),
        ({"add_cross_attention": True}, "'add_cross_attention'"),
        ({"n_layer": True}, "'n_layer' in config.json must be a whole number"),
        ({"attn_pdrop": 2}, "'attn_pdrop' in config.json must be a number from 0 to 1"),
        ({"scale_embedding": True}, "nothing is known of: 'scale_embedding'"),
    ],
)
def test_a_configuration_of_another_computation_is_refused(told, text):
    with pytest.raises(FileFormatError, match=text):
        GPT2.arguments_of(told, {})


def test_what_a_configuration_says_is_used():
    told = {"embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.4}
    found = GPT2.arguments_of(told | {"use_cache": True, "n_ctx": 1024}, {})
    rates = [found[f"{part}dropout"] for part in ("embedding_", "attention_", "")]
    assert rates == [0.2, 0.3, 0.4]
    model = GPT2(**SIZES, **{name: found[name] for name in found if "dropout" in name})
    assert model.get_layer("embedding_dropout").rate == 0.2
    assert model.get_layer("block_0_mlp_dropout").rate == 0.4
    assert model.get_layer("block_0_attention").dropout == 0.3
    assert GPT2.arguments_of(model.config_for("transformers"), {}) == found | {
        name: model.get_config()[name] for name in ("width", "layers", "heads")
    } | {"vocabulary_size": model.get_config()["vocabulary_size"]}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gelu", "gelu"), ("gelu_new", "tanh"), ("gelu_fast", "tanh")],
)
def test_the_activation_is_the_one_that_is_named(name, kind):
    found = GPT2.arguments_of({"activation_function": name}, {})["activation"]
    model = GPT2(**SIZES, activation=found)
    written = model.config_for("transformers")["activation_function"]
    assert written == ("gelu" if kind == "gelu" else "gelu_new")
    x = np.linspace(-3, 3, 50).astype("float32")
    gate = model.get_layer("block_0_mlp_in").activation
    erf = np.array([math.erf(v / math.sqrt(2)) for v in x])
    tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    expected = x / 2 * (1 + (erf if kind == "gelu" else tanh))
    np.testing.assert_allclose(gate(x), expected, atol=1e-6)
    assert np.abs(erf - tanh).max() > 1e-4  # they are told apart
