"""BERT and ViT in NumPy, from their papers, on tensors by Hugging Face's names."""

import math

import numpy as np


def dense(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def norm(w, name, x, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def attend(query, key, value, heads, mask=None):
    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    q, k, v = map(split, (query, key, value))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask[:, None, None], scores, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(query.shape)


def bert(w, ids, mask, types, heads=2, epsilon=1e-12):
    """The vectors of all tokens."""
    w = {name: array.astype("float64") for name, array in w.items()}
    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = x + w["embeddings.token_type_embeddings.weight"][types]
    x = norm(w, "embeddings.LayerNorm", x, epsilon)
    number = 0
    while f"encoder.layer.{number}.output.dense.bias" in w:
        start = f"encoder.layer.{number}"
        parts = [
            dense(w, f"{start}.attention.self.{part}", x)
            for part in ("query", "key", "value")
        ]
        mixed = attend(*parts, heads, mask)
        x = x + dense(w, f"{start}.attention.output.dense", mixed)
        x = norm(w, f"{start}.attention.output.LayerNorm", x, epsilon)
        inner = gelu(dense(w, f"{start}.intermediate.dense", x))
        x = x + dense(w, f"{start}.output.dense", inner)
        x = norm(w, f"{start}.output.LayerNorm", x, epsilon)
        number += 1
    return x


def pooled(w, x):
    """BERT's vector of a text."""
    return np.tanh(dense(w, "pooler.dense", x[:, 0]))


def vit(w, images, patch=4, heads=2, epsilon=1e-12):
    """The scores of a ViT's classes, before the softmax."""
    w = {n.removeprefix("vit."): array.astype("float64") for n, array in w.items()}
    x = _patches(w, "embeddings.patch_embeddings.projection", images, patch)
    token = np.broadcast_to(w["embeddings.cls_token"], (len(x), 1, x.shape[-1]))
    x = np.concatenate([token, x], 1) + w["embeddings.position_embeddings"]
    number = 0
    while f"encoder.layer.{number}.output.dense.bias" in w:
        start = f"encoder.layer.{number}"
        inner = norm(w, f"{start}.layernorm_before", x, epsilon)
        parts = [
            dense(w, f"{start}.attention.attention.{part}", inner)
            for part in ("query", "key", "value")
        ]
        x = x + dense(w, f"{start}.attention.output.dense", attend(*parts, heads))
        inner = norm(w, f"{start}.layernorm_after", x, epsilon)
        inner = gelu(dense(w, f"{start}.intermediate.dense", inner))
        x = x + dense(w, f"{start}.output.dense", inner)
        number += 1
    return dense(w, "classifier", norm(w, "layernorm", x, epsilon)[:, 0])


def timm_vit(w, images, patch=4, heads=2, epsilon=1e-6):
    """The same by timm's names, whose query, key and value are one tensor."""
    w = {name: array.astype("float64") for name, array in w.items()}
    x = _patches(w, "patch_embed.proj", images, patch)
    token = np.broadcast_to(w["cls_token"], (len(x), 1, x.shape[-1]))
    x = np.concatenate([token, x], 1) + w["pos_embed"]
    number = 0
    while f"blocks.{number}.mlp.fc2.bias" in w:
        start = f"blocks.{number}"
        inner = dense(w, f"{start}.attn.qkv", norm(w, f"{start}.norm1", x, epsilon))
        parts = np.split(inner, 3, -1)
        x = x + dense(w, f"{start}.attn.proj", attend(*parts, heads))
        inner = norm(w, f"{start}.norm2", x, epsilon)
        inner = gelu(dense(w, f"{start}.mlp.fc1", inner))
        x = x + dense(w, f"{start}.mlp.fc2", inner)
        number += 1
    return dense(w, "head", norm(w, "norm", x, epsilon)[:, 0])


def _patches(w, name, images, patch):
    batch, height, width, channels = images.shape
    rows, columns = height // patch, width // patch
    cut = images.reshape(batch, rows, patch, columns, patch, channels)
    cut = cut.transpose(0, 1, 3, 5, 2, 4).reshape(batch, rows * columns, -1)
    kernel = w[f"{name}.weight"]
    return cut @ kernel.reshape(len(kernel), -1).T + w[f"{name}.bias"]
