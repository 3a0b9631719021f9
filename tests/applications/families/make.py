"""Tiny folders of each family as ``transformers`` writes them, and what it computes.

Run by Python with ``torch`` and ``transformers``, this file writes the folders beside
it anew: ``python tests/applications/families/make.py``. Each has in ``expected.npz``
the scores of ``ids`` in float32, the tokens that are written greedily after ``PROMPTS``
of each row, and the norm of the gradient of each tensor.

``defaults.json`` has what the classes of configurations say where a file says nothing;
``python tests/applications/families/make.py defaults`` writes it alone.

``python tests/applications/families/make.py check FOLDER`` compares the scores of
folders that ExBurn has written, as ``FOLDER/qwen3``, with the recorded ones.
"""

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PROMPTS = (3, 7, 5)
NEW = 10

SMALL = {
    "vocab_size": 19,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.02,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.5, 1.0],
    "long_factor": [3.0, 2.0],
    "partial_rotary_factor": 0.5,
}
CASES = {
    "llama": (
        "Llama",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 6,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 50.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "mistral": (
        "Mistral",
        {"head_dim": 6, "sliding_window": 4, "num_attention_heads": 2},
    ),
    "qwen2": (
        "Qwen2",
        {
            "hidden_size": 16,
            "use_sliding_window": True,
            "sliding_window": 3,
            "max_window_layers": 1,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 50.0,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "qwen3": (
        "Qwen3",
        {
            "head_dim": 6,
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_parameters": {
                "rope_type": "linear",
                "rope_theta": 100.0,
                "factor": 2.0,
            },
        },
    ),
    "gemma": ("Gemma", {"head_dim": 4, "num_key_value_heads": 1}),
    "gemma2": (
        "Gemma2",
        {
            "head_dim": 4,
            "sliding_window": 3,
            "query_pre_attn_scalar": 2,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 2.0,
            "num_hidden_layers": 3,
        },
    ),
    "gemma3_text": (
        "Gemma3",
        {
            "head_dim": 4,
            "sliding_window": 3,
            "query_pre_attn_scalar": 9,
            "layer_types": [
                "sliding_attention",
                "full_attention",
                "sliding_attention",
            ],
            "num_hidden_layers": 3,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "linear",
                    "factor": 3.0,
                    "rope_theta": 400.0,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
            },
        },
    ),
    "phi3": (
        "Phi3",
        {
            "sliding_window": 5,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "original_max_position_embeddings": 8,
            "rope_parameters": LONG,
        },
    ),
    "smollm3": (
        "SmolLM3",
        {
            "hidden_size": 16,
            "num_hidden_layers": 4,
            "no_rope_layers": [1, 0, 1, 0],
            "use_sliding_window": True,
            "sliding_window": 4,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
    "olmo2": ("Olmo2", {"attention_bias": True, "hidden_size": 16}),
    # Texts that become longer than those of the training while they are written.
    "longer_dynamic": (
        "Llama",
        {
            "max_position_embeddings": 8,
            "head_dim": 6,
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 20.0,
                "factor": 8.0,
            },
        },
    ),
    "longer_longrope": (
        "Phi3",
        {
            "hidden_size": 16,
            "original_max_position_embeddings": 8,
            "rope_parameters": LONG
            | {"short_factor": [1.0, 1.5], "long_factor": [4.0, 9.0]}
            | {"partial_rotary_factor": 1.0},
        },
    ),
    "mixtral": (
        "Mixtral",
        {
            "hidden_size": 16,
            "num_local_experts": 3,
            "output_router_logits": True,
            "sliding_window": 6,
        },
    ),
    "qwen2_moe": (
        "Qwen2Moe",
        {
            **dict.fromkeys(("moe_intermediate_size", "num_experts"), 4),
            "shared_expert_intermediate_size": 6,
            "hidden_size": 16,
            "mlp_only_layers": [1],
            "use_sliding_window": True,
            "sliding_window": 4,
            "max_window_layers": 1,
            "num_experts_per_tok": 2,
        },
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            **dict.fromkeys(("moe_intermediate_size", "num_experts"), 4),
            "head_dim": 6,
            "num_experts_per_tok": 3,
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 4,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [1],
            "norm_topk_prob": True,
        },
    ),
}


def config_of(name, **options):
    import transformers

    title = CASES[name][0]
    kind = "Gemma3TextConfig" if title == "Gemma3" else f"{title}Config"
    return getattr(transformers, kind)(**options)


def record_defaults():
    entries = {name: config_of(name).to_dict() for name in CASES}
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    (HERE / "defaults.json").write_text(text.replace('},"', '},\n"') + "\n")


def peer_of(name):
    import torch
    import transformers

    title, options = CASES[name]
    config = config_of(name, **SMALL | options)
    config._attn_implementation = "eager"
    peer = getattr(transformers, f"{title}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in peer.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(0.5 * noise if weight.ndim > 1 else weight + 0.3 * noise)
    return peer


def in_file(title, path, tensor):
    """The tensors that a file has for one of the model, with their names."""
    names = "gate_proj", "up_proj", "down_proj"
    if title == "Mixtral":
        path, names = path.replace(".mlp.", ".block_sparse_moe."), ("w1", "w3", "w2")
    start, experts, kind = path.partition(".experts.")
    if not experts:
        yield path, tensor
    for number, part in enumerate(tensor if experts else ()):
        both = kind == "gate_up_proj"
        halves = zip(names[:2], part.chunk(2), strict=True) if both else None
        parts = halves or [(names[2], part)]
        for name, one in parts:
            yield f"{start}.experts.{number}.{name}.weight", one


def record(name):
    import torch

    folder, peer, title = HERE / name, peer_of(name), CASES[name][0]
    peer.save_pretrained(folder)
    ids = np.random.default_rng(3).integers(0, SMALL["vocab_size"], (3, 13))
    tokens = torch.from_numpy(ids)
    logits = peer(tokens).logits
    targets, scores = tokens[:, 1:].flatten(), logits[:, :-1].flatten(0, 1)
    torch.nn.functional.cross_entropy(scores, targets).backward()
    expected = {"ids": ids.astype("int32"), "logits": logits.detach().numpy()}
    for path, weight in peer.named_parameters():
        for tensor, gradient in in_file(title, path, weight.grad):
            expected[f"gradient/{tensor}"] = np.float32(gradient.norm())
    if "Mixtral" in title:
        expected["aux_loss"] = peer(tokens).aux_loss.detach().numpy()
    for row, length in enumerate(PROMPTS):
        prompt = tokens[row : row + 1, :length]
        # In a cache, keys stay as "longrope" and "dynamic" turned them.
        caches = [False, True] if name == "longer_dynamic" else [False]
        for cache in caches:
            written = peer.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=NEW,
                do_sample=False,
                use_cache=cache,
                pad_token_id=0,
                eos_token_id=None,
            )
            key = f"{'cached' if cache else 'written'}/{row}"
            expected[key] = written[0, length:].numpy().astype("int32")
    np.savez_compressed(folder / "expected.npz", **expected)


def check(root):
    """Says how far the scores of folders that ExBurn wrote are from the recorded."""
    import torch
    import transformers

    for name, (title, _) in CASES.items():
        if not (root / name).is_dir():
            continue
        recorded = np.load(HERE / name / "expected.npz")
        peer = getattr(transformers, f"{title}ForCausalLM").from_pretrained(
            root / name, attn_implementation="eager", dtype=torch.float32
        )
        with torch.no_grad():
            found = peer(torch.from_numpy(recorded["ids"].astype("int64"))).logits
        apart = np.abs(found.numpy() - recorded["logits"]).max()
        print(name, json.dumps(float(apart / np.abs(recorded["logits"]).max())))


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(Path(sys.argv[2]))
    elif sys.argv[1:] == ["defaults"]:
        record_defaults()
    else:
        record_defaults()
        for case in sys.argv[1:] or CASES:
            record(case)
