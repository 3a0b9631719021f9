"""A model's layers as rows, and the totals below them, for its summary and its page."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core.printing import amount_text, size_text
from exburn.core.symbolic_shapes import TEXT, public_shape
from exburn.errors import ArgumentError
from exburn.module.building import inspect_call
from exburn.module.graph import Graph, Node, Ref
from exburn.module.meta import is_layer
from exburn.module.selection import frozen_paths, layer_paths
from exburn.module.symbolic_tensor import Lifted
from exburn.module.traversal import iter_weights, module_paths
from exburn.module.variable import scalars
from exburn.runtime.cost_model import count


@dataclasses.dataclass
class LayerRow:
    """A layer, or a function of a graph.

    Attributes:
        kind: Its class; ``"function"`` for one of JAX.
        shape: Of its outputs; ``"?"`` while unknown.
        params: Numbers in its weights.
        sources: Names of what its inputs come from, in a graph.
        depth: How many others it lies in.
    """

    name: str
    kind: str
    shape: str
    params: int
    dtype: str
    trainable: bool
    sources: list[str]
    depth: int = 0
    built: bool = True


def outline(
    model: Any, opens: Callable[[Any], bool]
) -> tuple[list[LayerRow], float | None]:
    """The rows of a model's layers, and its operations for one sample, if known."""
    traced = inspect_call(model) if model.built else None
    shapes = {} if traced is None else traced[1]
    rows = _rows(model, shapes, "", 0, opens, set(frozen_paths(model)))
    return rows, None if traced is None else count(traced[0]).flops


def match_range(op: str, layer_range: Any, names: list[str]) -> tuple[int, int]:
    """The places of the first and the last name of a range, as Keras reads it.

    Args:
        layer_range: Two beginnings of names, or regular expressions.
    """
    pair = layer_range if isinstance(layer_range, list | tuple) else ()
    if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        raise ArgumentError(
            op,
            "layer_range must be the names of a first and a last layer, received "
            f"{layer_range!r}",
        )
    try:
        first, last = (
            [i for i, name in enumerate(names) if re.match(pattern, name)]
            for pattern in pair
        )
    except re.error as error:
        raise ArgumentError(
            op, f"layer_range {layer_range!r} is no regular expression: {error}"
        ) from error
    if not first or not last:
        raise ArgumentError(
            op,
            f"layer_range {tuple(layer_range)!r} matches no layer",
            {"layers": ", ".join(names)},
        )
    return (first[0], last[-1]) if first[0] <= last[-1] else (last[0], first[-1])


def inner_layers(layer: Any) -> list[Any]:
    """The layers directly inside of one, those of containers among them."""
    if getattr(layer, "is_model", False):
        return list(layer.layers)
    layers: dict[str, Any] = {}
    for path, inner in layer_paths(layer).items():
        above = path.split("/")
        if not any("/".join(above[:n]) in layers for n in range(1, len(above))):
            layers[path] = inner
    return list(layers.values())


def _rows(
    model: Any,
    shapes: dict,
    prefix: str,
    depth: int,
    opens: Callable[[Any], bool],
    frozen: set[str],
) -> list[LayerRow]:
    graph = getattr(model, "graph", None)
    linear = type(model).__name__ == "Sequential"
    entries = (
        _graph_entries(model, graph)
        if graph and not linear
        else [(layer.name, layer, []) for layer in inner_layers(model)]
    )
    paths = module_paths(model)
    rows = []
    for name, layer, sources in entries:
        path = prefix + paths.get(id(layer), name)
        if is_layer(layer):
            own = list(iter_weights(layer, carried=False))
            rows.append(
                LayerRow(
                    name,
                    type(layer).__name__,
                    _shape(shapes.get(path)) or _symbol_shape(layer),
                    sum(scalars(w) for _, w, _ in own),
                    _dtype(layer, [w for _, w, _ in own]),
                    path not in frozen,
                    sources,
                    depth,
                    layer.built,
                )
            )
            if opens(layer):
                rows += _rows(layer, shapes, path + "/", depth + 1, opens, frozen)
        else:
            kind, shape = layer
            rows.append(LayerRow(name, kind, shape, 0, "", True, sources, depth))
    return rows


def _dtype(layer: Any, weights: list[Any]) -> str:
    """The policy, and how quantized weights are stored; or what has no precision."""
    if layer.on_host:
        return "host"
    if layer.dtype == TEXT:
        return TEXT
    stored = [w.get_metadata().get("stored") for w in weights]
    names = dict.fromkeys([*filter(None, stored), layer.precision.name])
    return ", ".join(names)


def _graph_entries(model: Any, graph: Graph) -> list[tuple[str, Any, list[str]]]:
    """(name, layer or the function's shape, where its inputs come from)."""
    inputs = [
        (layer.name, layer, [])
        for layer in model.layers
        if getattr(layer, "is_input", False)
    ]
    names = list(graph.input_names)

    def name_of(node: Node) -> str:
        layer = isinstance(node.target, str) and model.nodes[node.target]
        return layer.name if layer and not layer._auto_name else node.name

    def source(ref: Ref) -> str:
        return names[ref.index] if ref.node < 0 else name_of(graph.nodes[ref.node])

    entries: dict[str, tuple[str, Any, list[str]]] = {}
    for node in graph.nodes:
        refs = [leaf for leaf in node.leaves if isinstance(leaf, Ref)]
        sources = [source(ref) for ref in refs]
        if isinstance(node.target, str):
            layer = model.nodes[node.target]
            entry = entries.setdefault(node.name, (name_of(node), layer, []))
        else:
            function = isinstance(node.target, Lifted)
            kind = "function" if function else type(node.target).__name__
            row = kind, ", ".join(map(str, node.shapes))
            entry = entries.setdefault(node.name, (node.name, row, []))
        entry[2].extend(s for s in sources if s not in entry[2])
    return inputs + list(entries.values())


def _shape(specs: Any) -> str:
    leaves = jax.tree.leaves(specs)
    return ", ".join(str(public_shape(tuple(s.shape))) for s in leaves)


def _symbol_shape(layer: Any) -> str:
    calls = layer._meta.value.calls
    if not calls:
        return "?"
    return ", ".join(str(s.shape) for s in jax.tree.leaves(calls[0].outputs))


def totals(model: Any, flops: float | None) -> list[str]:
    """Lines with the numbers of weights, of the optimizer's state, of operations."""
    groups = {"Trainable": [], "Frozen": [], "Other": []}
    for _, weight, learns in iter_weights(model, carried=False):
        quantized = "stored" in weight.get_metadata()
        fixed = quantized or isinstance(weight, nnx.Param)
        kind = "Trainable" if learns else "Frozen" if fixed else "Other"
        groups[kind].append(weight)
    every = [w for group in groups.values() for w in group]
    lines = [weights_line("Total params", every)]
    lines.append(weights_line("Trainable params", groups["Trainable"]))
    if groups["Frozen"]:
        lines.append(weights_line("Frozen params", groups["Frozen"]))
    lines.append(weights_line("Non-trainable state", groups["Other"]))
    optimizer = _optimizer_leaves(model)
    if optimizer is not None:
        lines.append(weights_line("Optimizer state", optimizer))
    if flops is not None:
        lines.append(f"FLOPs per sample: {amount_text(flops)} (forward)")
    return lines


def _optimizer_leaves(model: Any) -> list[Any] | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built:
        return None
    params = {
        path: jax.ShapeDtypeStruct(w.shape, w.dtype)
        for path, w, learns in iter_weights(model)
        if learns
    }
    return jax.tree.leaves(jax.eval_shape(optimizer.init, params))


def weights_line(label: str, arrays: list[Any]) -> str:
    """How many numbers the arrays hold, and how many bytes they take."""
    number = sum(map(scalars, arrays))
    nbytes = sum(int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for a in arrays)
    return f"{label}: {number:,} ({size_text(nbytes)})"
