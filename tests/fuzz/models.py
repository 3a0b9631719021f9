"""Random models with equal weights: what they predict, and a few steps of training.

A node is a layer called on the results of others; their shapes are followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.fuzz import simplify
from tests.fuzz.values import Array, Call, Name, pick

TOLERANCE = 2e-3

_ACTIVATIONS = ("tanh", "sigmoid", "gelu", "elu", "softplus", "linear", "silu")


@dataclasses.dataclass
class Node:
    """A call: the name of its result, the layer, or one made before, and arguments."""

    out: str
    layer: Call | None
    on: list[str]
    shared: str | None = None  # the result of the node whose layer this is
    as_list: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def call(self, callee: str) -> str:
        given = f"[{', '.join(self.on)}]" if self.as_list else ", ".join(self.on)
        more = "".join(f", {k}={v!r}" for k, v in self.options.items())
        return f"{self.out} = {callee}({given}{more})"


class Drawing:
    """A model as it is drawn."""

    def __init__(self, rng: np.random.Generator):
        self.rng, self.nodes = rng, []
        self.inputs: list[tuple[str, tuple, str]] = []
        self.sequential = False

    # ---------------------------------------------------------------- nodes
    def add(self, layer: Call, *on: str, **kwargs) -> str:
        out = f"h{len(self.nodes)}"
        named = dataclasses.replace(layer, options={**layer.options, "name": out})
        self.nodes.append(Node(out, named, list(on), **kwargs))
        return out

    def again(self, first: str, *on: str) -> str:
        """A second call of a layer."""
        out = f"h{len(self.nodes)}"
        self.nodes.append(Node(out, None, list(on), shared=first))
        return out

    def input(self, shape: tuple, dtype: str = "float32") -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, shape, dtype))
        return name

    # ---------------------------------------------------------------- options
    def size(self, low: int = 2, high: int = 6) -> int:
        return int(self.rng.integers(low, high))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def penalties(self) -> dict:
        rng, options = self.rng, {}
        if self.chance(0.15):
            options["kernel_regularizer"] = pick(
                rng,
                Call("regularizers.L2", [0.01]),
                Call("regularizers.L1", [0.01]),
                Call("regularizers.L1L2", [0.01, 0.02]),
            )
        if self.chance(0.1):
            options["kernel_constraint"] = pick(
                rng,
                Call("constraints.MaxNorm", [0.7]),
                Call("constraints.NonNeg"),
                Call("constraints.UnitNorm"),
            )
        if self.chance(0.08):
            options["activity_regularizer"] = Call("regularizers.L2", [0.01])
        if self.chance(0.15):
            options["use_bias"] = False
        if self.chance(0.6):
            options["activation"] = pick(rng, *_ACTIVATIONS)
        return options

    # ---------------------------------------------------------------- layers
    def step(self, h: str, shape: tuple) -> tuple[str, tuple]:
        """One more layer, or a branch and its end."""
        if not self.sequential and self.chance(0.2):
            return self.branch(h, shape)
        return (None, self.vector, self.sequence, self.image)[len(shape)](h, shape)

    def keeping(self, h: str, shape: tuple) -> str:
        """A layer whose result has the shape of what it is given."""
        if len(shape) == 3 and self.chance(0.6):
            return self.add(
                Call("layers.Conv2D", [shape[-1], 3], {"padding": "same"}), h
            )
        return self.add(Call("layers.Dense", [shape[-1]], self.penalties()), h)

    def branch(self, h: str, shape: tuple) -> tuple[str, tuple]:
        first = self.keeping(h, shape)
        if self.chance(0.25):  # one layer, called twice
            second = self.again(first, first)
        else:
            second = self.keeping(h, shape) if self.chance(0.6) else h
        kind = pick(self.rng, *"Add Subtract Multiply Average Maximum Minimum".split())
        if self.chance(0.4):
            axis = int(self.rng.integers(1, len(shape) + 1))
            out = self.add(
                Call("layers.Concatenate", [], {"axis": axis}),
                *(first, second),
                as_list=True,
            )
            wide = tuple(n * 2 if i == axis - 1 else n for i, n in enumerate(shape))
            return out, wide
        return self.add(Call(f"layers.{kind}"), first, second, as_list=True), shape

    def normalization(self, h: str, shape: tuple) -> str:
        rng = self.rng
        layer = pick(
            rng,
            Call(
                "layers.BatchNormalization",
                [],
                {"momentum": pick(rng, 0.9, 0.5), "epsilon": 0.01},
            ),
            Call("layers.BatchNormalization", [], {"center": False, "scale": False}),
            Call("layers.LayerNormalization", [], {"epsilon": 0.01}),
            Call("layers.RMSNormalization", [], {"epsilon": 0.01}),
            Call("layers.GroupNormalization", [], {"groups": pick(rng, 1, -1)}),
            Call("layers.UnitNormalization"),
        )
        return self.add(layer, h)

    def vector(self, h: str, shape: tuple) -> tuple[str, tuple]:
        rng, n = self.rng, self.size()
        choice = int(rng.integers(9))
        if choice < 4:
            return self.add(Call("layers.Dense", [n], self.penalties()), h), (n,)
        if choice == 4:
            return self.normalization(h, shape), shape
        if choice == 5:
            layer = pick(
                rng,
                Call("layers.Activation", [pick(rng, *_ACTIVATIONS)]),
                Call("layers.LeakyReLU", [], {"negative_slope": 0.2}),
                Call("layers.PReLU", [], {"alpha_initializer": "ones"}),
                Call("layers.Softmax"),
                Call("layers.Rescaling", [0.5], {"offset": 0.1}),
                Call("layers.Dropout", [0.0]),
                Call("layers.Identity"),
            )
            return self.add(layer, h), shape
        if choice == 6:
            return self.add(Call("layers.RepeatVector", [3]), h), (3, *shape)
        if choice == 7 and shape[0] % 2 == 0:
            half = (shape[0] // 2, 2)
            return self.add(Call("layers.Reshape", [half]), h), half
        return self.add(Call("layers.Dense", [n], {"activation": "tanh"}), h), (n,)

    def sequence(self, h: str, shape: tuple) -> tuple[str, tuple]:
        rng, (t, d), n = self.rng, shape, self.size()
        choice = int(rng.integers(12))
        if choice < 3:
            return self.recurrent(h, shape)
        if choice == 3:
            options = {"padding": pick(rng, "same", "causal")} | self.penalties()
            if self.chance(0.3):
                options["dilation_rate"] = 2
            return self.add(Call("layers.Conv1D", [n, 2], options), h), (t, n)
        if choice == 4 and not self.sequential:
            return self.attention(h, shape), shape
        if choice == 5:
            return self.normalization(h, shape), shape
        if choice == 6:
            return self.add(Call("layers.Dense", [n], self.penalties()), h), (t, n)
        if choice == 7:
            kind = pick(rng, "GlobalAveragePooling1D", "GlobalMaxPooling1D")
            return self.add(Call(f"layers.{kind}"), h), (d,)
        if choice == 8:
            return self.add(Call("layers.Flatten"), h), (t * d,)
        if choice == 9 and t > 2:
            kind = pick(rng, "MaxPooling1D", "AveragePooling1D")
            layer = Call(f"layers.{kind}", [2], {"strides": 1, "padding": "same"})
            return self.add(layer, h), shape
        if choice == 10:
            layer = pick(
                rng,
                Call("layers.TimeDistributed", [Call("layers.Dense", [d])]),
                Call("layers.DepthwiseConv1D", [2], {"padding": "same"}),
                Call("layers.SeparableConv1D", [d, 2], {"padding": "same"}),
                Call("layers.Conv1DTranspose", [d, 2], {"padding": "same"}),
            )
            return self.add(layer, h), shape
        layer = pick(
            rng,
            (Call("layers.Permute", [(2, 1)]), (d, t)),
            (Call("layers.UpSampling1D", [2]), (2 * t, d)),
            (Call("layers.ZeroPadding1D", [(1, 0)]), (t + 1, d)),
            (Call("layers.Cropping1D", [(1, 0)]), (t - 1, d)),
        )
        if layer[1][0] < 1:
            return self.add(Call("layers.Identity"), h), shape
        return self.add(layer[0], h), layer[1]

    def recurrent(self, h: str, shape: tuple) -> tuple[str, tuple]:
        rng, n = self.rng, self.size(2, 5)
        all_steps = self.chance(0.6)
        options: dict[str, Any] = {"return_sequences": all_steps}
        kind = pick(rng, "SimpleRNN", "LSTM", "GRU")
        if kind == "GRU":
            options["reset_after"] = bool(rng.integers(2))
        if kind == "LSTM" and self.chance(0.3):
            options["unit_forget_bias"] = False
        if self.chance(0.2):
            options["go_backwards"] = True
        if self.chance(0.2):
            options["recurrent_regularizer"] = Call("regularizers.L2", [0.01])
        layer = Call(f"layers.{kind}", [n], options)
        if self.chance(0.25) and "go_backwards" not in options:
            mode = pick(rng, "concat", "sum", "mul", "ave")
            layer = Call("layers.Bidirectional", [layer], {"merge_mode": mode})
            n *= 2 if mode == "concat" else 1
        return self.add(layer, h), (shape[0], n) if all_steps else (n,)

    def attention(self, h: str, shape: tuple) -> str:
        rng = self.rng
        kind = pick(rng, "multi", "multi", "grouped", "dot", "additive")
        causal = {"use_causal_mask": True} if self.chance(0.3) else {}
        if kind == "multi":
            layer = Call("layers.MultiHeadAttention", [2, 3])
            return self.add(layer, h, h, options=causal)
        if kind == "grouped":
            layer = Call("layers.GroupQueryAttention", [3, 2, 1])
            return self.add(layer, h, h, options=causal)
        name = "Attention" if kind == "dot" else "AdditiveAttention"
        scale = {"use_scale": bool(rng.integers(2))}
        return self.add(Call(f"layers.{name}", [], scale), h, h, as_list=True)

    def image(self, h: str, shape: tuple) -> tuple[str, tuple]:
        rng, (height, width, c), n = self.rng, shape, self.size(2, 5)
        choice = int(rng.integers(10))
        if choice < 3:
            options = {"padding": "same"} | self.penalties()
            strides = pick(rng, 1, 1, 2)
            if strides == 2:
                options["strides"] = 2
                height, width = -(-height // 2), -(-width // 2)
            return self.add(
                Call("layers.Conv2D", [n, pick(rng, 1, 2, 3)], options), h
            ), (
                height,
                width,
                n,
            )
        if choice == 3:
            layer, channels = pick(
                rng,
                (Call("layers.DepthwiseConv2D", [3], {"depth_multiplier": 2}), 2 * c),
                (Call("layers.SeparableConv2D", [n, 3]), n),
                (Call("layers.Conv2DTranspose", [n, 3]), n),
            )
            layer = dataclasses.replace(
                layer, options={**layer.options, "padding": "same"}
            )
            return self.add(layer, h), (height, width, channels)
        if choice == 4:
            kind = pick(rng, "MaxPooling2D", "AveragePooling2D")
            layer = Call(f"layers.{kind}", [2], {"padding": "same"})
            return self.add(layer, h), (-(-height // 2), -(-width // 2), c)
        if choice in (5, 6):
            return self.normalization(h, shape), shape
        if choice == 7:
            kind = pick(rng, "GlobalAveragePooling2D", "GlobalMaxPooling2D")
            return self.add(Call(f"layers.{kind}"), h), (c,)
        if choice == 8:
            return self.add(Call("layers.Flatten"), h), (height * width * c,)
        layer, new = pick(
            rng,
            (
                Call("layers.ZeroPadding2D", [((1, 0), (0, 1))]),
                (height + 1, width + 1, c),
            ),
            (Call("layers.UpSampling2D", [2]), (2 * height, 2 * width, c)),
            (Call("layers.Reshape", [(height * width, c)]), (height * width, c)),
            (Call("layers.Permute", [(2, 1, 3)]), (width, height, c)),
        )
        return self.add(layer, h), new

    def begin(self) -> tuple[str, tuple]:
        """The first tensor: of one input, or of two that are joined."""
        rng = self.rng
        kind = pick(rng, "vector", "vector", "sequence", "tokens", "masked", "image")
        if kind == "tokens":
            shape, width = (self.size(3, 6),), self.size()
            h = self.input(shape, "int32")
            options = {"mask_zero": bool(rng.integers(4))}
            return self.add(Call("layers.Embedding", [7, width], options), h), (
                *shape,
                width,
            )
        rank = {"vector": 1, "sequence": 2, "masked": 2, "image": 3}[kind]
        shape = tuple(self.size(3, 7) for _ in range(rank))
        h = self.input(shape, "masked" if kind == "masked" else "float32")
        if kind == "masked":
            h = self.add(Call("layers.Masking", [], {"mask_value": 0.0}), h)
        elif not self.sequential and self.chance(0.2):
            other = self.input(shape)
            h = self.add(Call("layers.Add"), h, other, as_list=True)
        return h, shape


def draw(rng: np.random.Generator) -> dict:
    drawing = Drawing(rng)
    kind = pick(rng, "functional", "functional", "sequential", "subclass")
    drawing.sequential = kind == "sequential"
    h, shape = drawing.begin()
    for _ in range(int(rng.integers(1, 6))):
        if np.prod(shape) > 300:
            break
        h, shape = drawing.step(h, shape)
    units = int(rng.integers(1, 4))
    drawing.add(Call("layers.Dense", [units]), h)
    rate = pick(rng, 0.1, 0.02)
    return {
        "kind": kind,
        "inputs": drawing.inputs,
        "nodes": drawing.nodes,
        "target": (*shape[:-1], units),
        "optimizer": pick(
            rng,
            Call("optimizers.SGD", [rate], {"momentum": 0.0}),
            Call("optimizers.SGD", [rate], {"momentum": 0.9, "nesterov": True}),
        ),
        "loss": pick(rng, "mse", "mae", "huber"),
        "fit": {
            "batch_size": pick(rng, 4, 5, 12),
            "epochs": pick(rng, 1, 2),
            "shuffle": False,
            "verbose": 0,
        },
    }


def simpler(spec: dict) -> Iterator[dict]:
    """Without a node, which its first argument stands for then; or with less in one."""
    for i, node in enumerate(spec["nodes"]):
        rest = [
            dataclasses.replace(
                other,
                on=[node.on[0] if name == node.out else name for name in other.on],
            )
            for other in spec["nodes"]
            if other is not node
        ]
        yield {**spec, "nodes": rest}
        for less in simplify.simpler(node.layer) if node.layer else ():
            changed = dataclasses.replace(node, layer=less)
            yield {
                **spec,
                "nodes": [*spec["nodes"][:i], changed, *spec["nodes"][i + 1 :]],
            }
    if spec["fit"]["epochs"] > 1:
        yield {**spec, "fit": {**spec["fit"], "epochs": 1}}
    if spec["fit"]["batch_size"] < 12:
        yield {**spec, "fit": {**spec["fit"], "batch_size": 12}}


def _data(name: str, shape: tuple, dtype: str, rows: int = 12) -> list[str]:
    seed = int(name[1:])
    if dtype == "int32":
        return [f"{name} = {Array(seed, (rows, *shape), 'int32', 0, 7)!r}"]
    lines = [f"{name} = {Array(seed, (rows, *shape))!r}"]
    if dtype == "masked":
        lines.append(f"{name}[np.arange({rows}) % 3 == 0, {shape[0] // 2}:] = 0")
    return lines


def model_source(spec: dict) -> list[str]:
    """Lines that make ``model``, with ``inputs`` as its data."""
    lines = [line for entry in spec["inputs"] for line in _data(*entry)]
    names = [name for name, _, _ in spec["inputs"]]
    joined = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    lines.append(f"data = {joined}")
    nodes, last = spec["nodes"], spec["nodes"][-1].out
    if spec["kind"] == "sequential":
        layers = [Call("Input", [spec["inputs"][0][1]], _dtype_of(spec["inputs"][0]))]
        layers += [node.layer for node in nodes]
        text = ",\n    ".join(map(repr, layers))
        return [*lines, f"model = keras.Sequential([\n    {text},\n])"]
    made = [f"{n.out}_layer = {n.layer!r}" for n in nodes if n.layer is not None]
    calls = [n.call(f"{n.shared or n.out}_layer") for n in nodes]
    if spec["kind"] == "subclass":
        unpack = names[0] if len(names) == 1 else ", ".join(names)
        body = [
            "class Net(keras.Model):",
            "    def __init__(self):",
            "        super().__init__()",
            *[f"        self.{line}" for line in made],
            "    def call(self, data, training=None):",
            f"        {unpack} = data",
            *[f"        {c.replace(' = ', ' = self.', 1)}" for c in calls],
            f"        return {last}",
            "model = Net()",
            "_ = model(data)",
        ]
        return lines + body
    inputs = [
        f"{entry[0]} = {Call('Input', [entry[1]], _dtype_of(entry))!r}"
        for entry in spec["inputs"]
    ]
    return [*lines, *inputs, *made, *calls, f"model = keras.Model({joined}, {last})"]


def _dtype_of(entry: tuple) -> dict:
    return {"dtype": "int32"} if entry[2] == "int32" else {}


def render(spec: dict) -> str:
    compile_ = Name(f"model.compile({spec['optimizer']!r}, {spec['loss']!r})")
    fit = ", ".join(f"{k}={v!r}" for k, v in spec["fit"].items())
    target = Array(99, (12, *spec["target"]))
    return "\n".join(
        [
            *model_source(spec),
            "fill(model, 1)",
            "before = model.predict(data, verbose=0)",
            repr(compile_),
            f"y = {target!r}",
            "loss = model.evaluate(data, y, verbose=0)",
            f"history = model.fit(data, y, {fit})",
            "result = {",
            "    'before': before, 'loss': loss, 'history': history.history,",
            "    'after': model.predict(data, verbose=0), 'weights': weights(model),",
            "}",
        ]
    )
