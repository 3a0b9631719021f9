"""Decoders of all families: their options, and files that hold them."""

import numpy as np
import pytest
from tests.applications.earlier.make import FOLDER, IDS

import exburn
from exburn.applications import GPT2, Decoder, Llama
from exburn.applications.families import FAMILIES
from exburn.errors import ArgumentError, UnknownNameError

SIZES = {"vocabulary_size": 11, "layers": 2, "width": 8, "heads": 2, "mlp_width": 12}
SIZES |= {"key_value_heads": 1, "head_size": 6}


@pytest.mark.parametrize(
    ("file", "kind"),
    [("llama.exburn", Llama), ("mistral.keras", Llama), ("gpt2.exburn", GPT2)],
)
def test_earlier_files_hold_the_same_models(file, kind):
    model = exburn.load_model(FOLDER / file)
    assert type(model) is kind
    scores = np.load(FOLDER / "scores.npz")[file.partition(".")[0]]
    np.testing.assert_allclose(model(IDS), scores, atol=1e-6)
    if file == "mistral.keras":
        assert model.family.model_type == "mistral"
        assert model.generation.end_tokens == (2, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_is_saved_with_all_of_its_options(family, tmp_path):
    model = Decoder(family, **SIZES)
    model.get_layer("block_0_attention").trainable = False
    model.save(tmp_path / "model.exburn")
    again = exburn.load_model(tmp_path / "model.exburn")
    assert again.options == model.options and again.family is model.family
    assert [w.path for w in again.trainable_variables] == [
        w.path for w in model.trainable_variables
    ]
    np.testing.assert_array_equal(again(IDS), model(IDS))


def test_llama_takes_further_options(tmp_path):
    model = Llama(**SIZES, attention_bias=True, output_bias=False)
    model.save(tmp_path / "model.exburn")
    again = exburn.load_model(tmp_path / "model.exburn")
    assert again.options == model.options and again.options.head_size == 6
    np.testing.assert_array_equal(again(IDS), model(IDS))


def test_what_is_none_or_false_stays_so(tmp_path):
    options = {"rope_layers": None, "tie_embeddings": False, "activation": "gelu"}
    model = Decoder("smollm3", **SIZES | {"layers": 4}, **options)
    model.save(tmp_path / "model.exburn")
    again = exburn.load_model(tmp_path / "model.exburn")
    assert again.options == model.options and again.options.rope_layers is None
    np.testing.assert_array_equal(again(IDS), model(IDS))


def test_what_is_not_said_is_what_the_family_has():
    gemma = Decoder("gemma2", **SIZES).options
    assert gemma.window_layers == (True, False) and gemma.sliding_window == 4096
    assert (gemma.attention_soft_cap, gemma.logit_soft_cap) == (50.0, 30.0)
    assert gemma.norms == "both" and gemma.unit_offset and gemma.tie_embeddings
    smol = Decoder("smollm3", **SIZES | {"layers": 4}).options
    assert smol.rope_layers == (True, True, True, False) and smol.rope_base == 2e6


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("falcon", {}, "unknown family 'falcon'"),
        ("qwen3", {"head_dim": 4}, "unknown option 'head_dim'"),
        ("qwen3", {"heads": 3, "key_value_heads": 2}, "multiple of key_value_heads"),
        ("qwen3", {"layers": 0}, "layers"),
        ("gemma", {"norms": "around"}, "norms"),
        ("gemma2", {"window_layers": [True]}, "window_layers must have an entry"),
        ("olmo2", {"query_key_norm": "all"}, "query_key_norm"),
    ],
)
def test_bad_options_are_errors(family, options, words):
    with pytest.raises((ArgumentError, UnknownNameError), match=words):
        Decoder(family, **SIZES | options)
