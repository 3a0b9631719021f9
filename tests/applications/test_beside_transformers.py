"""Decoders beside Hugging Face's ``transformers``, in an environment that has it."""

import json

import numpy as np
import pytest

from exburn.applications import GPT2, Llama
from exburn.module.traversal import iter_weights

CONFIGS = {
    GPT2: ("GPT2", "GPT2LMHeadModel", {"n_layer": 3, "n_embd": 48, "n_head": 4}),
    Llama: (
        "Llama",
        "LlamaForCausalLM",
        {
            "num_hidden_layers": 3,
            "hidden_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 80,
            "rope_theta": 5000.0,
        },
    ),
}


@pytest.mark.longest
@pytest.mark.long
@pytest.mark.parametrize("family", CONFIGS)
def test_scores_and_texts_are_those_of_transformers(family, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    name, theirs, sizes = CONFIGS[family]
    config = getattr(transformers, f"{name}Config")(vocab_size=60, **sizes)
    peer = getattr(transformers, theirs)(config).eval()
    with torch.no_grad():
        for weight in peer.parameters():
            weight.copy_(0.3 * torch.randn_like(weight))
    peer.save_pretrained(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    model = family(**family.arguments_of(told))
    fill(model, tmp_path / "model.safetensors")
    ids = np.random.default_rng(0).integers(0, 60, (3, 17))
    with torch.no_grad():
        expected = peer(torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(model(ids), expected, atol=1e-4)
    prompts = ids[:, :9]
    for options in ({}, {"beams": 4}):
        given = torch.from_numpy(prompts)
        written = peer.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=20,
            do_sample=False,
            num_beams=options.get("beams", 1),
            length_penalty=0.0,
            pad_token_id=0,
            eos_token_id=None,
        )
        found = np.stack(model.generate(prompts, 20, **options))
        np.testing.assert_array_equal(found, written[:, 9:].numpy())


def fill(model, path):
    """Gives a model the weights of a file, by its rules."""
    import jax
    from safetensors.numpy import load_file

    stored, own = load_file(path), {p: w for p, w, _ in iter_weights(model)}
    plan = model.weight_rules().load_plan(stored)
    assert not plan.unknown
    assert {t for move in plan.moves for t in move.targets} == own.keys()
    for move in plan.moves:
        arrays = tuple(stored[name] for name in move.sources)
        shapes = tuple(tuple(own[t].shape) for t in move.targets)
        loaded = move.transform.load(arrays, shapes)
        for target, array in zip(move.targets, loaded, strict=True):
            own[target].set_raw_value(jax.device_put(array))
