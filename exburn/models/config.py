"""A functional model's architecture as JSON, and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from exburn.core import jax_dispatch, registry
from exburn.core.jax_dispatch import SPLITTING
from exburn.core.symbolic_shapes import public_shape
from exburn.errors import FileFormatError
from exburn.models.keras_operations import is_operation, keras_operation
from exburn.module.graph import Ref, named_by
from exburn.module.symbolic_tensor import OPERATIONS, Lifted, Symbol, has_symbol, lift

if TYPE_CHECKING:
    from exburn.models.network import Network

_TENSOR = "__keras_tensor__"
_SLICE = ("start", "stop", "step")
_MOST_PARTS = 4096


def describe(model: Network) -> dict[str, Any]:
    """The layers with their configurations and calls, in the form of Keras.

    An operation is an entry like a layer. Calls have numbers, in whose order they are
    repeated: layers with a state see them in it.
    """
    graph = model.graph
    assert graph is not None
    names = entry_names(model)
    calls: dict[str | int, list[int]] = {target: [] for target in graph.order}
    places: dict[int, tuple[str, int]] = {}
    for number, target in enumerate(graph.entries):
        places[number] = names[target], len(calls[target])
        calls[target].append(number)

    def history(ref: Ref) -> list:
        before = ref.node < 0
        name, at = (names[ref.index], 0) if before else places[ref.node]
        return [name, at, 0 if before else ref.index]

    def encode(value: Any) -> Any:
        if not isinstance(value, Ref):
            return _encode(value, encode)
        shapes = graph.nodes[value.node].shapes if value.node >= 0 else None
        shape = shapes[value.index] if shapes else graph.inputs[value.index].shape
        config = {"shape": public_shape(shape), "keras_history": history(value)}
        return {"class_name": _TENSOR, "config": config}

    def call(number: int) -> dict[str, Any]:
        node = graph.nodes[number]
        args, kwargs = jax.tree.unflatten(node.treedef, node.leaves)
        args, kwargs = map(encode, args), {k: encode(v) for k, v in kwargs.items()}
        return {"args": [*args], "kwargs": kwargs, "order": number}

    def ends(value: Any) -> Any:
        return history(value) if isinstance(value, Ref) else _encode(value, ends)

    inputs = [Ref(-1, i) for i in range(len(graph.inputs))]
    own_policy = model._given_policy
    dtype = model.precision if own_policy is None else own_policy
    policy = {"dtype": dtype.identifier} if model._own_policy else {}
    with registry.leaving_functions():
        layers = [
            _entry(model, target)
            | {"name": names[target], "inbound_nodes": [*map(call, calls[target])]}
            for target in graph.order
        ]
    return {
        "name": model.name,
        "trainable": model.trainable,
        **policy,
        **axes_entry(model),
        "layers": layers,
        "input_layers": ends(jax.tree.unflatten(graph.input_tree, inputs)),
        "output_layers": ends(jax.tree.unflatten(graph.output_tree, graph.outputs)),
    }


def entry_names(model: Network) -> dict[str | int, str]:
    """A name of its own for all that is in ``graph.order``."""
    graph = model.graph
    assert graph is not None
    names: dict[str | int, str] = {t: t for t in graph.order if isinstance(t, str)}
    taken = set(names.values())
    for target in graph.order:
        if isinstance(target, int):
            layer = input_layer(model.inputs[target]) if target >= 0 else None
            input_name = graph.input_names[target] if target >= 0 else ""
            base = layer.name if layer else input_name or graph.nodes[-1 - target].name
            further = (f"{base}_{i}" for i in itertools.count(1))
            names[target] = next(
                n for n in itertools.chain([base], further) if n not in taken
            )
            taken.add(names[target])
    return names


def _entry(model: Network, target: str | int) -> dict[str, Any]:
    """What is said of a layer, an input or an operation, without its calls."""
    graph = model.graph
    assert graph is not None
    if isinstance(target, str):
        return registry.serialize(vars(model.nodes)[target])
    if target >= 0:
        return input_entry(model.inputs[target], graph.input_names[target])
    node = graph.nodes[-1 - target]
    if not isinstance(node.target, Lifted):
        return registry.describe(node.target)
    return {
        "module": "exburn.ops",
        "class_name": node.name.title().replace("_", ""),
        "config": {"name": node.name},
        "registered_name": None,
        "operation": _describe_operation(node.target),
    }


def input_entry(symbol: Symbol, name: str) -> dict[str, Any]:
    """An input as a file has it; a symbol from inside another model has no layer."""
    layer = input_layer(symbol)
    shape, dtype = public_shape(symbol.shape), symbol.dtype
    config = {"batch_shape": shape, "dtype": dtype, "name": name}
    return {
        "module": "exburn.layers",
        "class_name": "InputLayer",
        "config": config if layer is None else layer.get_config(),
        "registered_name": None,
    }


def input_layer(symbol: Symbol) -> Any:
    """The layer of ``Input``; a symbol from inside another model has none."""
    layer = symbol.call and symbol.call.callee
    return layer if getattr(layer, "is_input", False) else None


def rebuild(cls: Callable[..., Any], config: dict[str, Any]) -> Network:
    """Makes the layers and repeats the calls on fresh input symbols.

    In the order that we number calls in; Keras does not, and repeats what has its
    inputs, layer by layer, until nothing is left.
    """
    layers, produced = {}, {}
    for entry in config["layers"]:
        name = entry["name"]
        if "operation" not in entry and not is_operation(entry):
            layers[name] = registry.deserialize(entry)
        if getattr(layers.get(name), "is_input", False):
            produced[name, 0] = [layers[name].output]
    first = _first_calls(config, layers)

    def fetch(history: Any) -> Symbol:
        name, at, index = history
        outputs = produced.get((name, at), ())
        if not 0 <= index < len(outputs):
            raise FileFormatError("from_config", f"there is no tensor {history!r} yet")
        return outputs[index]

    def repeat(entry: dict[str, Any], at: int, node: dict[str, Any]) -> None:
        args = [_decode(value, fetch) for value in node["args"]]
        kwargs = {k: _decode(value, fetch) for k, value in node["kwargs"].items()}
        name = entry["name"]
        if not has_symbol((args, kwargs)):
            raise FileFormatError("from_config", f"a call of {name!r} has no input")
        target = layers[name] if name in layers else _operation(entry, args, kwargs)
        outputs = jax.tree.leaves(target(*args, **kwargs))
        produced[name, first.get(name, 0) + at] = outputs

    calls = [
        (entry, at, node)
        for entry in config["layers"]
        for at, node in enumerate(entry["inbound_nodes"])
    ]
    if all("order" in node for _, _, node in calls):
        for call in sorted(calls, key=lambda call: call[2]["order"]):
            repeat(*call)
        calls = []
    while calls:
        left = [call for call in calls if not _repeat_call(call, produced, repeat)]
        if len(left) == len(calls):
            repeat(*left[0])  # raises what is missing
        calls = left
    with named_by(layers):
        model = cls(
            _ends(config["input_layers"], fetch),
            _ends(config["output_layers"], fetch),
            name=config.get("name"),
            trainable=config.get("trainable", True),
            dtype=config.get("dtype"),
        )
    return restore_axes(model, config)


def _repeat_call(call: tuple, produced: Any, repeat: Any) -> bool:
    entry, at, node = call
    ready = all(tuple(h[:2]) in produced for h in _histories(node))
    if ready:
        repeat(entry, at, node)
    return ready


def _histories(value: Any) -> Iterator[list]:
    """The tensors that a call refers to."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _histories(one)
    elif isinstance(value, dict):
        if value.get("class_name") == _TENSOR:
            yield value["config"]["keras_history"]
        else:
            yield from _histories(list(value.values()))


def _first_calls(config: dict[str, Any], layers: dict[str, Any]) -> dict[str, int]:
    """What the first call of a model inside is numbered by.

    In Keras a functional model that was made anew has been called once, by itself.
    """
    nodes = [node for entry in config["layers"] for node in entry["inbound_nodes"]]
    histories = [*_histories(nodes), *_ends(config["input_layers"], None, flat=True)]
    histories += _ends(config["output_layers"], None, flat=True)
    first: dict[str, int] = {}
    for name, at, _ in histories:
        if getattr(layers.get(name), "graph", None) is not None:
            first[name] = min(at, first.get(name, at))
    return first


def _operation(entry: dict[str, Any], args: Any, kwargs: Any) -> Any:
    """A function on symbols, as a file names it or a configuration holds it."""
    if "operation" not in entry:
        name, function = keras_operation(entry)
        if registry.from_file() and name in SPLITTING:
            _check_parts(args, kwargs)
        return function
    name, label = entry["operation"], entry["config"]["name"]
    if not isinstance(name, str):
        if registry.from_file() or not callable(name):
            raise FileFormatError("from_config", f"{name!r} is no function")
        return lift(name, name=label)
    if registry.from_file() and name.rpartition(".")[2] in SPLITTING:
        _check_parts(args, kwargs)
    fn = OPERATIONS.get(name) or jax_dispatch.function_named(name)
    return lift(fn or registry.lookup(name, "function"), name=label)


def axes_entry(model: Network) -> dict[str, Any]:
    """The entry of a configuration that holds the outputs' axes, if they are named."""
    axes = model._training_session.output_axes
    return {} if axes is None else {"output_axes": [list(names) for names in axes]}


def restore_axes(model: Network, config: dict[str, Any]) -> Network:
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


def _describe_operation(operation: Any) -> Any:
    """The name of an operation's function in files, or the function itself."""
    for name, fn in OPERATIONS.items():
        if fn is operation.fn:
            return name
    name = jax_dispatch.name_of(operation.fn)
    own = registry.registered_name(operation.fn)  # whole: an op may be its namesake
    if name is None and own is not None and own not in SPLITTING:
        return own
    described = name or registry.serialize(operation.fn)
    return described["config"] if isinstance(described, dict) else described


def _encode(value: Any, encode: Any) -> Any:
    """Arguments, or what the model takes and returns; ``encode`` is for the parts."""
    if isinstance(value, tuple):
        return {"class_name": "__tuple__", "items": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and "class_name" not in value:
            return {key: encode(v) for key, v in value.items()}
        items = [[key, encode(v)] for key, v in value.items()]
        return {"class_name": "__dict__", "items": items}
    if isinstance(value, slice):
        parts = {key: encode(getattr(value, key)) for key in _SLICE}
        return {"class_name": "__slice__", "config": parts}
    if isinstance(value, nnx.Variable):  # as functions: for copies, not for files
        return value
    return registry.serialize(value)


def _decode(value: Any, fetch: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_decode(v, fetch) for v in value]
    if not isinstance(value, dict):
        return value
    match value.get("class_name"):
        case None:
            return {key: _decode(v, fetch) for key, v in value.items()}
        case "__keras_tensor__":
            return fetch(value["config"]["keras_history"])
        case "__tuple__":
            return tuple(_decode(v, fetch) for v in value["items"])
        case "__dict__":
            return {key: _decode(v, fetch) for key, v in value["items"]}
        case "__slice__":
            return slice(*(_decode(value["config"][key], fetch) for key in _SLICE))
    return registry.deserialize(value)


def _ends(value: Any, fetch: Any, *, flat: bool = False) -> Any:
    """The symbols that a model takes or returns, in their structure, or as a list."""
    if flat:
        symbols: list[Any] = []
        _ends(value, symbols.append)
        return symbols
    if isinstance(value, list | tuple):
        if [type(v) for v in value] == [str, int, int]:
            return fetch(value)
        return [_ends(v, fetch) for v in value]
    if value.get("class_name") == "__tuple__":
        return tuple(_ends(v, fetch) for v in value["items"])
    if value.get("class_name") == "__dict__":
        return {key: _ends(v, fetch) for key, v in value["items"]}
    return {key: _ends(v, fetch) for key, v in value.items()}
