"""Writes the folders beside it: tiny networks, adapters of peft, and what they give.

    python tests/applications/peft/record.py   # needs torch, transformers, peft
    python tests/applications/peft/record.py mixtral mixtral_experts   # these alone

For each case: ``<base>/`` as transformers writes it, ``<case>/`` as peft does, and in
``<case>.npz`` the scores, the gradients and the tensors after five steps of AdamW.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SIZES = {
    "llama": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 30,
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "n_embd": 16,
        "n_head": 2,
        "n_layer": 2,
        "vocab_size": 30,
        "n_positions": 16,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "bert": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 30,
        "max_position_embeddings": 16,
        "num_labels": 3,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "mixtral": {
        "hidden_size": 16,
        "intermediate_size": 12,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 2,
        "vocab_size": 30,
        "num_local_experts": 4,
        "tie_word_embeddings": False,
    },
    "qwen3_moe": {
        "hidden_size": 16,
        "intermediate_size": 20,
        "moe_intermediate_size": 12,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "head_dim": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
        "vocab_size": 30,
        "tie_word_embeddings": False,
    },
}
CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "bert": ("BertConfig", "BertForSequenceClassification"),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM"),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
}
CASES = {
    "llama_patterns": (
        "llama",
        {
            "r": 4,
            "lora_alpha": 6,
            "target_modules": ["q_proj", "v_proj", "o_proj", "down_proj"],
            "rank_pattern": {"layers.1.self_attn.q_proj": 2, "down_proj": 3},
            "alpha_pattern": {"down_proj": 5},
        },
    ),
    "llama_dora": ("llama", {"r": 2, "target_modules": "all-linear", "use_dora": True}),
    "llama_rslora": (
        "llama",
        {"r": 4, "target_modules": r".*\.(k_proj|gate_proj)", "use_rslora": True},
    ),
    "gpt2_fused": (
        "gpt2",
        {"r": 3, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True},
    ),
    "gpt2_dora": (
        "gpt2",
        {
            "r": 2,
            "target_modules": ["c_attn", "mlp.c_proj"],
            "fan_in_fan_out": True,
            "use_dora": True,
        },
    ),
    "bert_saved": (
        "bert",
        {
            "r": 2,
            "target_modules": ["query", "dense"],
            "exclude_modules": r".*pooler.*",
            "modules_to_save": ["classifier"],
        },
    ),
    "mixtral_experts": (
        "mixtral",
        {
            "r": 2,
            "lora_alpha": 3,
            "target_modules": ["q_proj"],
            "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
            "rank_pattern": {"model.layers.1.mlp.experts.down_proj": 3},
            "alpha_pattern": {"model.layers.1.mlp.experts.down_proj": 4.5},
        },
    ),
    "qwen3_moe_down": (
        "qwen3_moe",
        {
            "r": 2,
            "target_modules": ["v_proj"],
            "target_parameters": ["mlp.experts.down_proj"],
            "use_rslora": True,
        },
    ),
    "bert_biases": ("bert", {"r": 2, "target_modules": ["value"], "bias": "lora_only"}),
}


def main() -> None:
    import peft
    import torch
    import transformers

    names = sys.argv[1:] or [*SIZES, *CASES]
    for base, sizes in SIZES.items():
        if base not in names:
            continue
        torch.manual_seed(0)
        config, kind = (getattr(transformers, name) for name in CLASSES[base])
        network = getattr(transformers, CLASSES[base][1])(config(**sizes))
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
        shutil.rmtree(HERE / base, ignore_errors=True)
        network.save_pretrained(HERE / base)
        (HERE / base / "generation_config.json").unlink(missing_ok=True)
    for case, (base, options) in CASES.items():
        if case not in names:
            continue
        kind = getattr(transformers, CLASSES[base][1])
        torch.manual_seed(1)
        model = peft.get_peft_model(
            kind.from_pretrained(HERE / base), peft.LoraConfig(**options)
        )
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.requires_grad and "magnitude" not in name:
                    weight.add_(0.2 * torch.randn_like(weight))
                elif weight.requires_grad:
                    weight.mul_(1 + 0.2 * torch.rand_like(weight))
        shutil.rmtree(HERE / case, ignore_errors=True)
        model.save_pretrained(HERE / case)
        (HERE / case / "README.md").unlink(missing_ok=True)
        path = HERE / case / "adapter_config.json"
        config = json.loads(path.read_text()) | {"base_model_name_or_path": base}
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        np.savez_compressed(HERE / f"{case}.npz", **record(model, base, torch, peft))


def record(model, base, torch, peft):
    """Scores, gradients and five steps; losses are means over tokens or rows."""
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(0, 30, (4, 8)))
    classes = rng.integers(
        0, 3 if base == "bert" else 30, (4,) if base == "bert" else (4, 8)
    )
    targets = torch.from_numpy(classes)
    model.train()
    arrays = {"ids": ids.numpy(), "targets": targets.numpy()}
    learned = [w for w in model.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-2, eps=1e-7, weight_decay=0.01)
    losses = []
    for step in range(5):
        scores = model(input_ids=ids).logits
        flat = scores.reshape(-1, scores.shape[-1])
        loss = torch.nn.functional.cross_entropy(flat, targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            arrays["scores"] = scores.detach().numpy()
        optimizer.step()
    arrays["losses"] = np.float32(losses)
    state = peft.get_peft_model_state_dict(model)
    return arrays | {f"after/{k}": v.detach().numpy() for k, v in state.items()}


if __name__ == "__main__":
    main()
