"""Folders as ``transformers`` and ``timm`` write them, with weights by their names."""

import json
import zlib

import numpy as np
from safetensors.numpy import save_file

BERT = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 12,
    "model_type": "bert",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 32,
}
VIT = {
    "architectures": ["ViTForImageClassification"],
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 16,
    "id2label": {"0": "cat", "1": "dog", "2": "fox"},
    "image_size": 8,
    "intermediate_size": 24,
    "label2id": {"cat": 0, "dog": 1, "fox": 2},
    "layer_norm_eps": 1e-12,
    "model_type": "vit",
    "num_attention_heads": 2,
    "num_channels": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
    "qkv_bias": True,
}


def array(name, shape):
    """Numbers that the name decides; those of a normalization are near 1."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = rng.normal(0, 0.5, shape)
    leaf = name.rpartition(".")[2]
    if "var" in leaf:
        values = 1 + 0.1 * np.abs(values)
    elif leaf == "weight" and len(shape) == 1:
        values = 1 + 0.1 * values
    elif len(shape) == 4:
        values = values / np.sqrt(np.prod(shape[1:])) * 2
    return values.astype("float32")


def bert_shapes(pooler=True):
    width, inner = BERT["hidden_size"], BERT["intermediate_size"]
    yield "embeddings.word_embeddings.weight", (BERT["vocab_size"], width)
    yield "embeddings.position_embeddings.weight", (12, width)
    yield "embeddings.token_type_embeddings.weight", (2, width)
    yield from _both("embeddings.LayerNorm", width)
    for number in range(BERT["num_hidden_layers"]):
        start = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            yield from _both(f"{start}.attention.self.{part}", width, width)
        yield from _both(f"{start}.attention.output.dense", width, width)
        yield from _both(f"{start}.attention.output.LayerNorm", width)
        yield from _both(f"{start}.intermediate.dense", inner, width)
        yield from _both(f"{start}.output.dense", width, inner)
        yield from _both(f"{start}.output.LayerNorm", width)
    if pooler:
        yield from _both("pooler.dense", width, width)


def vit_shapes():
    width, inner = VIT["hidden_size"], VIT["intermediate_size"]
    yield "vit.embeddings.cls_token", (1, 1, width)
    yield "vit.embeddings.position_embeddings", (1, 5, width)
    yield "vit.embeddings.patch_embeddings.projection.weight", (width, 3, 4, 4)
    yield "vit.embeddings.patch_embeddings.projection.bias", (width,)
    for number in range(VIT["num_hidden_layers"]):
        start = f"vit.encoder.layer.{number}"
        for part in ("query", "key", "value"):
            yield from _both(f"{start}.attention.attention.{part}", width, width)
        yield from _both(f"{start}.attention.output.dense", width, width)
        yield from _both(f"{start}.layernorm_before", width)
        yield from _both(f"{start}.layernorm_after", width)
        yield from _both(f"{start}.intermediate.dense", inner, width)
        yield from _both(f"{start}.output.dense", width, inner)
    yield from _both("vit.layernorm", width)
    yield from _both("classifier", 3, width)


def timm_vit_shapes():
    yield "cls_token", (1, 1, 16)
    yield "pos_embed", (1, 5, 16)
    yield "patch_embed.proj.weight", (16, 3, 4, 4)
    yield "patch_embed.proj.bias", (16,)
    for number in range(2):
        start = f"blocks.{number}"
        yield from _both(f"{start}.norm1", 16)
        yield from _both(f"{start}.attn.qkv", 48, 16)
        yield from _both(f"{start}.attn.proj", 16, 16)
        yield from _both(f"{start}.norm2", 16)
        yield from _both(f"{start}.mlp.fc1", 64, 16)
        yield from _both(f"{start}.mlp.fc2", 16, 64)
    yield from _both("norm", 16)
    yield from _both("head", 3, 16)


def _both(name, out, *inner):
    yield f"{name}.weight", (out, *inner)
    yield f"{name}.bias", (out,)


def arrays(shapes):
    return {name: array(name, shape) for name, shape in shapes}


def write_json(path, value):
    """A file in the form of ``save_pretrained``."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def write(folder, config, tensors):
    """A folder with both files, in the form of ``save_pretrained``."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
