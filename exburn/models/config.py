"""A functional model's architecture as JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from exburn import jax_functions, registry
from exburn.errors import ArgumentError, FileFormatError
from exburn.graph import Ref, named_by
from exburn.jax_functions import SPLITTING
from exburn.shapes import public_shape
from exburn.symbol import OPERATIONS, Operation, Symbol, has_symbol, lift

if TYPE_CHECKING:
    from exburn.models.model import Model

__all__ = ["axes_entry", "describe", "rebuild", "restore_axes"]

_MOST_PARTS = 4096


def describe(model: Model) -> dict[str, Any]:
    """The graph with every layer's configuration."""
    graph = model.graph
    assert graph is not None
    layers = {
        key: registry.serialize(layer)
        for key, layer in vars(model.nodes).items()
        if hasattr(layer, "get_config")
    }
    nodes = [
        {
            "name": node.name,
            "call": node.target
            if isinstance(node.target, str)
            else {"operation": _function_name(node.target)},
            "args": _encode(jax.tree.unflatten(node.treedef, node.leaves)),
        }
        for node in graph.nodes
    ]
    inputs = [
        {
            "shape": list(public_shape(s.shape)),
            "dtype": jnp.dtype(s.dtype).name,
            "name": n,
            **({} if axes is None else {"axes": list(axes)}),
        }
        for s, n, axes in zip(graph.inputs, graph.input_names, graph.axes, strict=True)
    ]
    numbers = list(range(len(inputs)))
    policy = {"dtype": model.precision.identifier} if model._own_policy else {}
    return {
        "name": model.name,
        "trainable": model.trainable,
        **policy,
        **axes_entry(model),
        "inputs": inputs,
        "input_structure": _encode(jax.tree.unflatten(graph.input_tree, numbers)),
        "layers": layers,
        "nodes": nodes,
        "outputs": _encode(jax.tree.unflatten(graph.output_tree, graph.outputs)),
    }


def rebuild(cls: type[Model], config: dict[str, Any]) -> Model:
    """Makes the layers and repeats the calls on fresh input symbols."""
    from exburn.layers import Input

    layers = {k: registry.deserialize(v) for k, v in config["layers"].items()}
    inputs = [
        Input(
            batch_shape=tuple(i["shape"]),
            dtype=i["dtype"],
            name=i["name"],
            axes=i.get("axes"),
        )
        for i in config["inputs"]
    ]
    produced: list[list[Any]] = []

    def fetch(ref: Ref) -> Symbol:
        return inputs[ref.index] if ref.node < 0 else produced[ref.node][ref.index]

    for node in config["nodes"]:
        args, kwargs = _decode(node["args"], fetch)
        call = node["call"]
        if isinstance(call, str):
            if call not in layers:
                raise FileFormatError("from_config", f"there is no layer {call!r}")
            target = layers[call]
        else:
            name = call["operation"]
            fn = OPERATIONS.get(name) or jax_functions.named(name)
            fn = fn or registry.lookup(name, "function")
            if not has_symbol((args, kwargs)):
                raise FileFormatError(
                    "from_config", f"the operation {node['name']!r} has no input"
                )
            if registry.from_file() and name.rpartition(".")[2] in SPLITTING:
                _check_parts(args, kwargs)
            target = lift(fn, name=node["name"])
        produced.append(jax.tree.leaves(target(*args, **kwargs)))
    structure = _decode(config["input_structure"], fetch)
    structure = jax.tree.map(lambda i: inputs[i], structure)
    outputs = _decode(config["outputs"], fetch)
    with named_by(layers):
        model = cls(
            structure,
            outputs,
            name=config["name"],
            trainable=config["trainable"],
            dtype=config.get("dtype"),
        )
    return restore_axes(model, config)


def axes_entry(model: Model) -> dict[str, Any]:
    """The entry of a configuration that holds the outputs' axes, if they are named."""
    given = model._run.value.output_axes
    return {} if given is None else {"output_axes": [list(axes) for axes in given]}


def restore_axes(model: Model, config: dict[str, Any]) -> Model:
    """The model, with the names of its outputs' axes from ``axes_entry``."""
    if "output_axes" in config:
        model.output_axes = config["output_axes"]
    return model


def _check_parts(args: Any, kwargs: Any) -> None:
    """Refuses to take a tensor of a file apart into too many symbols."""
    symbols = [v for v in jax.tree.leaves((args, kwargs)) if isinstance(v, Symbol)]
    longest = max(size or 0 for s in symbols for size in (0, *s.shape))
    if longest > _MOST_PARTS:
        raise FileFormatError("from_config", f"a tensor in up to {longest} parts")


def _function_name(operation: Operation) -> str:
    for name, fn in OPERATIONS.items():
        if fn is operation.fn:
            return name
    name = jax_functions.name_of(operation.fn) or registry.registered_name(operation.fn)
    if name is None:
        raise ArgumentError(
            "get_config",
            f"the function {operation.name!r} cannot be described",
            hint="Register it: exburn.register(fn), and use the registered function.",
        )
    return name


def _encode(value: Any) -> Any:
    if isinstance(value, Ref):
        return {"$ref": [value.node, value.index]}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(v) for v in value]}
    if isinstance(value, list):
        return [_encode(v) for v in value]
    if isinstance(value, dict):
        return {"$dict": [[k, _encode(v)] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"$slice": [_encode(v) for v in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"$ellipsis": True}
    return {"$value": registry.serialize(value)}


def _decode(value: Any, fetch: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v, fetch) for v in value]
    kind, body = next(iter(value.items()))
    match kind:
        case "$ref":
            return fetch(Ref(*body))
        case "$tuple":
            return tuple(_decode(v, fetch) for v in body)
        case "$dict":
            return {k: _decode(v, fetch) for k, v in body}
        case "$slice":
            return slice(*(_decode(v, fetch) for v in body))
        case "$ellipsis":
            return Ellipsis
        case "$value":
            return registry.deserialize(body)
    raise FileFormatError("from_config", f"unknown entry {kind!r} in the graph")
