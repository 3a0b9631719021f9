"""A model as plain data: its classes, how they were called, and what is frozen.

What cannot be described is an error here, before anything is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from exburn.core import registry
from exburn.core.precision import default_precision
from exburn.core.symbolic_shapes import public_shape, spec_of
from exburn.errors import ArgumentError, FileFormatError
from exburn.module.building import infer, materialize
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules, iter_weights

_LONG = 256  # entries of a list of words or numbers that is kept as a tensor
_MAX_RANK = 32
_MAX_CLASSES = (500, 30)  # objects of a model, and more for each of its tensors
_MAX_CALLS = (10_000, 20)  # of layers in a model, and more for each of its objects
_LARGEST = 2**22  # sizes in a description, unless a tensor has a larger one
# Values, not sizes: nothing is as large as they are.
_NO_SIZES = frozenset(
    "seed salt num_bins max_tokens vocabulary mask_token oov_token mask_value value "
    "max_value min_value threshold fill_value shared_object_id begin end every".split()
)


def describe_model(model: Any) -> dict[str, Any]:
    """Classes and arguments of a model or layer; ``make_model`` is the inverse.

    JSON-able.

    Raises:
        ArgumentError: A part of it has no description (see ``exburn.register``).
    """
    with registry.sharing():
        description = registry.serialize(model)
        _number_only_shared(description)
        calls = [
            [path, _describe_call(layer)] for path, layer in _layers_with_calls(model)
        ]
        layers = [(p, m) for p, m in iter_modules(model) if isinstance(m, Layer)]
        description["calls"] = calls
        description["builds"] = [
            [path, config]
            for path, layer in _built_by_hand(model)
            if (config := layer.get_build_config()) is not None
        ]
        if model.is_model:
            description["changes"] = model.changes  # of quantize(), add_lora() …
        description["built"] = bool(model.built)
        # the process' default when it was made, for layers that no entry tells of
        description["precision"] = model.precision.identifier
        description["frozen"] = {
            "layers": [path for path, layer in layers if not layer._trainable],
            "weights": [
                path
                for path, weight, _ in iter_weights(model)
                if weight.get_metadata().get("frozen")
            ],
        }
        return registry.serialize(description)  # a user's get_config may hold objects


def to_json(description: Any, **options: Any) -> str:
    """JSON of a description.

    Raises:
        ArgumentError: A ``get_config`` returned something that is no plain data.
    """
    try:
        return json.dumps(description, **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "get_config",
            f"a configuration holds what JSON cannot: {error}",
            hint="get_config returns numbers, strings, lists and dicts.",
        ) from error


def _number_only_shared(description: Any) -> None:
    """Takes away the numbers of objects that occur once."""
    numbered: list[dict] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            if "shared_object_id" in value:
                numbered.append(value)
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    collect(description)
    often = Counter(value["shared_object_id"] for value in numbered)
    for value in numbered:
        if often[value["shared_object_id"]] == 1:
            del value["shared_object_id"]


def _layers_with_calls(model: Any) -> Iterator[tuple[str, Layer]]:
    """Layers whose calls tell what is built in them."""
    return (
        (path, layer)
        for path, layer in _outside_of_graphs(model)
        if layer._meta.value.traced is not None
    )


def _built_by_hand(model: Any) -> Iterator[tuple[str, Layer]]:
    """Layers that were built, by ``adapt`` for instance, and that no call reached."""
    return (
        (path, layer)
        for path, layer in _outside_of_graphs(model)
        if layer.built and layer._meta.value.traced is None
    )


def _outside_of_graphs(model: Any) -> Iterator[tuple[str, Layer]]:
    """The layers of a model but those of graphs, which know their own calls."""
    visited: set[int] = set()
    for path, module in iter_modules(model):
        if id(module) in visited or not isinstance(module, Layer):
            continue
        if getattr(module, "graph", None) is not None:
            visited |= {id(inner) for _, inner in iter_modules(module)}
        else:
            yield path, module


def largest_size(shapes: Iterable[tuple[int, ...]]) -> int:
    """The largest number that a description of a model with such tensors may hold."""
    return max([_LARGEST, *(size for shape in shapes for size in shape)])


def check_numbers(description: Any, most: int) -> None:
    """Refuses sizes that no tensor has: a layer may allocate or count by them.

    Raises:
        FileFormatError: There is one.
    """
    if isinstance(description, dict):
        for key, value in description.items():
            if key == "inbound_nodes":
                _check_calls(value, most)
            elif key not in _NO_SIZES and not (key == "$value" and _is_int(value)):
                check_numbers(value, most)
    elif isinstance(description, list | tuple):
        for value in description:
            check_numbers(value, most)
    elif _is_int(description) and abs(description) > most:
        raise FileFormatError(
            "save",
            f"the model has a size of {description}, which none of its weights has",
            hint="Leave axes longer than that open: Input((None, …)).",
        )


def _check_calls(description: Any, most: int) -> None:
    """Checks arguments: any numbers are allowed, but not those of objects."""
    if isinstance(description, dict):
        if description.get("class_name") == "__keras_tensor__":
            return
        for key, value in description.items():
            check = check_numbers if key == "config" else _check_calls
            check(value, most)
    elif isinstance(description, list | tuple):
        for value in description:
            _check_calls(value, most)


def too_many(description: Any, tensors: int) -> bool:
    """Whether a description has more objects than so many tensors stand for."""
    objects = _objects(description)
    many = objects > _MAX_CLASSES[0] + _MAX_CLASSES[1] * tensors
    return many or calls_too_often(description)


def calls_too_often(description: Any) -> bool:
    """Whether to build a model takes far more calls of layers than it has layers.

    A model that calls one twice, which calls one twice …, has two calls for each level
    in its description, and makes two to the power of the levels.
    """
    return _calls(description) > _MAX_CALLS[0] + _MAX_CALLS[1] * _objects(description)


def _calls(description: Any, least: int = 0) -> int:
    """How many calls of layers a call of what is described makes."""
    if isinstance(description, list):
        return sum(map(_calls, description))
    if not isinstance(description, dict):
        return 0
    inner = 0
    for key, value in description.items():
        if key == "layers" and isinstance(value, list):
            inner += sum(_calls(layer, least=1) for layer in value)
        elif key != "inbound_nodes":
            inner += _calls(value)
    nodes = description.get("inbound_nodes")
    count = len(nodes) if isinstance(nodes, list) else 1
    return max(least, inner) * max(1, count)


def _objects(description: Any) -> int:
    if isinstance(description, dict):
        name = description.get("class_name")
        plain = name == "__keras_tensor__" or "operation" in description
        is_object = "class_name" in description and not plain
        return is_object + sum(map(_objects, description.values()))
    return sum(map(_objects, description)) if isinstance(description, list) else 0


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# ---------------------------------------------------------------------- calls
def _describe_call(layer: Layer) -> Any:
    traced = layer._meta.value.traced
    assert traced is not None
    rebuild, specs = traced
    return _encode(rebuild(specs))


def _encode(value: Any) -> Any:
    if isinstance(value, jax.ShapeDtypeStruct):
        return {"$spec": [list(public_shape(value.shape)), np.dtype(value.dtype).name]}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(v) for v in value]}
    if isinstance(value, list):
        return [_encode(v) for v in value]
    if isinstance(value, Mapping):
        return {"$dict": [[k, _encode(v)] for k, v in value.items()]}
    return {"$value": registry.serialize(value)}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v) for v in value]
    (kind, body), *more = value.items()
    match kind:
        case "$spec" if not more:
            shape, dtype = body
            if len(shape) > _MAX_RANK:
                raise FileFormatError("load", f"an input of rank {len(shape)}")
            return spec_of(tuple(shape), dtype)
        case "$tuple":
            return tuple(_decode(v) for v in body)
        case "$dict":
            return {k: _decode(v) for k, v in body}
        case "$value":
            return registry.deserialize(body)
    raise FileFormatError("load", f"unknown entry {kind!r} in a call")


def _repeat_call(layer: Layer, description: Any) -> None:
    leaves, treedef = jax.tree.flatten(_decode(description))
    places = [i for i, v in enumerate(leaves) if isinstance(v, jax.ShapeDtypeStruct)]

    def rebuild(values: Any) -> Any:
        full = list(leaves)
        for i, value in zip(places, values, strict=True):
            full[i] = value
        return jax.tree.unflatten(treedef, full)

    infer(layer, rebuild, [leaves[i] for i in places])


# ---------------------------------------------------------------------- rebuilding
def make_model(description: Any) -> Any:
    """The model of a description; its weights are specs while a file is being read.

    Raises:
        FileFormatError: The description is not of a model or layer.
        UnknownNameError: It names a class or function that is not registered.
    """
    with default_precision(description.get("precision")):
        return _make_model(description)


def _make_model(description: Any) -> Any:
    with registry.sharing():
        model = registry.deserialize(description)
    if not isinstance(model, Layer):
        raise FileFormatError("load", "the outermost object is no model and no layer")
    modules = dict(iter_modules(model))
    for path, call in description.get("calls", []):
        if path in modules:
            _repeat_call(modules[path], call)
            modules = dict(iter_modules(model))
    for path, config in description.get("builds", []):
        if path in modules and not modules[path].built:
            modules[path].build_from_config(config)
            modules = dict(iter_modules(model))
    if description.get("built"):
        model.built = True
    root: Any = model
    if root.is_model:
        root.repeat_changes(description.get("changes"))
    restore(model, description.get("frozen"))
    return model


def restore(model: Any, frozen: Any) -> None:
    """Freezes the layers and weights that are listed, and no others."""
    if frozen is None:
        return
    layers, weights = set(frozen["layers"]), set(frozen["weights"])
    for path, module in iter_modules(model):
        if isinstance(module, Layer) and module._trainable == (path in layers):
            module._trainable = path not in layers
    for path, weight, _ in iter_weights(model):
        if path in weights:
            weight.set_metadata("frozen", True)


def from_json(description: Any) -> Any:
    """The model of a description, with fresh weights; nothing else is read."""
    with registry.reading_file():
        model = make_model(description)
    if model.built:
        materialize(model)
    return model


# ---------------------------------------------------------------------- long lists
def hoist(description: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Moves long lists of words or numbers out of a description, into arrays.

    Returns:
        The description with a reference in each list's place, and the arrays.

    Example:
        >>> described, arrays = hoist({"vocabulary": ["a"] * 300})
        >>> described, arrays["/words/0"].size
        ({'vocabulary': {'$words': '/words/0'}}, 599)
    """
    arrays: dict[str, np.ndarray] = {}

    def replace(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: replace(v) for k, v in value.items()}
        if not isinstance(value, list):
            return value
        array = _as_array(value) if len(value) >= _LONG else None
        if array is None:
            return [replace(v) for v in value]
        kind = "words" if array.dtype == np.uint8 else "numbers"
        name = f"/{kind}/{len(arrays)}"
        arrays[name] = array
        return {f"${kind}": name}

    return replace(description), arrays


def _as_array(values: list) -> np.ndarray | None:
    kinds = {type(v) for v in values}
    if kinds == {str} and not any("\0" in v for v in values):
        text = "\0".join(values).encode("utf-8", "surrogatepass")
        return np.frombuffer(text, np.uint8)
    if kinds == {float}:
        return np.array(values, np.float64)
    if kinds == {int} and all(-(2**63) <= v < 2**63 for v in values):
        return np.array(values, np.int64)
    return None


def lower(description: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of :func:`hoist`, and of ``registry.keeping_arrays``."""
    if isinstance(description, dict):
        if set(description) == {"$array"}:
            return arrays[description["$array"]]
        if set(description) == {"$words"}:
            text = arrays[description["$words"]].tobytes()
            return text.decode("utf-8", "surrogatepass").split("\0")
        if set(description) == {"$numbers"}:
            return arrays[description["$numbers"]].tolist()
        return {k: lower(v, arrays) for k, v in description.items()}
    if isinstance(description, list):
        return [lower(v, arrays) for v in description]
    return description
