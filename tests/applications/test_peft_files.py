"""Adapters of peft: read, computed, trained and written (peft/record.py made them)."""

import json
import shutil
from pathlib import Path

import numpy as np
import optax
import pytest

import exburn
from exburn import applications, errors
from exburn.module.traversal import iter_weights
from exburn.runtime.files.ordinary import read_whole
from exburn.saving import load_model
from exburn.saving.weight_sources import read_weights

FOLDER = Path(__file__).with_name("peft")
BASES = {
    "llama_patterns": "llama",
    "llama_dora": "llama",
    "llama_rslora": "llama",
    "gpt2_fused": "gpt2",
    "gpt2_dora": "gpt2",
    "bert_saved": "bert",
    "bert_biases": "bert",
    "mixtral_experts": "mixtral",
    "qwen3_moe_down": "qwen3_moe",
}


def load(case):
    with np.load(FOLDER / f"{case}.npz") as file:
        return dict(file)


def base(case):
    options = {} if BASES.get(case, case) == "bert" else {"generation": None}
    folder = FOLDER / BASES.get(case, case)
    return applications.from_pretrained(folder, **options)


def scores(model, ids):
    if isinstance(model, applications.BERT):
        return model.predict({"input_ids": ids}, verbose=0)
    return model.predict(ids, verbose=0)


@pytest.fixture(scope="module")
def models():
    return {name: base(name) for name in dict.fromkeys(BASES.values())}


@pytest.mark.parametrize("case", BASES)
def test_a_folder_of_peft_computes_the_same(models, case, tmp_path):
    recorded = load(case)
    model = models[BASES[case]].clone()
    layers = model.load_adapter(FOLDER / case, name="task")
    assert layers and model.active_adapter == "task"
    outputs = scores(model, recorded["ids"])
    np.testing.assert_allclose(outputs, recorded["scores"], atol=1e-5)
    # and so does what is written of it, here and in peft (see below)
    model.save_adapter(tmp_path / "again")
    copy = models[BASES[case]].clone()
    copy.load_adapter(tmp_path / "again")
    np.testing.assert_allclose(scores(copy, recorded["ids"]), outputs, atol=1e-6)
    with read_weights(FOLDER / case / "adapter_model.safetensors") as theirs:
        with read_weights(tmp_path / "again" / "adapter_model.safetensors") as ours:
            assert set(theirs) == set(ours)
            for name in ours:
                np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    np.testing.assert_array_equal(scores(loaded, recorded["ids"]), outputs)
    learns = [w.path for w in model.trainable_weights]
    assert [w.path for w in loaded.trainable_weights] == learns


@pytest.mark.parametrize(
    "case", [c for c in BASES if not c.startswith(("gpt2", "mixtral"))]
)
def test_five_steps_are_those_of_peft(models, case, tmp_path):
    """Query, key and value of GPT-2, gate and up of experts share a factor there."""
    recorded = load(case)
    model = models[BASES[case]].clone()
    model.load_adapter(FOLDER / case)
    before = {p: w.numpy() for p, w, learns in iter_weights(model) if not learns}
    optimizer = optax.adamw(1e-2, eps=1e-7, weight_decay=0.01)  # torch's formula
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    x = recorded["ids"].astype(np.int32)
    x = {"input_ids": x} if BASES[case] == "bert" else x
    history = model.fit(x, recorded["targets"], epochs=5, batch_size=4, verbose=0)
    np.testing.assert_allclose(history.history["loss"], recorded["losses"], rtol=1e-4)
    for path, weight, learns in iter_weights(model):
        assert learns or (weight.numpy() == before[path]).all()
    model.save_adapter(tmp_path)
    with read_weights(tmp_path / "adapter_model.safetensors") as ours:
        for name in ours:
            expected = recorded[f"after/{name}"]
            np.testing.assert_allclose(ours[name], expected, atol=2e-4)


def test_experts_have_factors_of_their_own(models, tmp_path):
    model, rng = models["mixtral"].clone(), np.random.default_rng(0)
    ids = rng.integers(0, 30, (2, 8))
    assert not any("experts" in path for path in model.add_lora(2))
    model.remove_adapter("default")
    paths = model.add_lora(2, alpha=3, filter="*_experts", name="e", kind="rslora")
    assert len(paths) == 2
    before = scores(model, ids)
    for path, weight, learns in iter_weights(model):
        assert learns == ("lora_" in path)
        if path.endswith("lora_b"):
            weight.assign(0.2 * rng.standard_normal(weight.shape))
    outputs = scores(model, ids)
    assert np.abs(outputs - before).max() > 0.01
    model.save_adapter(tmp_path / "a")
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert config["r"] + sum(config["rank_pattern"].values()) in (2 + 4 * 2, 4 + 2 * 2)
    told = config | {"target_parameters": config["target_parameters"][::2]}
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(told))
    copy = models["mixtral"].clone()
    with pytest.raises(errors.FileFormatError, match="not those of the tensors"):
        copy.load_adapter(tmp_path / "a")
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config))
    copy.load_adapter(tmp_path / "a")  # the ranks of gate and up are 4 there
    np.testing.assert_allclose(scores(copy, ids), outputs, atol=1e-5)
    model.save(tmp_path / "m.exburn")
    np.testing.assert_array_equal(
        scores(load_model(tmp_path / "m.exburn"), ids), outputs
    )
    with pytest.raises(errors.ArgumentError, match="adds them to its weight"):
        model.set_adapter(None)
        model.generate([[1, 2], [3]], 2, adapter=["e", None])
    model.set_adapter("e")
    model.merge_lora(keep=True)
    np.testing.assert_allclose(scores(model, ids), outputs, atol=1e-5)
    model.unmerge_lora()
    np.testing.assert_array_equal(scores(model, ids), outputs)
    # an alpha of one parameter alone
    config["alpha_pattern"] = dict.fromkeys(
        (n for n in config["target_parameters"] if n.endswith("down_proj")), 6.0
    )
    config |= {"lora_alpha": 3, "use_rslora": False}
    (tmp_path / "a" / "adapter_config.json").write_text(json.dumps(config))
    copy.load_adapter(tmp_path / "a", name="b")
    layer = next(v for v in copy.layers if v.name.endswith("experts"))
    terms = {t.attribute: t for t in layer._low_ranks if t.name == "b"}
    stored = {t.attribute: t for t in model.get_layer(layer.name)._low_ranks}
    for name, term in terms.items():
        a, b = (np.asarray(w) for w in term.weights(layer).values())
        old = stored[name].weights(model.get_layer(layer.name))
        rank = 2 if name == "down" else 4
        factor = (6 if name == "down" else 3) / rank
        expected = factor * np.matmul(*(np.asarray(w) for w in old.values()))
        np.testing.assert_allclose(term.scale * (a @ b), expected, atol=1e-5)


def test_a_plain_layer_that_is_called_as_experts_are_is_a_module(models, tmp_path):
    model = models["llama"].clone()
    model.add_lora(rank=2)
    model.save_adapter(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))
    assert config["target_parameters"] is None
    assert any("down_proj" in target for target in config["target_modules"])
    assert models["llama"].clone().load_adapter(tmp_path, name="again")


def test_experts_in_few_bits_have_adapters(models):
    model = models["qwen3_moe"].quantize("int8")
    ids = np.random.default_rng(0).integers(0, 30, (2, 8))
    before = scores(model, ids)
    model.add_lora(2, filter="*_experts")
    np.testing.assert_allclose(scores(model, ids), before, atol=1e-6)
    model.compile(optax.adamw(1e-2), "sparse_categorical_crossentropy")
    model.fit(ids, ids, epochs=2, verbose=0)
    assert np.abs(scores(model, ids) - before).max() > 1e-3
    with pytest.raises(errors.ArgumentError, match="no magnitudes"):
        models["qwen3_moe"].clone().add_lora(2, filter="*_experts", kind="dora")


def test_three_adapters_of_one_fused_matrix_lie_beside_each_other(models, tmp_path):
    model, rng = models["gpt2"].clone(), np.random.default_rng(0)
    model.add_lora(2, alpha=3, filter=["*attention/query", "*attention/value", "*mlp*"])
    for path, weight, _ in iter_weights(model):
        if path.endswith(("lora_a", "lora_b")):
            weight.assign(rng.standard_normal(weight.shape))
    ids = rng.integers(0, 30, (2, 8))
    model.save_adapter(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    ranks = {config["r"], *config["rank_pattern"].values()}
    assert ranks == {2, 4} and config["target_modules"][:2] == ["c_attn", "c_fc"]
    copy = models["gpt2"].clone()
    copy.load_adapter(tmp_path)
    np.testing.assert_allclose(scores(copy, ids), scores(model, ids), atol=1e-5)


def test_a_tied_table_is_written_as_both_modules(models, tmp_path):
    model, rng = models["gpt2"].clone(), np.random.default_rng(0)
    model.add_lora(2, filter="token_embedding")
    layer = model.get_layer("token_embedding")
    layer.lora_b.assign(rng.standard_normal(layer.lora_b.shape))
    ids = rng.integers(0, 30, (2, 8))
    model.save_adapter(tmp_path)
    copy = models["gpt2"].clone()
    copy.load_adapter(tmp_path)
    np.testing.assert_allclose(scores(copy, ids), scores(model, ids), atol=1e-5)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    config["target_modules"] = ["wte"]
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    copy = models["gpt2"].clone()
    rewrite(tmp_path, lambda name: "lm_head" not in name)
    with pytest.raises(errors.FileFormatError, match="one weight here"):
        copy.load_adapter(tmp_path)


def rewrite(folder, keep, more=()):
    """Takes tensors out of an adapter's file, or adds some."""
    from exburn.runtime.files.together import changing
    from exburn.saving.foreign_safetensors import ForeignTensors, add_foreign
    from exburn.weights import Rules

    with read_weights(folder / "adapter_model.safetensors") as file:
        arrays = {name: file[name] for name in file if keep(name)} | dict(more)
    with changing(folder, op="test") as changes:
        tensors = ForeignTensors({}, Rules([]), extra=arrays)
        add_foreign(changes, "adapter_model.safetensors", tensors)


CHANGES = {
    "another kind": ({"peft_type": "LOHA"}, "peft_type"),
    "taken off the base": ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    "all biases": ({"bias": "all"}, "bias"),
    "biases of factors": ({"lora_bias": True}, "lora_bias"),
    "replicated layers": ({"layer_replication": [[0, 2]]}, "layer_replication"),
    "tokens": ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    "parameters": ({"target_parameters": ["experts"]}, "target_parameters"),
    "an entry of tomorrow": ({"use_new_kind": True}, "use_new_kind"),
    "expressions": ({"alpha_pattern": {".*q_proj": 3}}, "alpha_pattern"),
    "another rank": ({"r": 5}, "rank 5"),
    "a module that is not there": ({"target_modules": ["w_q"]}, "w_q"),
    "no magnitudes": ({"use_dora": True}, "magnitude"),
}


def test_directions_and_lengths_may_be_divided_by_the_root_of_the_rank(
    models, tmp_path
):
    recorded, folder = load("llama_dora"), tmp_path / "a"
    shutil.copytree(FOLDER / "llama_dora", folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"use_rslora": True, "lora_alpha": config["lora_alpha"]}
    config["lora_alpha"] /= config["r"] ** 0.5
    (folder / "adapter_config.json").write_text(json.dumps(config))
    model = models["llama"].clone()
    model.load_adapter(folder)
    np.testing.assert_allclose(
        scores(model, recorded["ids"]), recorded["scores"], atol=1e-5
    )


def test_a_table_beside_its_adapter_is_the_one_that_is_used(models, tmp_path):
    model, ids = models["llama"].clone(), np.arange(8)[None]
    assert model.add_lora(2, filter="token_embedding") == ["token_embedding"]
    for weight in model.trainable_weights:
        weight.assign(np.full(weight.shape, 0.1))
    model.save_adapter(tmp_path / "a")
    table = model.get_layer("token_embedding").weights[0].numpy() + 1
    name = "base_model.model.model.embed_tokens.base_layer.weight"
    rewrite(tmp_path / "a", lambda _: True, {name: table})
    copy = models["llama"].clone()
    copy.load_adapter(tmp_path / "a")
    model.get_layer("token_embedding").weights[0].assign(table)
    np.testing.assert_allclose(scores(copy, ids), scores(model, ids), atol=1e-6)
    assert [w.path for w in copy.trainable_weights] == [
        w.path for w in model.trainable_weights
    ]


@pytest.mark.parametrize("case", CHANGES)
def test_what_is_not_computed_is_refused_by_name(models, case, tmp_path):
    change, text = CHANGES[case]
    shutil.copytree(FOLDER / "llama_rslora", tmp_path / "a")
    path = tmp_path / "a" / "adapter_config.json"
    config = json.loads(path.read_text())
    if case == "no magnitudes":
        change = change | {"use_rslora": False}
    path.write_text(json.dumps(config | change))
    model = models["llama"].clone()
    before = {p: w.numpy() for p, w, _ in iter_weights(model)}
    with pytest.raises(errors.ExBurnError, match=text):
        model.load_adapter(tmp_path / "a")
    assert model.changes == [] and before.keys() == {p for p, *_ in iter_weights(model)}


def test_adapters_of_another_base_change_nothing(models, tmp_path):
    small = applications.Llama(30, layers=1, width=8, heads=2, mlp_width=12)
    for model in (small, models["gpt2"].clone(), models["bert"].clone()):
        with pytest.raises(errors.ExBurnError):
            model.load_adapter(FOLDER / "llama_rslora")
        assert model.changes == []
    with pytest.raises(errors.MissingFileError):
        small.load_adapter(tmp_path)
    model = models["bert"].clone()
    model.add_lora(2, name="other")
    with pytest.raises(errors.ArgumentError, match="other adapters share"):
        model.load_adapter(FOLDER / "bert_saved")
    damaged = tmp_path / "damaged"
    shutil.copytree(FOLDER / "llama_rslora", damaged)
    path = damaged / "adapter_model.safetensors"
    path.write_bytes(read_whole(path, op="test", most=1 << 20)[:-8])
    with pytest.raises(errors.FileFormatError):
        models["llama"].clone().load_adapter(damaged)


def test_beside_quantized_weights(models):
    recorded = load("llama_dora")
    model = models["llama"].quantize("int8")
    model.load_adapter(FOLDER / "llama_dora")
    outputs = scores(model, recorded["ids"])
    spread = recorded["scores"].std()
    np.testing.assert_allclose(outputs, recorded["scores"], atol=0.4 * spread)


@pytest.mark.parametrize("case", ["llama_dora", "gpt2_fused", "bert_saved"])
def test_peft_reads_what_is_written(models, case, tmp_path):
    peft = pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    recorded = load(case)
    model = models[BASES[case]].clone()
    model.load_adapter(FOLDER / case)
    model.save_adapter(tmp_path)
    names = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"}
    kind = names.get(BASES[case], "BertForSequenceClassification")
    network = getattr(transformers, kind).from_pretrained(FOLDER / BASES[case])
    network = peft.PeftModel.from_pretrained(network, tmp_path).eval()
    with torch.no_grad():
        logits = network(input_ids=torch.from_numpy(recorded["ids"])).logits.numpy()
    np.testing.assert_allclose(logits, recorded["scores"], atol=1e-5)
