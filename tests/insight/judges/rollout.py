"""Attention rollout by NumPy from the attentions of transformers' GPT-2 and BERT.

Run where torch and transformers are installed; it writes ../recorded/rollout.npz with
the weights of both, tiny and random.
"""

from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

torch.manual_seed(5)
common = {"attn_implementation": "eager", "initializer_range": 0.5}
gpt2 = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=40,
        n_positions=8,
        n_embd=16,
        n_layer=3,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        **common,
    )
)
bert = BertModel(
    BertConfig(
        vocab_size=40,
        max_position_embeddings=8,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=32,
        **common,
    )
)
tokens = np.random.default_rng(5).integers(1, 40, (3, 7))
mask = np.ones_like(tokens)
mask[1, 5:] = 0  # BERT's second row is shorter
arrays = {"tokens": tokens, "mask": mask}
for name, model in {"gpt2": gpt2, "bert": bert}.items():
    model.eval()
    with torch.no_grad():
        seen = {"attention_mask": torch.tensor(mask)} if model is bert else {}
        outputs = model(torch.tensor(tokens), output_attentions=True, **seen)
    flow = np.eye(7)
    for weights in outputs.attentions:
        mean = weights.double().numpy().mean(1)
        flow = (0.5 * mean + 0.5 * np.eye(7)) @ flow
    arrays[f"{name}/flow"] = flow
    arrays[f"{name}/config"] = np.array(model.config.to_json_string())
    for key, value in model.state_dict().items():
        if key != "lm_head.weight":  # the table of tokens again
            arrays[f"{name}/weights/{key}"] = value.numpy().copy()
np.savez_compressed(Path(__file__).parents[1] / "recorded" / "rollout.npz", **arrays)
