"""The models of `distribution.py`: each for Keras and ExBurn, and in PyTorch.

Rows of a batch and of an epoch are those of one device: twice as many devices train
on twice as many.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import large_models
import numpy as np
import workloads
from breadth_models import Cell, Recommender
from large_models import Large

__all__ = ["TINY", "WORKS"]

LABELS = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gpt(Cell):
    """A GPT of `large_models.py`.

    Attributes:
        work: Its vocabulary, tokens, width, blocks and heads.
        parts: The classes of PyTorch's modules that FSDP shards one by one.
    """

    work: Large
    dtype: str = "bfloat16"
    parts = ("Layer",)

    def data(self, samples):
        distinct = large_models.data(self.work, min(samples, 512))
        return tuple(np.resize(part, (samples, self.work.tokens)) for part in distinct)

    def keras_like(self, k):
        places = k.layers.Lambda(
            lambda t: k.ops.broadcast_to(k.ops.arange(t.shape[1]), k.ops.shape(t))
        )
        return large_models.keras_like(self.work, k, places)

    def torch_module(self):
        return large_models.torch_module(self.work)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNet(Cell):
    """A residual network of bottlenecks, strided in their 3 × 3 convolutions.

    He et al. (Deep Residual Learning, 2015) stride the first one of each; in the 3 × 3
    it is what libraries ship.

    Attributes:
        blocks: Of each stage.
        side: Of the square images.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    side: int = 224
    dtype: str = "bfloat16"
    parts = ("Bottleneck",)

    def data(self, samples):
        rng = np.random.default_rng(0)
        shape = (self.side, self.side, 3)
        x = rng.standard_normal((min(samples, 128), *shape), dtype=np.float32)
        y = rng.integers(0, LABELS, samples).astype(np.int32)
        return np.resize(x, (samples, *shape)), y

    def keras_like(self, k):
        layers = k.layers
        x = k.Input((self.side, self.side, 3))

        def convolved(h, filters, size=1, stride=1):
            h = layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(h)
            return layers.BatchNormalization()(h)

        h = layers.ReLU()(convolved(x, 64, 7, 2))
        h = layers.MaxPooling2D(3, 2, padding="same")(h)
        for stage, blocks in enumerate(self.blocks):
            filters = 64 * 2**stage
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                skip = h if block else convolved(h, 4 * filters, 1, stride)
                z = layers.ReLU()(convolved(h, filters))
                z = layers.ReLU()(convolved(z, filters, 3, stride))
                h = layers.ReLU()(layers.Add()([skip, convolved(z, 4 * filters)]))
        return k.Model(x, layers.Dense(LABELS)(layers.GlobalAveragePooling2D()(h)))

    def torch_module(self):
        import torch
        from torch import nn

        def unit(n_in, filters, size=1, stride=1):
            conv = nn.Conv2d(n_in, filters, size, stride, size // 2, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(filters))

        class Bottleneck(nn.Module):
            def __init__(self, n_in, filters, stride):
                super().__init__()
                self.a, self.b = unit(n_in, filters), unit(filters, filters, 3, stride)
                self.c = unit(filters, 4 * filters)
                plain = stride == 1 and n_in == 4 * filters
                self.skip = None if plain else unit(n_in, 4 * filters, 1, stride)

            def forward(self, x):
                skip = x if self.skip is None else self.skip(x)
                z = torch.relu(self.b(torch.relu(self.a(x))))
                return torch.relu(skip + self.c(z))

        layers: list[Any] = [unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        n_in = 64
        for stage, blocks in enumerate(self.blocks):
            filters = 64 * 2**stage
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(n_in, filters, stride))
                n_in = 4 * filters
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, LABELS)]
        return nn.Sequential(*layers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mlp(Cell):
    """The MLP of `workloads.py`."""

    parts = ()

    def data(self, samples):
        x, _ = workloads.data("mlp", min(samples, 8_192))
        y = np.random.default_rng(0).integers(0, 10, samples).astype(np.int32)
        return np.resize(x, (samples, 784)), y

    def keras_like(self, k):
        return workloads.keras_like("mlp", k, k.layers, None)

    def torch_module(self):
        from torch import nn

        sizes = (784, 256, 128)
        hidden = [
            layer
            for a, b in zip(sizes, sizes[1:], strict=False)
            for layer in (nn.Linear(a, b), nn.ReLU())
        ]
        return nn.Sequential(*hidden, nn.Linear(128, 10))


class Lookups(Recommender):
    """A recommender of `breadth_models.py`; FSDP shards it as a whole."""

    parts = ()


WORKS: dict[str, Any] = {
    "gpt2": Gpt(work=large_models.LARGE["gpt2"], batch=16, samples=512),
    "resnet50": ResNet(batch=64, samples=1_024),
    "mlp": Mlp(batch=256, samples=262_144),
    "recommender": Lookups(
        rows=1_000_000, width=64, columns=8, batch=4_096, samples=262_144
    ),
    "gpt2-medium": Gpt(
        work=Large("gpt2-medium", 0, 0, 1_024, 50_257, 1_024, 24, 16),
        batch=8, samples=128,
    ),
    # 1.3 thousand million parameters: 21 GB of weights, gradients and slots of Adam.
    "gpt-1b": Gpt(
        work=Large("gpt-1b", 0, 0, 1_024, 50_257, 2_048, 24, 16), batch=2, samples=32
    ),
}  # fmt: skip
TINY: dict[str, Any] = {
    "gpt2": Gpt(
        work=Large("tiny", 0, 0, 16, 65, 32, 2, 2),
        batch=4, samples=16, dtype="float32",
    ),
    "resnet50": ResNet(
        blocks=(1, 1), side=32, batch=4, samples=8, dtype="float32"
    ),
    "mlp": Mlp(batch=8, samples=64),
    "recommender": Lookups(rows=100, width=8, columns=4, batch=8, samples=64),
}  # fmt: skip
