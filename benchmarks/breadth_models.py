"""The kinds of models of `breadth.py`: each for Keras and ExBurn, by hand, in PyTorch.

Every peer computes the same: exact GELU, epsilons and pooling included. What is written
by hand is what a JAX user writes: plain functions of a tree of arrays, products of the
inputs of a recurrence before its scan, one product for query, key and value.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

__all__ = [
    "CELLS",
    "Cell",
    "Weights",
    "compiled_in_keras",
    "dense",
    "layer_norm",
    "loss_of",
]

CLASSES = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One model of the grid, and the data of one epoch.

    Attributes:
        batch, samples: Rows of a step and of an epoch.
        dtype: What it computes in; weights are float32.
        binary: Whether each row has one target of zero or one.
        values: Whether the targets are numbers; the loss is their mean squared error.
        extra: Whether the model adds a loss of its own, which what is written by hand
            and in PyTorch gives back beside the output.
        random: Whether it draws numbers; what is written by hand takes a key.
    """

    batch: int
    samples: int
    dtype: str = "float32"
    binary = False
    values = False
    extra = False

    @property
    def random(self) -> bool:
        return False

    def data(self, samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Random inputs and labels; throughput does not depend on their values."""
        rng = np.random.default_rng(0)
        return self.inputs(rng, samples), self.targets(rng, samples)

    def inputs(self, rng: np.random.Generator, samples: int) -> np.ndarray:
        raise NotImplementedError

    def targets(self, rng: np.random.Generator, samples: int) -> np.ndarray:
        return rng.integers(0, CLASSES, samples).astype(np.int32)

    def keras_like(self, k: Any) -> Any:
        """The model in the vocabulary that Keras and ExBurn (``k``) share."""
        raise NotImplementedError

    def hand_written(self) -> tuple[Any, Any]:
        """Parameters, and a pure ``forward(params, x)`` to float32 outputs."""
        raise NotImplementedError

    def torch_module(self) -> Any:
        raise NotImplementedError


def compiled_in_keras(cell: Cell, **more: Any) -> Any:
    """The model of a cell in Keras on JAX, compiled with these options."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    policy = "float32" if cell.dtype == "float32" else "mixed_bfloat16"
    keras.mixed_precision.set_global_policy(policy)
    model = cell.keras_like(keras)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), **loss_of(cell, keras), **more)
    return model


def loss_of(cell: Cell, k: Any) -> dict[str, Any]:
    """The loss and the metric of a cell, for ``compile`` of Keras or ExBurn (``k``)."""
    if cell.values:
        return {"loss": "mse", "metrics": ["mae"]}
    kind = k.losses.SparseCategoricalCrossentropy
    kind = k.losses.BinaryCrossentropy if cell.binary else kind
    return {"loss": kind(from_logits=True), "metrics": ["accuracy"]}


class Weights:
    """Arrays of a model by hand; throughput does not depend on their values."""

    def __init__(self):
        self._rng = np.random.default_rng(0)

    def normal(self, *shape: int) -> Any:
        import jax.numpy as jnp

        size = np.prod(shape[:-1]) if len(shape) > 1 else 1
        values = self._rng.standard_normal(shape, dtype=np.float32)
        return jnp.asarray(values / np.float32(np.sqrt(size)))

    def dense(self, n_in: int, n_out: int) -> dict:
        import jax.numpy as jnp

        return {"w": self.normal(n_in, n_out), "b": jnp.zeros(n_out)}

    def norm(self, size: int) -> dict:
        import jax.numpy as jnp

        return {"g": jnp.ones(size), "b": jnp.zeros(size)}


def dense(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def layer_norm(p, x):
    import jax
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(wide.var(-1, keepdims=True) + 1e-6)
    return ((wide - mean) * scale * p["g"] + p["b"]).astype(x.dtype)


# ------------------------------------------------------------------ embeddings
@dataclasses.dataclass(frozen=True, kw_only=True)
class Recommender(Cell):
    """Integer columns, each looked up in one shared table or in its own; two layers.

    Attributes:
        rows: Of a table.
        width: Of a vector.
        columns: Integers of a sample.
        shared: Whether all columns look in one table.
        each: Whether the model's code looks each of them up by itself.
    """

    rows: int
    width: int
    columns: int
    shared: bool = True
    each: bool = False
    batch: int = 512
    binary = True

    def inputs(self, rng, samples):
        return rng.integers(0, self.rows, (samples, self.columns)).astype(np.int32)

    def targets(self, rng, samples):
        return rng.integers(0, 2, samples).astype(np.float32)

    def keras_like(self, k):
        layers = k.layers
        x = k.Input((self.columns,), dtype="int32")
        table = layers.Embedding(self.rows, self.width) if self.shared else None
        if table is not None and not self.each:
            h = layers.Flatten()(table(x))
        else:
            parts = []
            for i in range(self.columns):
                look = table or layers.Embedding(self.rows, self.width)
                parts.append(look(x[:, i]))
            h = layers.Concatenate()(parts)
        for units in (128, 64):
            h = layers.Dense(units, activation="relu")(h)
        return k.Model(x, layers.Dense(1)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, count = Weights(), 1 if self.shared else self.columns
        sizes = (self.columns * self.width, 128, 64, 1)
        params = {
            "tables": [make.normal(self.rows, self.width) for _ in range(count)],
            "layers": [
                make.dense(a, b) for a, b in zip(sizes, sizes[1:], strict=False)
            ],
        }

        def forward(p, x):
            if self.shared:
                h = p["tables"][0][x].reshape(len(x), -1)
            else:
                rows = [table[x[:, i]] for i, table in enumerate(p["tables"])]
                h = jnp.concatenate(rows, -1)
            for layer in p["layers"][:-1]:
                h = jax.nn.relu(dense(layer, h))
            return dense(p["layers"][-1], h)[:, 0]

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn

        cell = self

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                count = 1 if cell.shared else cell.columns
                self.tables = nn.ModuleList(
                    nn.Embedding(cell.rows, cell.width) for _ in range(count)
                )
                self.top = nn.Sequential(
                    nn.Linear(cell.columns * cell.width, 128), nn.ReLU(),
                    nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1),
                )  # fmt: skip

            def forward(self, x):
                if cell.shared:
                    h = self.tables[0](x).flatten(1)
                else:
                    rows = [table(x[:, i]) for i, table in enumerate(self.tables)]
                    h = torch.cat(rows, -1)
                return self.top(h)[:, 0]

        return Net()


# ------------------------------------------------------------------ transformers
@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer(Cell):
    """A classifier of pre-normalized blocks over tokens, or over an image's patches.

    Attributes:
        tokens: Positions.
        width, heads, blocks: Of the blocks.
        patch: Side of the square patches of an image that a convolution embeds; 0 for
            tokens out of a vocabulary of 1,000.
    """

    tokens: int
    width: int
    blocks: int
    heads: int
    patch: int = 0

    @property
    def _side(self) -> int:
        return int(self.tokens**0.5) * self.patch

    def inputs(self, rng, samples):
        if self.patch:
            shape = (samples, self._side, self._side, 3)
            return rng.standard_normal(shape, dtype=np.float32)
        return rng.integers(0, 1000, (samples, self.tokens)).astype(np.int32)

    def keras_like(self, k):
        layers, d = k.layers, self.width
        if self.patch:
            x = k.Input((self._side, self._side, 3))
            h = layers.Conv2D(d, self.patch, self.patch)(x)
            h = layers.Reshape((self.tokens, d))(h)
        else:
            x = k.Input((self.tokens,), dtype="int32")
            h = layers.Embedding(1000, d)(x)
        for _ in range(self.blocks):
            z = layers.LayerNormalization(epsilon=1e-6)(h)
            attend = layers.MultiHeadAttention(self.heads, d // self.heads)
            h = layers.Add()([h, attend(z, z)])
            z = layers.LayerNormalization(epsilon=1e-6)(h)
            z = layers.Dense(4 * d, activation="gelu")(z)
            h = layers.Add()([h, layers.Dense(d)(z)])
        h = layers.LayerNormalization(epsilon=1e-6)(h)
        h = layers.GlobalAveragePooling1D()(h)
        return k.Model(x, layers.Dense(CLASSES)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, d = Weights(), self.width
        first = (self.patch, self.patch, 3, d) if self.patch else (1000, d)
        params = {
            "first": make.normal(*first),
            "blocks": [
                {
                    "n1": make.norm(d), "qkv": make.dense(d, 3 * d),
                    "o": make.dense(d, d), "n2": make.norm(d),
                    "f1": make.dense(d, 4 * d), "f2": make.dense(4 * d, d),
                }
                for _ in range(self.blocks)
            ],
            "norm": make.norm(d),
            "out": make.dense(d, CLASSES),
        }  # fmt: skip
        dtype = jnp.dtype(self.dtype)
        fast = jax.default_backend() == "gpu" and dtype == jnp.bfloat16

        def forward(p, x):
            if self.patch:
                h = jax.lax.conv_general_dilated(
                    x.astype(dtype), p["first"].astype(dtype), (self.patch,) * 2,
                    "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                ).reshape(len(x), self.tokens, d)  # fmt: skip
            else:
                h = p["first"].astype(dtype)[x]
            for block in p["blocks"]:
                z = dense(block["qkv"], layer_norm(block["n1"], h))
                z = z.reshape(*z.shape[:2], 3 * self.heads, d // self.heads)
                z = jax.nn.dot_product_attention(
                    *jnp.split(z, 3, axis=2), implementation="cudnn" if fast else None
                )
                h = h + dense(block["o"], z.reshape(h.shape))
                z = dense(block["f1"], layer_norm(block["n2"], h))
                h = h + dense(block["f2"], jax.nn.gelu(z, approximate=False))
            h = layer_norm(p["norm"], h).mean(1)
            return dense(p["out"], h).astype(jnp.float32)

        return params, forward

    def torch_module(self):
        from torch import nn
        from torch.nn import functional as F

        cell, d = self, self.width

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.n1, self.n2 = nn.LayerNorm(d, 1e-6), nn.LayerNorm(d, 1e-6)
                self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
                self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

            def forward(self, x):
                shape = (*x.shape[:2], cell.heads, d // cell.heads)
                parts = self.qkv(self.n1(x)).split(d, 2)
                q, k, v = (p.view(shape).transpose(1, 2) for p in parts)
                a = F.scaled_dot_product_attention(q, k, v)
                x = x + self.o(a.transpose(1, 2).reshape(x.shape))
                return x + self.f2(F.gelu(self.f1(self.n2(x))))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                if cell.patch:
                    self.first: Any = nn.Conv2d(3, d, cell.patch, cell.patch)
                else:
                    self.first = nn.Embedding(1000, d)
                self.blocks = nn.Sequential(*[Block() for _ in range(cell.blocks)])
                self.norm, self.out = nn.LayerNorm(d, 1e-6), nn.Linear(d, CLASSES)

            def forward(self, x):
                if cell.patch:
                    h = self.first(x.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
                else:
                    h = self.first(x)
                return self.out(self.norm(self.blocks(h)).mean(1))

        return Net()


# ------------------------------------------------------------------ recurrent nets
@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrent(Cell):
    """A classifier of stacked LSTM or GRU layers; the last output counts.

    Attributes:
        gates: 4 for an LSTM, 3 for a GRU.
        layers, units, steps: Of the layers, each over all steps.
        both: Whether they read in both directions.
        features: Of a step; 0 for tokens out of a vocabulary of 5,000, 64 wide.
        masked: Whether tokens of zero are left out, as padding is; by hand a loop that
            keeps its state there. PyTorch has no such loop for tokens in between.
    """

    gates: int
    layers: int
    units: int
    steps: int
    both: bool = False
    features: int = 16
    masked: bool = False
    batch: int = 64

    def inputs(self, rng, samples):
        if self.features:
            shape = (samples, self.steps, self.features)
            return rng.standard_normal(shape, dtype=np.float32)
        tokens = rng.integers(1, 5000, (samples, self.steps)).astype(np.int32)
        if self.masked:
            ends = rng.integers(1, self.steps + 1, samples)
            tokens[np.arange(self.steps) >= ends[:, None]] = 0
        return tokens

    def keras_like(self, k):
        layers = k.layers
        if self.features:
            x = h = k.Input((self.steps, self.features))
        else:
            x = k.Input((self.steps,), dtype="int32")
            h = layers.Embedding(5000, 64, mask_zero=self.masked)(x)
        for i in range(self.layers):
            kind = layers.LSTM if self.gates == 4 else layers.GRU
            layer = kind(self.units, return_sequences=i < self.layers - 1)
            h = layers.Bidirectional(layer)(h) if self.both else layer(h)
        return k.Model(x, layers.Dense(CLASSES)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, units, ways = Weights(), self.units, 2 if self.both else 1
        params: dict[str, Any] = {"out": make.dense(ways * units, CLASSES)}
        if not self.features:
            params["table"] = make.normal(5000, 64)
        size, stack = self.features or 64, []
        for _ in range(self.layers):
            stack.append(
                [
                    {
                        "in": make.dense(size, self.gates * units),
                        "rec": make.dense(units, self.gates * units),
                    }
                    for _ in range(ways)
                ]
            )
            size = ways * units
        params["stack"] = stack

        def lstm(p, state, a):
            h, c = state
            i, f, g, o = jnp.split(a + h @ p["w"] + p["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return jax.nn.sigmoid(o) * jnp.tanh(c), c

        def gru(p, state, a):
            (h,) = state
            r = h @ p["w"] + p["b"]
            (zx, rx, nx), (zh, rh, nh) = (jnp.split(v, 3, axis=-1) for v in (a, r))
            update = jax.nn.sigmoid(zx + zh)
            new = jnp.tanh(nx + jax.nn.sigmoid(rx + rh) * nh)
            return (update * h + (1 - update) * new,)

        advance = lstm if self.gates == 4 else gru

        def run(p, x, mask, reverse):
            def step(state, item):
                a, m = item
                new = advance(p["rec"], state, a)
                if m is not None:
                    new = tuple(
                        jnp.where(m[:, None], n, s)
                        for n, s in zip(new, state, strict=True)
                    )
                return new, new[0]

            zero = jnp.zeros((x.shape[1], units))
            state = (zero,) * (2 if self.gates == 4 else 1)
            last, outputs = jax.lax.scan(
                step, state, (dense(p["in"], x), mask), reverse=reverse
            )
            return last[0], outputs

        def forward(p, x):
            mask = (x != 0).T if self.masked else None
            h = jnp.swapaxes(x if self.features else p["table"][x], 0, 1)
            last = []
            for layer in p["stack"]:
                runs = [run(q, h, mask, i == 1) for i, q in enumerate(layer)]
                last = [final for final, _ in runs]
                h = jnp.concatenate([outputs for _, outputs in runs], -1)
            return dense(p["out"], jnp.concatenate(last, -1))

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn

        cell, ways = self, 2 if self.both else 1

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                if not cell.features:
                    self.table = nn.Embedding(5000, 64)
                kind = nn.LSTM if cell.gates == 4 else nn.GRU
                self.rnn = kind(
                    cell.features or 64,
                    cell.units,
                    cell.layers,
                    batch_first=True,
                    bidirectional=cell.both,
                )
                self.out = nn.Linear(ways * cell.units, CLASSES)

            def forward(self, x):
                h = x if cell.features else self.table(x)
                last = self.rnn(h)[1]
                last = last[0] if cell.gates == 4 else last
                return self.out(torch.cat(list(last[-ways:]), -1))

        return Net()


# ------------------------------------------------------------------ convolutions
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence(Cell):
    """1D convolutions of stride 2 over a signal, then means."""

    steps: int
    channels: tuple[int, ...]
    window: int = 5

    def inputs(self, rng, samples):
        return rng.standard_normal((samples, self.steps, 8), dtype=np.float32)

    def keras_like(self, k):
        x = h = k.Input((self.steps, 8))
        for n in self.channels:
            h = k.layers.Conv1D(n, self.window, 2, activation="relu")(h)
        h = k.layers.GlobalAveragePooling1D()(h)
        return k.Model(x, k.layers.Dense(CLASSES)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, sizes = Weights(), (8, *self.channels)
        params = {
            "convs": [
                (make.normal(self.window, a, b), jnp.zeros(b))
                for a, b in zip(sizes, sizes[1:], strict=False)
            ],
            "out": make.dense(sizes[-1], CLASSES),
        }

        def forward(p, x):
            for kernel, bias in p["convs"]:
                x = jax.lax.conv_general_dilated(
                    x, kernel, (2,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
                )
                x = jax.nn.relu(x + bias)
            return dense(p["out"], x.mean(1))

        return params, forward

    def torch_module(self):
        from torch import nn

        cell, sizes = self, (8, *self.channels)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                parts: list[Any] = []
                for a, b in zip(sizes, sizes[1:], strict=False):
                    parts += [nn.Conv1d(a, b, cell.window, 2), nn.ReLU()]
                self.body = nn.Sequential(*parts)
                self.out = nn.Linear(sizes[-1], CLASSES)

            def forward(self, x):
                return self.out(self.body(x.transpose(1, 2)).mean(2))

        return Net()


@dataclasses.dataclass(frozen=True, kw_only=True)
class UNet(Cell):
    """A class for each pixel: down and up again by transposed convolutions."""

    side: int
    channels: tuple[int, ...] = (32, 64, 128)

    def inputs(self, rng, samples):
        shape = (samples, self.side, self.side, 3)
        return rng.standard_normal(shape, dtype=np.float32)

    def targets(self, rng, samples):
        shape = (samples, self.side, self.side)
        return rng.integers(0, CLASSES, shape).astype(np.int32)

    def keras_like(self, k):
        layers = k.layers

        def pair(h, n):
            for _ in range(2):
                h = layers.Conv2D(n, 3, padding="same", activation="relu")(h)
            return h

        x = h = k.Input((self.side, self.side, 3))
        skips = []
        for n in self.channels[:-1]:
            skips.append(pair(h, n))
            h = layers.MaxPooling2D()(skips[-1])
        h = pair(h, self.channels[-1])
        for n, skip in zip(self.channels[-2::-1], skips[::-1], strict=True):
            h = layers.Conv2DTranspose(n, 2, 2)(h)
            h = pair(layers.Concatenate()([skip, h]), n)
        return k.Model(x, layers.Conv2D(CLASSES, 1)(h))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make = Weights()
        layout = ("NHWC", "HWIO", "NHWC")

        def kernel(size, a, b):
            return make.normal(size, size, a, b), jnp.zeros(b)

        params: dict[str, list] = {"down": [], "up": []}
        size = 3
        for n in self.channels:
            params["down"].append([kernel(3, size, n), kernel(3, n, n)])
            size = n
        for n in self.channels[-2::-1]:
            pair = [kernel(3, 2 * n, n), kernel(3, n, n)]
            params["up"].append([kernel(2, size, n), *pair])
            size = n
        params["out"] = [kernel(1, size, CLASSES)]

        def conv(p, x):
            y = jax.lax.conv_general_dilated(
                x, p[0], (1, 1), "SAME", dimension_numbers=layout
            )
            return y + p[1]

        def forward(p, x):
            skips = []
            for i, (a, b) in enumerate(p["down"]):
                x = jax.nn.relu(conv(b, jax.nn.relu(conv(a, x))))
                if i < len(p["down"]) - 1:
                    skips.append(x)
                    step = (1, 2, 2, 1)
                    x = jax.lax.reduce_window(
                        x, -jnp.inf, jax.lax.max, step, step, "VALID"
                    )
            for (up, a, b), skip in zip(p["up"], skips[::-1], strict=True):
                x = jax.lax.conv_transpose(
                    x, up[0], (2, 2), "VALID", dimension_numbers=layout
                )
                x = jnp.concatenate([skip, x + up[1]], -1)
                x = jax.nn.relu(conv(b, jax.nn.relu(conv(a, x))))
            return conv(p["out"][0], x)

        return params, forward

    def torch_module(self):
        import torch
        from torch import nn

        def pair(a, b):
            return nn.Sequential(
                nn.Conv2d(a, b, 3, 1, 1), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1), nn.ReLU()
            )

        cell = self

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                sizes = (3, *cell.channels)
                back = cell.channels[::-1]
                self.down = nn.ModuleList(
                    pair(a, b) for a, b in zip(sizes, sizes[1:], strict=False)
                )
                self.up = nn.ModuleList(
                    nn.ConvTranspose2d(a, b, 2, 2)
                    for a, b in zip(back, back[1:], strict=False)
                )
                self.join = nn.ModuleList(pair(2 * b, b) for b in back[1:])
                self.out = nn.Conv2d(back[-1], CLASSES, 1)

            def forward(self, x):
                x, skips = x.permute(0, 3, 1, 2), []
                for i, part in enumerate(self.down):
                    x = part(x)
                    if i < len(self.down) - 1:
                        skips.append(x)
                        x = nn.functional.max_pool2d(x, 2)
                for up, join, skip in zip(self.up, self.join, skips[::-1], strict=True):
                    x = join(torch.cat([skip, up(x)], 1))
                return self.out(x)

        return Net()


# ------------------------------------------------------------------ products only
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixer(Cell):
    """An MLP-Mixer over tokens of features: products along both axes."""

    tokens: int
    width: int
    blocks: int

    def inputs(self, rng, samples):
        return rng.standard_normal((samples, self.tokens, 48), dtype=np.float32)

    def keras_like(self, k):
        layers = k.layers

        def mlp(h, hidden, size):
            return layers.Dense(size)(layers.Dense(hidden, activation="gelu")(h))

        x = k.Input((self.tokens, 48))
        h = layers.Dense(self.width)(x)
        for _ in range(self.blocks):
            z = layers.Permute((2, 1))(layers.LayerNormalization(epsilon=1e-6)(h))
            z = mlp(z, 2 * self.tokens, self.tokens)
            h = layers.Add()([h, layers.Permute((2, 1))(z)])
            z = layers.LayerNormalization(epsilon=1e-6)(h)
            h = layers.Add()([h, mlp(z, 4 * self.width, self.width)])
        h = layers.LayerNormalization(epsilon=1e-6)(h)
        return k.Model(x, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(h)))

    def hand_written(self):
        import jax
        import jax.numpy as jnp

        make, t, d = Weights(), self.tokens, self.width
        params = {
            "first": make.dense(48, d),
            "blocks": [
                {
                    "n1": make.norm(d), "t1": make.dense(t, 2 * t),
                    "t2": make.dense(2 * t, t), "n2": make.norm(d),
                    "c1": make.dense(d, 4 * d), "c2": make.dense(4 * d, d),
                }
                for _ in range(self.blocks)
            ],
            "norm": make.norm(d),
            "out": make.dense(d, CLASSES),
        }  # fmt: skip

        def gelu(x):
            return jax.nn.gelu(x, approximate=False)

        def forward(p, x):
            h = dense(p["first"], x)
            for b in p["blocks"]:
                z = jnp.swapaxes(layer_norm(b["n1"], h), 1, 2)
                z = dense(b["t2"], gelu(dense(b["t1"], z)))
                h = h + jnp.swapaxes(z, 1, 2)
                z = layer_norm(b["n2"], h)
                h = h + dense(b["c2"], gelu(dense(b["c1"], z)))
            return dense(p["out"], layer_norm(p["norm"], h).mean(1))

        return params, forward

    def torch_module(self):
        from torch import nn

        t, d, cell = self.tokens, self.width, self

        def mlp(a, b):
            return nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a))

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.n1, self.n2 = nn.LayerNorm(d, 1e-6), nn.LayerNorm(d, 1e-6)
                self.t, self.c = mlp(t, 2 * t), mlp(d, 4 * d)

            def forward(self, x):
                x = x + self.t(self.n1(x).transpose(1, 2)).transpose(1, 2)
                return x + self.c(self.n2(x))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(48, d)
                self.blocks = nn.Sequential(*[Block() for _ in range(cell.blocks)])
                self.norm, self.out = nn.LayerNorm(d, 1e-6), nn.Linear(d, CLASSES)

            def forward(self, x):
                return self.out(self.norm(self.blocks(self.first(x))).mean(1))

        return Net()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tabular(Cell):
    """Normalized numbers through dense layers."""

    features: int
    widths: tuple[int, ...]

    def inputs(self, rng, samples):
        return rng.standard_normal((samples, self.features), dtype=np.float32)

    def keras_like(self, k):
        x = h = k.Input((self.features,))
        for n in self.widths:
            h = k.layers.Dense(n, activation="relu")(h)
        return k.Model(x, k.layers.Dense(CLASSES)(h))

    def hand_written(self):
        import jax

        make, sizes = Weights(), (self.features, *self.widths, CLASSES)
        params = [make.dense(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]

        def forward(p, x):
            for layer in p[:-1]:
                x = jax.nn.relu(dense(layer, x))
            return dense(p[-1], x)

        return params, forward

    def torch_module(self):
        from torch import nn

        sizes, parts = (self.features, *self.widths), []
        for a, b in zip(sizes, sizes[1:], strict=False):
            parts += [nn.Linear(a, b), nn.ReLU()]
        return nn.Sequential(*parts, nn.Linear(sizes[-1], CLASSES))


# ------------------------------------------------------------------ the grid
_EMBEDDINGS: dict[str, Cell] = {
    "embed-1k-8x1": Recommender(rows=1_000, width=8, columns=1, samples=512_000),
    "embed-10k-16x26-own": Recommender(
        rows=10_000, width=16, columns=26, shared=False, samples=204_800
    ),
    "embed-100k-32x8": Recommender(rows=100_000, width=32, columns=8, samples=512_000),
    "embed-100k-256x2": Recommender(
        rows=100_000, width=256, columns=2, samples=102_400
    ),
    "embed-1k-8x26-each": Recommender(
        rows=1_000, width=8, columns=26, each=True, samples=204_800
    ),
    "embed-20k-16x10-each": Recommender(
        rows=20_000, width=16, columns=10, each=True, samples=204_800
    ),
    "embed-1m-64x8": Recommender(rows=1_000_000, width=64, columns=8, samples=51_200),
    "embed-1m-16x26-own": Recommender(
        rows=1_000_000, width=16, columns=26, shared=False, samples=10_240
    ),
    "embed-10m-8x4": Recommender(rows=10_000_000, width=8, columns=4, samples=51_200),
}


def _vit(tokens: int, patch: int, dtype: str, width=192, heads=3, **more: int) -> Cell:
    options: Any = {"blocks": 6, "batch": 128, "samples": 12_800} | more
    return Transformer(
        tokens=tokens, patch=patch, width=width, heads=heads, dtype=dtype, **options
    )


_TRANSFORMERS: dict[str, Cell] = {
    "vit-16-float32": _vit(16, 8, "float32", samples=25_600),
    "vit-64-float32": _vit(64, 4, "float32"),
    "vit-64-float32-batch-512": _vit(64, 4, "float32", batch=512),
    "vit-64-bfloat16": _vit(64, 4, "bfloat16"),
    "vit-256-float32": _vit(256, 4, "float32", batch=64, samples=3_200),
    "vit-256-bfloat16": _vit(256, 4, "bfloat16", 384, 6, batch=64, samples=3_200),
    "text-16-bfloat16": _vit(16, 0, "bfloat16", samples=25_600),
    "text-64-float32": _vit(64, 0, "float32"),
    "text-256-float32": _vit(
        256, 0, "float32", 256, 4, blocks=4, batch=32, samples=3_200
    ),
    "text-1024-float32": _vit(1024, 0, "float32", 256, 4, batch=8, samples=400),
    "text-1024-bfloat16": _vit(1024, 0, "bfloat16", 384, 6, batch=16, samples=800),
}
_RECURRENT: dict[str, Cell] = {
    "lstm-1x64-100": Recurrent(gates=4, layers=1, units=64, steps=100, samples=16_384),
    "lstm-2x64-100-tokens": Recurrent(
        gates=4, layers=2, units=64, steps=100, features=0, samples=8_192
    ),
    "lstm-2x128-100-masked": Recurrent(
        gates=4, layers=2, units=128, steps=100, features=0, masked=True, samples=8_192
    ),
    "lstm-1x256-200-both": Recurrent(
        gates=4, layers=1, units=256, steps=200, both=True, samples=4_096
    ),
    "lstm-1x1024-20": Recurrent(
        gates=4, layers=1, units=1024, steps=20, features=64, samples=8_192
    ),
    "lstm-3x512-50": Recurrent(
        gates=4, layers=3, units=512, steps=50, features=64, samples=4_096
    ),
    "gru-2x64-120-both": Recurrent(
        gates=3, layers=2, units=64, steps=120, both=True, samples=8_192
    ),
    "gru-1x32-1000": Recurrent(gates=3, layers=1, units=32, steps=1000, samples=2_048),
    "gru-4x256-50": Recurrent(
        gates=3, layers=4, units=256, steps=50, features=64, samples=4_096
    ),
    "gru-1x64-100-both-masked": Recurrent(
        gates=3, layers=1, units=64, steps=100, both=True, features=0, masked=True,
        samples=8_192,
    ),
}  # fmt: skip
_OTHERS: dict[str, Cell] = {
    "conv1d-512": Sequence(steps=512, channels=(32, 64, 64), batch=128, samples=51_200),
    "conv1d-4096": Sequence(
        steps=4096, channels=(64, 128, 256), batch=64, samples=6_400
    ),
    "unet-64": UNet(side=64, batch=32, samples=3_200),
    "unet-128": UNet(side=128, batch=16, samples=800),
    "mixer-64x256": Mixer(tokens=64, width=256, blocks=6, batch=128, samples=12_800),
    "mixer-196x512": Mixer(tokens=196, width=512, blocks=4, batch=64, samples=3_200),
    "tabular-30": Tabular(features=30, widths=(64, 64), batch=256, samples=512_000),
    "tabular-100": Tabular(
        features=100, widths=(512, 512, 256), batch=1024, samples=1_024_000
    ),
}
CELLS = _EMBEDDINGS | _TRANSFORMERS | _RECURRENT | _OTHERS
