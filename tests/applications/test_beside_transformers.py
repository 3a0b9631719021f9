"""Decoders beside Hugging Face's ``transformers``, in an environment that has it."""

import numpy as np
import pytest

from exburn import applications
from exburn.applications import GPT2, Llama

CONFIGS = {
    GPT2: (
        "GPT2",
        "GPT2LMHeadModel",
        {"n_layer": 3, "n_embd": 48, "n_head": 4, "activation_function": "gelu"},
    ),
    Llama: (
        "Llama",
        "LlamaForCausalLM",
        {
            "num_hidden_layers": 3,
            "hidden_size": 48,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 80,
            "rope_parameters": {
                "rope_type": "linear",
                "rope_theta": 5000.0,
                "factor": 3.0,
            },
        },
    ),
}


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
    model = applications.from_pretrained(tmp_path, generation=None)  # ends nowhere
    assert type(model) is family
    model.save_pretrained(tmp_path / "again")
    files = [tmp_path / folder / "model.safetensors" for folder in (".", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
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
