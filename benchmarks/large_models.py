"""The larger workloads of `large.py`: the same model for every peer.

Every peer trains with Adam (1e-3), cross-entropy and an accuracy metric, on data that
is shuffled every epoch. The transformers run in mixed bfloat16, the others in float32
with the default matrix precision of the device (TF32 on NVIDIA).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import workloads
from workloads import FEATURES, UNITS


@dataclasses.dataclass(frozen=True)
class Large:
    """A workload; ``flops`` are those of one sample's forward and backward pass."""

    name: str
    samples: int
    batch: int
    tokens: int = 0
    vocabulary: int = 0
    width: int = 0
    blocks: int = 0
    heads: int = 0

    @property
    def bfloat16(self) -> bool:
        return bool(self.tokens)

    @property
    def parameters(self) -> int:
        """Of a transformer, with the table of tokens shared by both ends."""
        block = 12 * self.width**2 + 13 * self.width
        ends = (self.vocabulary + self.tokens + 2) * self.width
        return self.blocks * block + ends

    @property
    def flops(self) -> float:
        """6 per parameter and token, and attention's (Chowdhery et al., PaLM, 2022)."""
        attention = 12 * self.blocks * self.width * self.tokens
        return self.tokens * (6.0 * self.parameters + attention)


LARGE = {
    w.name: w
    for w in (
        Large("gpt32", 2_048, 32, 256, 65, 384, 6, 6),
        Large("gpt128", 4_096, 128, 256, 65, 384, 6, 6),
        Large("gpt2", 512, 16, 1_024, 50_257, 768, 12, 12),
        Large("resnet18", 16_384, 128),
        Large("lstm", 16_384, 64),
    )
}
STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


def data(work: Large, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Random inputs and labels; throughput does not depend on their values."""
    if work.name == "lstm":
        return workloads.data("lstm", samples)
    rng = np.random.default_rng(0)
    if work.tokens:
        shape = (samples, work.tokens + 1)
        text = rng.integers(0, work.vocabulary, shape).astype(np.int32)
        return text[:, :-1].copy(), text[:, 1:].copy()
    x = rng.standard_normal((samples, 32, 32, 3), dtype=np.float32)
    return x, rng.integers(0, 10, samples).astype(np.int32)


def keras_like(work: Large, k: Any, places: Any):
    """The model in the vocabulary that Keras and ExBurn share.

    Args:
        work: The workload.
        k: ``keras`` or ``exburn``.
        places: A layer that turns tokens into their positions.
    """
    layers = k.layers
    if work.name == "lstm":
        return workloads.keras_like("lstm", k, layers, places)
    if work.name == "resnet18":
        return _resnet(k, layers)
    table = layers.ReversibleEmbedding(work.vocabulary, work.width)
    tokens = k.Input((work.tokens,), dtype="int32")
    h = layers.Add()(
        [table(tokens), layers.Embedding(work.tokens, work.width)(places(tokens))]
    )
    for _ in range(work.blocks):
        z = layers.LayerNormalization(epsilon=1e-5)(h)
        size = work.width // work.heads
        attend = layers.MultiHeadAttention(work.heads, size)
        h = layers.Add()([h, attend(z, z, use_causal_mask=True)])
        z = layers.LayerNormalization(epsilon=1e-5)(h)
        z = layers.Dense(4 * work.width, activation="gelu")(z)
        h = layers.Add()([h, layers.Dense(work.width)(z)])
    h = layers.LayerNormalization(epsilon=1e-5)(h)
    return k.Model(tokens, table(h, reverse=True))


def _resnet(k: Any, layers: Any):
    x = k.Input((32, 32, 3))

    def convolved(h, filters, size, stride):
        h = layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(h)
        return layers.BatchNormalization()(h)

    h = layers.ReLU()(convolved(x, 64, 3, 1))
    for filters, stride in STAGES:
        skip = h
        if stride > 1 or h.shape[-1] != filters:
            skip = convolved(h, filters, 1, stride)
        h = layers.ReLU()(convolved(h, filters, 3, stride))
        h = layers.ReLU()(layers.Add()([skip, convolved(h, filters, 3, 1)]))
    return k.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))


# ------------------------------------------------------------------ flax, by hand
def flax_module(work: Large):
    """What a JAX user writes with flax.nnx: cuDNN attention, a fused projection."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    rngs = nnx.Rngs(0)
    dtype = jnp.bfloat16 if work.bfloat16 else jnp.float32
    if work.name == "lstm":

        class Classifier(nnx.Module):
            def __init__(self):
                cell = nnx.OptimizedLSTMCell(FEATURES, UNITS, rngs=rngs)
                self.rnn = nnx.RNN(cell, return_carry=True)
                self.out = nnx.Linear(UNITS, 10, rngs=rngs)

            def __call__(self, x):
                return self.out(self.rnn(x)[0][1])

        return Classifier()
    if work.name == "resnet18":

        class Unit(nnx.Module):
            def __init__(self, n_in, filters, size, stride):
                window = (size, size)
                self.conv = nnx.Conv(
                    n_in, filters, window, stride, use_bias=False, rngs=rngs
                )
                self.norm = nnx.BatchNorm(filters, rngs=rngs)

            def __call__(self, x):
                return self.norm(self.conv(x))

        class Block(nnx.Module):
            def __init__(self, n_in, filters, stride):
                self.a = Unit(n_in, filters, 3, stride)
                self.b = Unit(filters, filters, 3, 1)
                plain = stride == 1 and n_in == filters
                self.skip = None if plain else Unit(n_in, filters, 1, stride)

            def __call__(self, x):
                skip = x if self.skip is None else self.skip(x)
                return jax.nn.relu(skip + self.b(jax.nn.relu(self.a(x))))

        class ResNet(nnx.Module):
            def __init__(self):
                self.stem, n_in, blocks = Unit(3, 64, 3, 1), 64, []
                for filters, stride in STAGES:
                    blocks.append(Block(n_in, filters, stride))
                    n_in = filters
                self.blocks = nnx.List(blocks)
                self.out = nnx.Linear(512, 10, rngs=rngs)

            def __call__(self, x):
                x = jax.nn.relu(self.stem(x))
                for block in self.blocks:
                    x = block(x)
                return self.out(x.mean((1, 2)))

        return ResNet()
    d, heads = work.width, work.heads
    on_gpu = jax.default_backend() == "gpu"

    class Layer(nnx.Module):
        def __init__(self):
            options = {"dtype": dtype, "rngs": rngs}
            self.n1, self.n2 = nnx.LayerNorm(d, **options), nnx.LayerNorm(d, **options)
            self.qkv = nnx.Linear(d, 3 * d, **options)
            self.o = nnx.Linear(d, d, **options)
            self.f1 = nnx.Linear(d, 4 * d, **options)
            self.f2 = nnx.Linear(4 * d, d, **options)

        def __call__(self, x):
            b, t, _ = x.shape
            parts = self.qkv(self.n1(x)).reshape(b, t, 3 * heads, d // heads)
            a = jax.nn.dot_product_attention(
                *jnp.split(parts, 3, axis=2),
                is_causal=True,
                implementation="cudnn" if on_gpu else None,
            )
            x = x + self.o(a.reshape(b, t, d))
            return x + self.f2(jax.nn.gelu(self.f1(self.n2(x))))

    class Gpt(nnx.Module):
        def __init__(self):
            options = {"dtype": dtype, "rngs": rngs}
            self.tokens = nnx.Embed(work.vocabulary, d, **options)
            self.places = nnx.Embed(work.tokens, d, **options)
            self.blocks = nnx.List([Layer() for _ in range(work.blocks)])
            self.norm = nnx.LayerNorm(d, **options)

        def __call__(self, x):
            h = self.tokens(x) + self.places(jnp.arange(x.shape[1]))[None]
            for block in self.blocks:
                h = block(h)
            return self.tokens.attend(self.norm(h))

    return Gpt()


# ------------------------------------------------------------------ PyTorch
def torch_module(work: Large):
    """The same in PyTorch, with its fused attention."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    if work.name == "lstm":

        class Classifier(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(FEATURES, UNITS, batch_first=True)
                self.out = nn.Linear(UNITS, 10)

            def forward(self, x):
                return self.out(self.rnn(x)[1][0][0])

        return Classifier()
    if work.name == "resnet18":

        def unit(n_in, filters, size, stride):
            conv = nn.Conv2d(n_in, filters, size, stride, size // 2, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(filters))

        class Block(nn.Module):
            def __init__(self, n_in, filters, stride):
                super().__init__()
                self.a = unit(n_in, filters, 3, stride)
                self.b = unit(filters, filters, 3, 1)
                plain = stride == 1 and n_in == filters
                self.skip = None if plain else unit(n_in, filters, 1, stride)

            def forward(self, x):
                skip = x if self.skip is None else self.skip(x)
                return torch.relu(skip + self.b(torch.relu(self.a(x))))

        blocks, n_in = [], 64
        for filters, stride in STAGES:
            blocks.append(Block(n_in, filters, stride))
            n_in = filters
        ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
        return nn.Sequential(unit(3, 64, 3, 1), nn.ReLU(), *blocks, *ends)
    d, heads = work.width, work.heads

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, t, _ = x.shape
            parts = self.qkv(self.n1(x)).split(d, 2)
            q, k, v = (p.view(b, t, heads, d // heads).transpose(1, 2) for p in parts)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
            return x + self.f2(F.gelu(self.f1(self.n2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(work.vocabulary, d)
            self.places = nn.Embedding(work.tokens, d)
            self.blocks = nn.Sequential(*[Layer() for _ in range(work.blocks)])
            self.norm = nn.LayerNorm(d)
            nn.init.normal_(self.tokens.weight, std=0.02)

        def forward(self, x):
            h = self.tokens(x) + self.places.weight[None]
            logits = F.linear(self.norm(self.blocks(h)), self.tokens.weight)
            return logits.transpose(1, 2)

    return Gpt()
