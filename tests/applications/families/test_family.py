"""Decoders of each family beside what ``transformers`` has computed (``make.py``)."""

import json
import shutil
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from exburn.applications import Llama, from_pretrained
from exburn.applications.decoder import Decoder
from exburn.applications.families import FAMILIES
from exburn.applications.generation_files import GENERATION_NAMES
from exburn.errors import ArgumentError, FileFormatError, ModelFormatError
from exburn.losses import SparseCategoricalCrossentropy
from exburn.text import DraftModel, PromptLookup

HERE = Path(__file__).parent
PROMPTS = (3, 7, 5)


@pytest.fixture(scope="module")
def recorded():
    """Model and recorded arrays of each family, made when they are first asked for."""
    cases = {}

    def case(name):
        if name not in cases:
            arrays = dict(np.load(HERE / name / "expected.npz"))
            cases[name] = from_pretrained(HERE / name), arrays
        return cases[name]

    return case


def close(found, expected, tolerance=1e-5):
    """Whether all are near, measured by the largest."""
    apart = np.abs(np.asarray(found) - expected).max()
    assert apart <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    assert type(model) is (Llama if name in ("llama", "mistral") else Decoder)
    assert model.family.model_type == name
    close(model(expected["ids"]), expected["logits"])


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    ids, loss = expected["ids"], SparseCategoricalCrossentropy(from_logits=True)
    weights = model.trainable_variables

    def score(values):
        logits, _ = model.stateless_call(values, [], ids)
        return loss(ids[:, 1:], logits[:, :-1])

    values = jax.grad(score)([weight.value for weight in weights])
    paths = [weight.path.removeprefix(f"{model.name}/") for weight in weights]
    gradients = dict(zip(paths, map(np.asarray, values), strict=True))
    count = 0
    for move in model.weight_rules("transformers").save_plan(gradients):
        parts = tuple(gradients[target] for target in move.targets)
        tensors = move.transform.save(parts, len(move.sources))
        for tensor, source in zip(tensors, move.sources, strict=True):
            norm = expected[f"gradient/{source}"]
            assert np.linalg.norm(tensor) == pytest.approx(norm, rel=1e-4), source
            count += 1
    assert count == sum(path.startswith("gradient/") for path in expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    prompts = [expected["ids"][row, :size] for row, size in enumerate(PROMPTS)]
    for cache in (True, False):  # rows of unlike lengths
        if cache and name == "phi3":  # whose keys are others once a text is longer
            cache = None
        texts = model.generate(prompts, 10, cache=cache)
        for row, text in enumerate(texts):
            np.testing.assert_array_equal(text, expected[f"written/{row}"])


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_with_a_draft_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    prompts = [expected["ids"][row, :size] for row, size in enumerate(PROMPTS)]
    # A model that drafts for itself is right if passes over four tokens are.
    draft, length = DraftModel(model, 3), 10
    if name == "phi3":
        with pytest.raises(ArgumentError, match="a draft needs a cache: texts of more"):
            model.generate(prompts, 10, draft=draft)
        prompts, length = prompts[:1], 6  # shorter than the first context
    texts = model.generate(prompts, length, draft=draft)
    for row, text in enumerate(texts):
        np.testing.assert_array_equal(text, expected[f"written/{row}"][:length])
    assert draft.statistics.passes == len(prompts) * -(-(length - 1) // 4)


def test_the_loss_of_routers_is_that_of_transformers(recorded):
    model, expected = recorded("mixtral")
    assert model.options.router_loss == 0.001
    values = [weight.value for weight in model.trainable_variables]
    _, _, losses = model.stateless_call(
        values, [], expected["ids"], training=True, return_losses=True
    )
    assert float(sum(losses)) == pytest.approx(0.001 * expected["aux_loss"], rel=1e-5)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_experts_are_read_from_one_tensor_too(name, recorded, tmp_path):
    model, expected = recorded(name)
    shutil.copytree(HERE / name, tmp_path / name)
    tensors = load_file(HERE / name / "model.safetensors")
    fused = {k: v for k, v in tensors.items() if ".experts." not in k}
    parts = ("w1", "w3", "w2") if name == "mixtral" else ("gate", "up", "down")
    for layer in range(model.options.layers):
        old = "block_sparse_moe" if name == "mixtral" else "mlp"
        start = f"model.layers.{layer}.{old}."
        if model.options.has_experts(layer):
            gate, up, down = (
                np.stack(
                    [
                        tensor
                        for key, tensor in sorted(tensors.items())
                        if key.startswith(f"{start}experts.") and f".{part}" in key
                    ]
                )
                for part in parts
            )
            new = f"model.layers.{layer}.mlp."
            fused[f"{new}gate.weight"] = fused.pop(f"{start}gate.weight")
            fused[f"{new}experts.gate_up_proj"] = np.concatenate([gate, up], 1)
            fused[f"{new}experts.down_proj"] = down
    save_file(fused, tmp_path / name / "model.safetensors")
    close(from_pretrained(tmp_path / name)(expected["ids"]), expected["logits"])
    model.save_pretrained(tmp_path / "written")
    written = load_file(tmp_path / "written" / "model.safetensors")
    assert written.keys() == tensors.keys()


# ---------------------------------------------------------------------- entries
# Without effect in transformers, too: on what a network computes in inference.
WITHOUT_EFFECT = {
    *("_sliding_window_pattern", "attention_dropout", "bos_token_id", "dtype"),
    *("embd_pdrop", "eos_token_id", "initializer_range", "max_position_embeddings"),
    *("max_window_layers", "original_max_position_embeddings", "pad_token_id"),
    *("pretraining_tp", "resid_pdrop", "transformers_version", "use_cache"),
    *("no_rope_layer_interval", "output_router_logits", "router_aux_loss_coef"),
}
ANOTHER = {
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "model_type": "falcon",
    "architectures": ["LlamaForSequenceClassification"],
}


def changes_of(config, path=()):
    """Each entry with another value of its kind, one at a time."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from changes_of(value, (*path, key))
        elif key in ANOTHER:
            yield (*path, key), ANOTHER[key]
        elif isinstance(value, bool):
            yield (*path, key), not value
        elif isinstance(value, int):
            yield (*path, key), value + 1
        elif isinstance(value, float):
            yield (*path, key), value * 1.5 + 0.1
        elif value is None:
            yield (*path, key), 3.5
        elif key == "layer_types":
            other = {"full_attention", "sliding_attention"} - {value[0]}
            yield (*path, key), [*other, *value[1:]]
        elif value == []:
            yield (*path, key), [0]
        elif isinstance(value, list):
            yield (*path, key), [1 - value[0] if value[0] in (0, 1) else 9, *value[1:]]
        else:
            yield (*path, key), f"{value}_other"


@pytest.mark.parametrize("name", FAMILIES)
def test_no_entry_is_dropped_in_silence(name, recorded, tmp_path):
    model, expected = recorded(name)
    text = (HERE / name / "config.json").read_text()
    for file in ("model.safetensors", "generation_config.json"):
        (tmp_path / file).symlink_to(HERE / name / file)
    unseen, refused = set(), set()
    for path, value in changes_of(json.loads(text)):
        config = inside = json.loads(text)
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        (tmp_path / "config.json").write_text(json.dumps(config))
        try:
            other = from_pretrained(tmp_path)
        except FileFormatError as error:
            refused.add(path[-1])
            assert path[-1] == "architectures" or error.reason
            continue
        ids, same = expected["ids"], other.options == model.options
        texts = (ids, ids[:, :6])
        if same or all(np.array_equal(other(x), model(x)) for x in texts):
            unseen.add(path[-1])
    assert unseen <= WITHOUT_EFFECT, unseen - WITHOUT_EFFECT
    assert {"model_type", "architectures", "hidden_size", "vocab_size"} <= refused


@pytest.mark.parametrize("name", FAMILIES)
def test_an_unknown_entry_is_named(name):
    config = json.loads((HERE / name / "config.json").read_text())
    family = FAMILIES[name]
    with pytest.raises(FileFormatError, match="nothing is known of: 'router_bias'"):
        family.read(config | {"router_bias": 0.5}, "op")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_that_says_nothing_means_what_it_does_in_transformers(name):
    told = json.loads((HERE / "defaults.json").read_text())[name]
    own = {key: told[key] for key in told if key not in GENERATION_NAMES}
    assert len(own) > 20
    family = FAMILIES[name]
    assert family.read(own | {"architectures": None}, "op") == family.read({}, "op")


PUBLIC = json.loads((HERE / "public_configs.json").read_text())


@pytest.mark.parametrize("name", PUBLIC)
def test_files_of_public_models_are_read(name):
    """Their entries as they are on the hub, with what versions and tools left there."""
    config = PUBLIC[name]
    kind = Llama if config["model_type"] in ("llama", "mistral") else Decoder
    arguments = kind.arguments_of(config, {})
    ends = config["eos_token_id"]
    ends = list(ends) if isinstance(ends, list) else [ends]
    assert arguments["generation"]["end_tokens"] == ends
    assert arguments["rope_base"] == config.get("rope_theta", 10000.0)
    assert arguments["tie_embeddings"] == config.get(
        "tie_word_embeddings", name.startswith(("gemma", "smollm3"))
    )
    windows = {"gemma-2-2b": 4096, "gemma-3-1b": 512, "phi-3-mini-4k": 2047}
    windows |= {"phi-3.5": 262144, "phi-4-mini": 262144}
    assert arguments.get("sliding_window") == windows.get(name)
    if name == "gemma-3-1b":
        assert sum(arguments["window_layers"]) == 22
        assert arguments["window_rope"]["rope_base"] == 10000.0


# ---------------------------------------------------------------------- spellings
def older(config):
    """The file as transformers 4 wrote it."""
    config = dict(config, torch_dtype=config["dtype"])
    rope = dict(config.pop("rope_parameters"))
    del config["dtype"]
    if "full_attention" in rope:
        local, rope = rope["sliding_attention"], dict(rope["full_attention"])
        config["rope_local_base_freq"] = local["rope_theta"]
    config["rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    kind = rope.pop("rope_type")
    if kind == "longrope":
        kind = "su"
        rope.pop("original_max_position_embeddings", None)
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    if config["model_type"] in ("gemma2", "qwen2"):  # by numbers of layers
        del config["layer_types"]
    return config


@pytest.mark.parametrize("name", FAMILIES)
def test_older_files_say_the_same(name):
    config = json.loads((HERE / name / "config.json").read_text())
    assert {"dtype", "rope_parameters"} <= config.keys()
    family = FAMILIES[name]
    assert family.read(older(config), "op") == family.read(config, "op")


@pytest.mark.parametrize("ends", [3, [3, 5]])
def test_all_end_tokens_are_read(ends):
    config = json.loads((HERE / "qwen3" / "config.json").read_text())
    files = {"generation_config.json": {"eos_token_id": ends}}
    arguments = Decoder.arguments_of(config, files)
    assert arguments["generation"]["end_tokens"] == ([ends] if ends == 3 else ends)


# ---------------------------------------------------------------------- files
@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_is_written_again_as_it_was(name, recorded, tmp_path):
    model, _ = recorded(name)
    model.save_pretrained(tmp_path)
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / file).read_bytes() == (HERE / name / file).read_bytes()


@pytest.mark.parametrize("name", ["phi3", "gemma3_text"])
def test_several_files_of_weights(name, recorded, tmp_path):
    model, expected = recorded(name)
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2
    np.testing.assert_array_equal(
        from_pretrained(tmp_path)(expected["ids"]), model(expected["ids"])
    )
    shards[1].unlink()
    with pytest.raises(ModelFormatError, match=shards[1].name):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["gemma2", "qwen3"])
def test_weights_of_half_precision_stay_so(name, dtype, recorded, tmp_path):
    model, expected = recorded(name)
    shutil.copytree(HERE / name, tmp_path, dirs_exist_ok=True)
    half = getattr(ml_dtypes, dtype, np.float16)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {path: array.astype(half) for path, array in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    other = from_pretrained(tmp_path)
    assert {str(w.dtype) for w in other.weights} == {dtype}
    close(other(expected["ids"]).astype("float32"), expected["logits"], 0.1)
    other.save_pretrained(tmp_path / "again")
    files = [tmp_path / f / "model.safetensors" for f in (".", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    wide = from_pretrained(tmp_path, dtype="float32")
    close(wide(expected["ids"]), expected["logits"], 0.05)


@pytest.mark.parametrize("name", ["gemma", "gemma3_text", "qwen2"])
def test_two_tables_for_one_must_agree(name, tmp_path):
    shutil.copytree(HERE / name, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    words = "(?s)differ.*model.embed_tokens.weight, lm_head.weight"
    with pytest.raises(FileFormatError, match=words):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("name", "told", "words"),
    [
        ("mistral", {"attention_bias": True}, "'attention_bias' .* must be False"),
        ("qwen2", {"attention_bias": False}, "'attention_bias' .* must be True"),
        ("gemma", {"use_bidirectional_attention": True}, "bidirectional"),
        ("gemma2", {"sliding_window": None}, "'sliding_attention', and 'sliding_w"),
        ("gemma2", {"layer_types": ["full_attention"]}, "'layer_types' .* 3 entries"),
        ("gemma3_text", {"attn_logit_softcapping": 2.0}, "must be null"),
        ("gemma3_text", {"rope_parameters": {"rope_type": "default"}}, "for each kind"),
        ("qwen3", {"layer_types": ["chunked_attention"] * 2}, "'layer_types' in"),
        ("smollm3", {"no_rope_layers": [1]}, "'no_rope_layers' .* 4 entries"),
        ("olmo2", {"num_key_value_heads": 3}, "does not describe the tensors"),
        ("phi3", {"num_key_value_heads": 2}, "belongs to another model|cut into"),
        ("qwen3", {"head_dim": 8}, "does not describe the tensors"),
    ],
)
def test_what_is_not_computed_is_refused(name, told, words, tmp_path):
    shutil.copytree(HERE / name, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | told))
    with pytest.raises(FileFormatError, match=words):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["longer_dynamic", "longer_longrope"])
def test_texts_longer_than_those_of_the_training_are_those_of_transformers(
    name, recorded
):
    model, expected = recorded(name)
    close(model(expected["ids"]), expected["logits"])
    prompts = [expected["ids"][row, :size] for row, size in enumerate(PROMPTS)]
    for cache, key in ((None, "cached"), (False, "written")):
        key = key if f"{key}/0" in expected else "written"
        for row, text in enumerate(model.generate(prompts, 10, cache=cache)):
            np.testing.assert_array_equal(text, expected[f"{key}/{row}"])


def test_drafted_tokens_have_the_angles_of_their_texts_lengths(recorded):
    model, expected = recorded("longer_dynamic")
    prompts = [expected["ids"][row, :size] for row, size in enumerate(PROMPTS)]
    for draft in (DraftModel(model, 3), PromptLookup(3, 1)):
        for row, text in enumerate(model.generate(prompts, 10, draft=draft)):
            np.testing.assert_array_equal(text, expected[f"cached/{row}"])
    with pytest.raises(ArgumentError, match="a draft needs a cache: texts of more"):
        recorded("longer_longrope")[0].generate(prompts, 10, draft="ngrams")
