"""Kinds of models that people train on processors, for `breadth.py --device cpu`.

As in `breadth_models.py`, every peer computes the same. By hand, moving statistics of
batch normalization are left out: two small sums a layer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from breadth_models import CLASSES, Cell, Transformer, Weights, dense, layer_norm

__all__ = ["PROCESSOR_CELLS"]

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def _images(rng: np.random.Generator, samples: int, side: int, channels: int = 3):
    shape = (samples, side, side, channels)
    return rng.standard_normal(shape, dtype=np.float32)


def _conv(kernel, x, stride: int = 1, groups: int = 1):
    import jax

    return jax.lax.conv_general_dilated(
        *(x, kernel, (stride, stride), "SAME"),
        dimension_numbers=_LAYOUT,
        feature_group_count=groups,
    )


def _batch_norm(p, x):
    import jax
    import jax.numpy as jnp

    axes = tuple(range(x.ndim - 1))
    mean = x.mean(axes)
    factor = p["g"] * jax.lax.rsqrt(jnp.square(x - mean).mean(axes) + 1e-3)
    return x * factor + (p["b"] - mean * factor)


# ------------------------------------------------------------------ dense
@dataclasses.dataclass(frozen=True, kw_only=True)
class ResidualTable(Cell):
    """Blocks of normalization, ReLU, dropout and a dense layer, with residuals.

    Attributes:
        blocks, width: Of the blocks; 32 columns come in.
        norm: Whether they normalize by the batch.
        rate: Of dropout.
    """

    width: int = 256
    blocks: int = 4
    norm: bool = True
    rate: float = 0.0
    batch: int = 256
    samples: int = 51_200

    @property
    def random(self) -> bool:
        return self.rate > 0

    def inputs(self, rng, samples):
        return rng.standard_normal((samples, 32), dtype=np.float32)

    def keras_like(self, k):
        layers = k.layers
        x = k.Input((32,))
        h = layers.Dense(self.width)(x)
        for _ in range(self.blocks):
            z = layers.BatchNormalization()(h) if self.norm else h
            z = layers.Activation("relu")(z)
            if self.rate:
                z = layers.Dropout(self.rate)(z)
            h = layers.Add()([h, layers.Dense(self.width)(z)])
        return k.Model(x, layers.Dense(CLASSES)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, d = Weights(), self.width
        params = {
            "in": make.dense(32, d),
            "blocks": [
                {"norm": make.norm(d), "out": make.dense(d, d)}
                for _ in range(self.blocks)
            ],
            "out": make.dense(d, CLASSES),
        }

        def forward(p, x, key=None):
            h = dense(p["in"], x)
            for i, block in enumerate(p["blocks"]):
                z = jax.nn.relu(_batch_norm(block["norm"], h) if self.norm else h)
                if key is not None:
                    share = 1 - self.rate
                    mask = jax.random.bernoulli(
                        jax.random.fold_in(key, i), share, z.shape
                    )
                    z = jnp.where(mask, z / share, 0)
                h = h + dense(block["out"], z)
            return dense(p["out"], h)

        return params, forward

    def torch_module(self):
        from torch import nn

        cell, d = self, self.width

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                parts: list[Any] = [nn.BatchNorm1d(d, 1e-3)] if cell.norm else []
                parts += [nn.ReLU()] + [nn.Dropout(cell.rate)] * bool(cell.rate)
                self.body = nn.Sequential(*parts, nn.Linear(d, d))

            def forward(self, x):
                return x + self.body(x)

        blocks = [Block() for _ in range(self.blocks)]
        return nn.Sequential(nn.Linear(32, d), *blocks, nn.Linear(d, CLASSES))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Autoencoder(Cell):
    """A variational autoencoder of 784 numbers: 512, 256, a code of 32, and back."""

    batch: int = 128
    samples: int = 25_600
    values = True
    extra = True

    @property
    def random(self) -> bool:
        return True

    def inputs(self, rng, samples):
        return rng.random((samples, 784), dtype=np.float32)

    def targets(self, rng, samples):
        return np.random.default_rng(0).random((samples, 784), dtype=np.float32)

    def keras_like(self, k):
        layers, ops = k.layers, k.ops

        class Sampling(layers.Layer):
            def __init__(self):
                super().__init__()
                self.seeds = k.random.SeedGenerator(0)

            def call(self, mean, spread):
                divergence = ops.square(mean) + ops.exp(spread) - 1 - spread
                self.add_loss(1e-3 * ops.mean(divergence))
                noise = k.random.normal(ops.shape(mean), seed=self.seeds)
                return mean + ops.exp(spread / 2) * noise

        x = k.Input((784,))
        h = layers.Dense(512, activation="relu")(x)
        h = layers.Dense(256, activation="relu")(h)
        h = Sampling()(layers.Dense(32)(h), layers.Dense(32)(h))
        h = layers.Dense(256, activation="relu")(h)
        h = layers.Dense(512, activation="relu")(h)
        return k.Model(x, layers.Dense(784)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make = Weights()
        pairs = {
            "a": (784, 512), "b": (512, 256), "mean": (256, 32), "spread": (256, 32),
            "c": (32, 256), "d": (256, 512), "out": (512, 784),
        }  # fmt: skip
        params = {name: make.dense(*sizes) for name, sizes in pairs.items()}

        def forward(p, x, key):
            h = jax.nn.relu(dense(p["b"], jax.nn.relu(dense(p["a"], x))))
            mean, spread = dense(p["mean"], h), dense(p["spread"], h)
            divergence = jnp.square(mean) + jnp.exp(spread) - 1 - spread
            h = mean + jnp.exp(spread / 2) * jax.random.normal(key, mean.shape)
            h = jax.nn.relu(dense(p["d"], jax.nn.relu(dense(p["c"], h))))
            return dense(p["out"], h), 1e-3 * divergence.mean()

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                sizes = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU())
                self.down = nn.Sequential(*sizes)
                self.mean, self.spread = nn.Linear(256, 32), nn.Linear(256, 32)
                self.up = nn.Sequential(
                    nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(),
                    nn.Linear(512, 784),
                )  # fmt: skip

            def forward(self, x):
                h = self.down(x)
                mean, spread = self.mean(h), self.spread(h)
                divergence = mean.square() + spread.exp() - 1 - spread
                h = mean + (spread / 2).exp() * torch.randn_like(mean)
                return self.up(h), 1e-3 * divergence.mean()

        return Net()


# ------------------------------------------------------------------ sequences
@dataclasses.dataclass(frozen=True, kw_only=True)
class WaveNet(Cell):
    """Gated causal convolutions with dilations 1 to 128, a class for each step."""

    steps: int = 256
    width: int = 32
    layers: int = 8
    batch: int = 32
    samples: int = 1_600

    def inputs(self, rng, samples):
        return rng.standard_normal((samples, self.steps, 1), dtype=np.float32)

    def targets(self, rng, samples):
        return rng.integers(0, CLASSES, (samples, self.steps)).astype(np.int32)

    def keras_like(self, k):
        layers, d = k.layers, self.width
        x = k.Input((self.steps, 1))
        h, total = layers.Dense(d)(x), []
        for i in range(self.layers):
            wide = {"padding": "causal", "dilation_rate": 2**i}
            a = layers.Conv1D(d, 2, activation="tanh", **wide)(h)
            b = layers.Conv1D(d, 2, activation="sigmoid", **wide)(h)
            z = layers.Multiply()([a, b])
            total.append(layers.Conv1D(d, 1)(z))
            if i < self.layers - 1:
                h = layers.Add()([h, layers.Conv1D(d, 1)(z)])
        h = layers.Activation("relu")(layers.Add()(total))
        return k.Model(x, layers.Conv1D(CLASSES, 1)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, d = Weights(), self.width
        params = {
            "in": make.dense(1, d),
            "layers": [
                {
                    "a": make.normal(2, d, d), "ab": jnp.zeros(d),
                    "b": make.normal(2, d, d), "bb": jnp.zeros(d),
                    "skip": make.dense(d, d), "res": make.dense(d, d),
                }
                for _ in range(self.layers)
            ],
            "out": make.dense(d, CLASSES),
        }  # fmt: skip

        def causal(kernel, bias, x, dilation):
            y = jax.lax.conv_general_dilated(
                *(x, kernel, (1,), [(dilation, 0)]),
                rhs_dilation=(dilation,),
                dimension_numbers=("NWC", "WIO", "NWC"),
            )
            return y + bias

        def forward(p, x):
            h, total = dense(p["in"], x), 0.0
            for i, q in enumerate(p["layers"]):
                a = jnp.tanh(causal(q["a"], q["ab"], h, 2**i))
                z = a * jax.nn.sigmoid(causal(q["b"], q["bb"], h, 2**i))
                total = total + dense(q["skip"], z)
                if i < self.layers - 1:
                    h = h + dense(q["res"], z)
            return dense(p["out"], jax.nn.relu(total))

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn
        from torch.nn import functional as F

        cell, d = self, self.width

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.out = nn.Conv1d(1, d, 1), nn.Conv1d(d, CLASSES, 1)
                kinds = {"a": 2, "b": 2, "skip": 1, "res": 1}
                self.layers = nn.ModuleList(
                    nn.ModuleDict(
                        {
                            name: nn.Conv1d(d, d, n, dilation=2**i if n == 2 else 1)
                            for name, n in kinds.items()
                        }
                    )
                    for i in range(cell.layers)
                )

            def forward(self, x):
                h, total = self.first(x.transpose(1, 2)), 0.0
                for i, part in enumerate(self.layers):
                    wide = F.pad(h, (2**i, 0))
                    z = torch.tanh(part["a"](wide)) * torch.sigmoid(part["b"](wide))
                    total = total + part["skip"](z)
                    if i < cell.layers - 1:
                        h = h + part["res"](z)
                return self.out(F.relu(total))  # [batch, classes, steps]

        return Net()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translator(Cell):
    """A GRU that reads and one that writes with attention; 1,000 tokens each."""

    steps: int = 24
    units: int = 128
    batch: int = 64
    samples: int = 3_200
    vocabulary = 1000

    def inputs(self, rng, samples):
        return rng.integers(1, 1000, (samples, 2, self.steps)).astype(np.int32)

    def targets(self, rng, samples):
        return rng.integers(0, 1000, (samples, self.steps)).astype(np.int32)

    def keras_like(self, k):
        layers, n = k.layers, self.units
        x = k.Input((2, self.steps), dtype="int32")
        source = layers.Embedding(1000, n)(x[:, 0])
        target = layers.Embedding(1000, n)(x[:, 1])
        read, state = layers.GRU(n, return_sequences=True, return_state=True)(source)
        write = layers.GRU(n, return_sequences=True)(target, initial_state=state)
        seen = layers.Attention()([write, read])
        return k.Model(x, layers.Dense(1000)(layers.Concatenate()([write, seen])))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, n = Weights(), self.units

        def gru() -> dict[str, Any]:
            return {"in": make.dense(n, 3 * n), "rec": make.dense(n, 3 * n)}

        params = {
            "source": make.normal(1000, n), "target": make.normal(1000, n),
            "read": gru(), "write": gru(), "out": make.dense(2 * n, 1000),
        }  # fmt: skip

        def run(p, x, state):
            def step(h, a):
                r = dense(p["rec"], h)
                (zx, rx, nx), (zh, rh, nh) = (jnp.split(v, 3, -1) for v in (a, r))
                update = jax.nn.sigmoid(zx + zh)
                new = jnp.tanh(nx + jax.nn.sigmoid(rx + rh) * nh)
                h = update * h + (1 - update) * new
                return h, h

            last, outputs = jax.lax.scan(step, state, dense(p["in"], x).swapaxes(0, 1))
            return outputs.swapaxes(0, 1), last

        def forward(p, x):
            zero = jnp.zeros((len(x), n))
            read, state = run(p["read"], p["source"][x[:, 0]], zero)
            write, _ = run(p["write"], p["target"][x[:, 1]], state)
            weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", write, read))
            return dense(p["out"], jnp.concatenate([write, weights @ read], -1))

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn

        n = self.units

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.source, self.target = nn.Embedding(1000, n), nn.Embedding(1000, n)
                self.read = nn.GRU(n, n, batch_first=True)
                self.write = nn.GRU(n, n, batch_first=True)
                self.out = nn.Linear(2 * n, 1000)

            def forward(self, x):
                read, state = self.read(self.source(x[:, 0]))
                write, _ = self.write(self.target(x[:, 1]), state)
                weights = (write @ read.transpose(1, 2)).softmax(-1)
                h = self.out(torch.cat([write, weights @ read], -1))
                return h.transpose(1, 2)  # [batch, tokens, steps]

        return Net()


# ------------------------------------------------------------------ images
@dataclasses.dataclass(frozen=True, kw_only=True)
class Diffusion(Cell):
    """A U-Net that predicts the noise of an image, told the time by one number."""

    side: int = 32
    channels: tuple[int, ...] = (32, 64, 128)
    batch: int = 32
    samples: int = 480
    values = True

    def inputs(self, rng, samples):  # the fourth channel is the time
        return _images(rng, samples, self.side, 4)

    def targets(self, rng, samples):
        return _images(rng, samples, self.side)

    def keras_like(self, k):
        layers = k.layers

        def block(h, time, n):
            z = layers.Conv2D(n, 3, padding="same", activation="swish")(h)
            z = layers.Add()([z, layers.Dense(n)(time)])
            return layers.Conv2D(n, 3, padding="same", activation="swish")(z)

        x = k.Input((self.side, self.side, 4))
        time = layers.Dense(64, activation="swish")(x[:, :1, :1, 3:])
        h, skips = x[..., :3], []
        for n in self.channels[:-1]:
            skips.append(block(h, time, n))
            h = layers.AveragePooling2D()(skips[-1])
        h = block(h, time, self.channels[-1])
        for n, skip in zip(self.channels[-2::-1], skips[::-1], strict=True):
            h = layers.Concatenate()([layers.UpSampling2D()(h), skip])
            h = block(h, time, n)
        return k.Model(x, layers.Conv2D(3, 1)(h))

    def _plan(self) -> list[tuple[int, int]]:
        """The channels into and out of each block."""
        down = list(zip((3, *self.channels), self.channels, strict=False))
        back = self.channels[::-1]
        return down + [(a + b, b) for a, b in zip(back, back[1:], strict=False)]

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make = Weights()
        params = {
            "time": make.dense(1, 64),
            "blocks": [
                {
                    "a": make.normal(3, 3, a, b), "ab": jnp.zeros(b),
                    "t": make.dense(64, b), "b": make.normal(3, 3, b, b),
                    "bb": jnp.zeros(b),
                }
                for a, b in self._plan()
            ],
            "out": make.dense(self.channels[0], 3),
        }  # fmt: skip

        def forward(p, x):
            swish = jax.nn.silu
            time, h = swish(dense(p["time"], x[:, :1, :1, 3:])), x[..., :3]
            skips: list = []
            for i, q in enumerate(p["blocks"]):
                if i >= len(self.channels):
                    h = jnp.concatenate([h.repeat(2, 1).repeat(2, 2), skips.pop()], -1)
                h = swish(_conv(q["a"], h) + q["ab"]) + dense(q["t"], time)
                h = swish(_conv(q["b"], h) + q["bb"])
                if i < len(self.channels) - 1:
                    skips.append(h)
                    b, s, _, n = h.shape
                    h = h.reshape(b, s // 2, 2, s // 2, 2, n).mean((2, 4))
            return dense(p["out"], h)

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn
        from torch.nn import functional as F

        cell = self

        class Block(nn.Module):
            def __init__(self, a, b):
                super().__init__()
                self.a, self.b = nn.Conv2d(a, b, 3, 1, 1), nn.Conv2d(b, b, 3, 1, 1)
                self.t = nn.Linear(64, b)

            def forward(self, x, time):
                h = F.silu(self.a(x)) + self.t(time)[:, :, None, None]
                return F.silu(self.b(h))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.time = nn.Linear(1, 64)
                self.blocks = nn.ModuleList(Block(a, b) for a, b in cell._plan())
                self.out = nn.Conv2d(cell.channels[0], 3, 1)

            def forward(self, x):
                time = F.silu(self.time(x[:, 0, 0, 3:]))
                h, skips = x[..., :3].permute(0, 3, 1, 2), []
                for i, block in enumerate(self.blocks):
                    if i >= len(cell.channels):
                        h = torch.cat(
                            [F.interpolate(h, scale_factor=2), skips.pop()], 1
                        )
                    h = block(h, time)
                    if i < len(cell.channels) - 1:
                        skips.append(h)
                        h = F.avg_pool2d(h, 2)
                return self.out(h).permute(0, 2, 3, 1)

        return Net()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvNeXt(Cell):
    """Depthwise 7 × 7 convolutions, layer normalization, two products of a channel."""

    side: int = 64
    width: int = 96
    blocks: int = 4
    batch: int = 32
    samples: int = 320

    def inputs(self, rng, samples):
        return _images(rng, samples, self.side)

    def keras_like(self, k):
        layers, d = k.layers, self.width
        x = k.Input((self.side, self.side, 3))
        h = layers.Conv2D(d, 4, 4)(x)
        for _ in range(self.blocks):
            z = layers.DepthwiseConv2D(7, padding="same")(h)
            z = layers.LayerNormalization(epsilon=1e-6)(z)
            z = layers.Dense(4 * d, activation="gelu")(z)
            h = layers.Add()([h, layers.Dense(d)(z)])
        return k.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(h)))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, d = Weights(), self.width
        params = {
            "first": make.normal(4, 4, 3, d), "bias": jnp.zeros(d),
            "blocks": [
                {
                    "conv": make.normal(7, 7, 1, d), "bias": jnp.zeros(d),
                    "norm": make.norm(d), "a": make.dense(d, 4 * d),
                    "b": make.dense(4 * d, d),
                }
                for _ in range(self.blocks)
            ],
            "out": make.dense(d, CLASSES),
        }  # fmt: skip

        def forward(p, x):
            h = _conv(p["first"], x, 4) + p["bias"]
            for q in p["blocks"]:
                z = layer_norm(q["norm"], _conv(q["conv"], h, 1, d) + q["bias"])
                z = jax.nn.gelu(dense(q["a"], z), approximate=False)
                h = h + dense(q["b"], z)
            return dense(p["out"], h.mean((1, 2)))

        return params, forward

    def torch_module(self):
        from torch import nn
        from torch.nn import functional as F

        cell, d = self, self.width

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm = (
                    nn.Conv2d(d, d, 7, 1, 3, groups=d),
                    nn.LayerNorm(d),
                )
                self.a, self.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

            def forward(self, x):
                z = self.norm(self.conv(x).permute(0, 2, 3, 1))
                return x + self.b(F.gelu(self.a(z))).permute(0, 3, 1, 2)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.out = nn.Conv2d(3, d, 4, 4), nn.Linear(d, CLASSES)
                self.blocks = nn.Sequential(*[Block() for _ in range(cell.blocks)])

            def forward(self, x):
                return self.out(
                    self.blocks(self.first(x.permute(0, 3, 1, 2))).mean((2, 3))
                )

        return Net()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MBConv(Cell):
    """EfficientNet's blocks: widened, depthwise, squeezed and excited, narrowed."""

    side: int = 64
    width: int = 32
    blocks: int = 4
    batch: int = 32
    samples: int = 320

    def inputs(self, rng, samples):
        return _images(rng, samples, self.side)

    def keras_like(self, k):
        layers, d = k.layers, self.width

        def norm(h):
            return layers.BatchNormalization()(h)

        x = k.Input((self.side, self.side, 3))
        h = layers.Activation("swish")(
            norm(layers.Conv2D(d, 3, 2, padding="same", use_bias=False)(x))
        )
        for _ in range(self.blocks):
            z = norm(layers.Conv2D(4 * d, 1, use_bias=False)(h))
            z = layers.Activation("swish")(z)
            z = norm(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(z))
            z = layers.Activation("swish")(z)
            s = layers.GlobalAveragePooling2D(keepdims=True)(z)
            s = layers.Conv2D(d // 4, 1, activation="swish")(s)
            s = layers.Conv2D(4 * d, 1, activation="sigmoid")(s)
            z = norm(layers.Conv2D(d, 1, use_bias=False)(layers.Multiply()([z, s])))
            h = layers.Add()([h, z])
        return k.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(h)))

    def hand_written(self):
        import jax

        make, d = Weights(), self.width
        params = {
            "first": make.normal(3, 3, 3, d), "norm": make.norm(d),
            "blocks": [
                {
                    "wide": make.normal(1, 1, d, 4 * d), "n1": make.norm(4 * d),
                    "conv": make.normal(3, 3, 1, 4 * d), "n2": make.norm(4 * d),
                    "s1": make.dense(4 * d, d // 4), "s2": make.dense(d // 4, 4 * d),
                    "narrow": make.normal(1, 1, 4 * d, d), "n3": make.norm(d),
                }
                for _ in range(self.blocks)
            ],
            "out": make.dense(d, CLASSES),
        }  # fmt: skip

        def forward(p, x):
            swish = jax.nn.silu
            h = swish(_batch_norm(p["norm"], _conv(p["first"], x, 2)))
            for q in p["blocks"]:
                z = swish(_batch_norm(q["n1"], _conv(q["wide"], h)))
                z = swish(_batch_norm(q["n2"], _conv(q["conv"], z, 1, 4 * d)))
                s = swish(dense(q["s1"], z.mean((1, 2), keepdims=True)))
                z = z * jax.nn.sigmoid(dense(q["s2"], s))
                h = h + _batch_norm(q["n3"], _conv(q["narrow"], z))
            return dense(p["out"], h.mean((1, 2)))

        return params, forward

    def torch_module(self):
        from torch import nn

        cell, d = self, self.width

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.wide = nn.Sequential(
                    nn.Conv2d(d, 4 * d, 1, bias=False),
                    nn.BatchNorm2d(4 * d),
                    nn.SiLU(),
                    nn.Conv2d(4 * d, 4 * d, 3, 1, 1, groups=4 * d, bias=False),
                    nn.BatchNorm2d(4 * d),
                    nn.SiLU(),
                )  # fmt: skip
                self.squeeze = nn.Sequential(
                    nn.AdaptiveAvgPool2d(1), nn.Conv2d(4 * d, d // 4, 1), nn.SiLU(),
                    nn.Conv2d(d // 4, 4 * d, 1), nn.Sigmoid(),
                )  # fmt: skip
                narrow = (nn.Conv2d(4 * d, d, 1, bias=False), nn.BatchNorm2d(d))
                self.narrow = nn.Sequential(*narrow)

            def forward(self, x):
                z = self.wide(x)
                return x + self.narrow(z * self.squeeze(z))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                first = nn.Conv2d(3, d, 3, 2, 1, bias=False)
                self.first = nn.Sequential(first, nn.BatchNorm2d(d), nn.SiLU())
                self.blocks = nn.Sequential(*[Block() for _ in range(cell.blocks)])
                self.out = nn.Linear(d, CLASSES)

            def forward(self, x):
                h = self.blocks(self.first(x.permute(0, 3, 1, 2)))
                return self.out(h.mean((2, 3)))

        return Net()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNet50(Cell):
    """He et al.'s network, stride in the 3 × 3 convolution of a block."""

    side: int = 160
    batch: int = 16
    samples: int = 64
    sizes = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))

    def inputs(self, rng, samples):
        return _images(rng, samples, self.side)

    def keras_like(self, k):
        layers = k.layers

        def conv(h, n, size, stride=1, active=True):
            options = {"padding": "same", "use_bias": False}
            h = layers.Conv2D(n, size, stride, **options)(h)
            h = layers.BatchNormalization()(h)
            return layers.Activation("relu")(h) if active else h

        x = k.Input((self.side, self.side, 3))
        h = layers.MaxPooling2D(3, 2, padding="same")(conv(x, 64, 7, 2))
        for n, blocks, stride in self.sizes:
            for i in range(blocks):
                s = stride if i == 0 else 1
                z = conv(conv(conv(h, n, 1), n, 3, s), 4 * n, 1, active=False)
                h = conv(h, 4 * n, 1, s, active=False) if i == 0 else h
                h = layers.Activation("relu")(layers.Add()([h, z]))
        return k.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(h)))

    def hand_written(self):
        import jax

        make = Weights()

        def unit(size, a, b):
            return {"conv": make.normal(size, size, a, b), "norm": make.norm(b)}

        params: dict[str, Any] = {"first": unit(7, 3, 64), "blocks": []}
        width = 64
        for n, blocks, _ in self.sizes:
            for i in range(blocks):
                block = {
                    "a": unit(1, width, n),
                    "b": unit(3, n, n),
                    "c": unit(1, n, 4 * n),
                }
                if i == 0:
                    block["skip"] = unit(1, width, 4 * n)
                params["blocks"].append(block)
                width = 4 * n
        params["out"] = make.dense(width, CLASSES)
        strides = [s if i == 0 else 1 for _, n, s in self.sizes for i in range(n)]

        def run(p, x, stride=1):
            return _batch_norm(p["norm"], _conv(p["conv"], x, stride))

        def forward(p, x):
            relu = jax.nn.relu
            h = relu(run(p["first"], x, 2))
            window, step = (1, 3, 3, 1), (1, 2, 2, 1)
            low = -float("inf")
            h = jax.lax.reduce_window(h, low, jax.lax.max, window, step, "SAME")
            for q, stride in zip(p["blocks"], strides, strict=True):
                z = run(q["c"], relu(run(q["b"], relu(run(q["a"], h)), stride)))
                h = relu(z + (run(q["skip"], h, stride) if "skip" in q else h))
            return dense(p["out"], h.mean((1, 2)))

        return params, forward

    def torch_module(self):
        from torch import nn

        def conv(a, b, size, stride=1, active=True):
            kernel = nn.Conv2d(a, b, size, stride, size // 2, bias=False)
            return nn.Sequential(kernel, nn.BatchNorm2d(b), *[nn.ReLU()] * active)

        class Block(nn.Module):
            def __init__(self, a, n, stride, first):
                super().__init__()
                self.body = nn.Sequential(
                    conv(a, n, 1), conv(n, n, 3, stride), conv(n, 4 * n, 1, 1, False)
                )
                whole = conv(a, 4 * n, 1, stride, False) if first else nn.Identity()
                self.skip, self.active = whole, nn.ReLU()

            def forward(self, x):
                return self.active(self.body(x) + self.skip(x))

        cell = self

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                parts: list[Any] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
                width = 64
                for n, blocks, stride in cell.sizes:
                    for i in range(blocks):
                        parts.append(Block(width, n, stride if i == 0 else 1, i == 0))
                        width = 4 * n
                self.body, self.out = nn.Sequential(*parts), nn.Linear(width, CLASSES)

            def forward(self, x):
                return self.out(self.body(x.permute(0, 3, 1, 2)).mean((2, 3)))

        return Net()


PROCESSOR_CELLS: dict[str, Cell] = {
    "table-residual": ResidualTable(norm=False),
    "table-batch-norm": ResidualTable(),
    "table-batch-norm-dropout": ResidualTable(rate=0.1),
    "vae-784": Autoencoder(),
    "wavenet-256": WaveNet(),
    "seq2seq-gru-128": Translator(),
    "diffusion-32": Diffusion(),
    "convnext-96": ConvNeXt(),
    "mbconv-32": MBConv(),
    "resnet50-160": ResNet50(),
    "bert-6x384-128": Transformer(
        tokens=128, width=384, heads=6, blocks=6, batch=16, samples=160
    ),
}
