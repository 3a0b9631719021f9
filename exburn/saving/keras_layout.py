"""Where Keras 3 puts the weights of a model in its ``.weights.h5`` files.

A group is named after the attribute that holds a layer. Keras looks at the attributes
by name, private ones last, properties of a user's class among them; before all others
at the ``layers`` of a Sequential or functional model. In a list, tuple or dict a layer
is named after its class, and a container in it ``container``, each with a number from
the second of its kind on: ``blocks/container_1/dense``. Every layer is written once, at
the first place where it is met, but counts at the others. This module repeats that walk
over a model of ours.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from flax import nnx

from exburn.core.batch_independence import is_foreign
from exburn.core.containers import CONTAINERS
from exburn.core.registry import snake_case
from exburn.layers import (
    GroupQueryAttention,
    MultiHeadAttention,
    SpectralNormalization,
    TextVectorization,
)
from exburn.losses import Loss
from exburn.metrics import Metric
from exburn.module.layer import Layer
from exburn.module.traversal import children, iter_weights
from exburn.optimizers import Optimizer

_SAVED = (Layer, Metric, Optimizer, Loss)
_HOLDERS = (*CONTAINERS, nnx.List, nnx.Dict)
# What Keras calls the attributes of layers of ours, in its order of looking.
_RENAMED: dict[type, dict[str, tuple[str, ...]]] = {
    attention: {
        ours: (f"{theirs}_dense", f"_{theirs}_dense")
        for ours, theirs in {
            "query": "query",
            "key": "key",
            "value": "value",
            "gate": "gate",
            "attention_output": "output",
        }.items()
    }
    for attention in (MultiHeadAttention, GroupQueryAttention)
} | {TextVectorization: {"lookup": ("_lookup_layer",)}}


def walk(model: Any, has: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    """The layers, metrics and optimizers of a model, each with its group in a file.

    Args:
        has: Whether the file has a group of that path. Something that is not where it
            is met first is looked for where it is met next: Keras before 3.14 wrote no
            containers inside of containers, whose layers are among ``layers`` then.
    """
    visited: set[int] = set()

    def part(value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if id(value) in visited or not has(path):
            return
        visited.add(id(value))
        yield path, value
        if not isinstance(value, Layer):
            return
        for name, child in _attributes(value):
            if isinstance(child, _SAVED):
                yield from part(child, f"{path}/{name}".lstrip("/"))
            elif isinstance(child, _HOLDERS):
                yield from container(child, f"{path}/{name}".lstrip("/"), set())

    def container(
        holder: Any, path: str, within: set[int]
    ) -> Iterator[tuple[str, Any]]:
        if id(holder) in within:
            return
        within.add(id(holder))
        used: Counter[str] = Counter()
        for value in _entries(holder):
            saved = isinstance(value, _SAVED)
            if not saved and not isinstance(value, _HOLDERS):
                continue
            label = _class_label(value) if saved else "container"
            number = used[label]
            used[label] += 1
            inner = f"{path}/{label}_{number}" if number else f"{path}/{label}"
            yield from part(value, inner) if saved else container(value, inner, within)

    yield from part(model, "")


def own_weights(layer: Any) -> list[Any]:
    """The layer's own weights in Keras' order, the trained ones first."""
    direct = {id(v) for _, v in children(layer) if isinstance(v, nnx.Variable)}
    if isinstance(layer, SpectralNormalization):  # Keras' counts the kernel as its own
        direct.add(id(layer._weight))
    weights = iter_weights(layer, carried=False)
    owned = [w for _, w, _ in weights if id(w) in direct]
    return sorted(owned, key=lambda weight: not isinstance(weight, nnx.Param))


def config_groups(config: Any, group: str = "") -> Iterator[tuple[str, dict]]:
    """The layers in the configuration of a model's graph, each with its group.

    Where a model of ours is not there yet. Layers within other layers are left out.

    Args:
        config: What the model's class was given.
        group: That of the model.

    Example:
        >>> layers = [{"class_name": "Dense", "config": {}}] * 2
        >>> [group for group, _ in config_groups({"layers": layers})]
        ['layers/dense', 'layers/dense_1']
    """
    entries = config.get("layers") if isinstance(config, dict) else None
    used: Counter[str] = Counter()
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("config"), dict):
            continue
        label = snake_case(str(entry.get("class_name")).rpartition(">")[2])
        number = used[label]
        used[label] += 1
        inner = f"{group}/layers/{label}".lstrip("/") + (f"_{number}" if number else "")
        yield inner, entry
        yield from config_groups(entry["config"], inner)


def _entries(holder: Any) -> Iterator[Any]:
    mapping = isinstance(holder, dict | nnx.Dict)
    return iter([holder[key] for key in holder] if mapping else holder)


def _attributes(layer: Any) -> Iterator[tuple[str, Any]]:
    """What Keras looks at in a layer, in its order."""
    graph = isinstance(vars(layer).get("nodes"), nnx.Dict)
    if graph:
        yield "layers", layer.layers
    renamed = next((v for k, v in _RENAMED.items() if isinstance(layer, k)), {})
    attributes = {
        name: value
        for key, value in vars(layer).items()
        if not (graph and key == "nodes")
        for name in renamed.get(key, (key,))
    }
    for name in _computed_names(type(layer)) - attributes.keys():
        try:
            attributes[name] = getattr(layer, name)
        except Exception:  # as in Keras: it has none just now
            continue
    if getattr(layer, "is_model", False):
        attributes["layers"] = layer.layers
    for name in sorted(
        attributes, key=lambda name: f"~{name}" if name[0] == "_" else name
    ):
        yield name, attributes[name]


@functools.cache
def _computed_names(cls: type) -> frozenset[str]:
    """Names of properties and of values that a user's class has for its instances."""
    kinds = (property, functools.cached_property, *_SAVED, *CONTAINERS)
    return frozenset(
        name
        for base in cls.__mro__
        if is_foreign(base)
        for name, value in vars(base).items()
        if isinstance(value, kinds) and name[:2] != "__" and not hasattr(Layer, name)
    )


def _class_label(value: Any) -> str:
    """The snake case of Keras' files: ``Conv2D`` is ``conv2d``."""
    cls = getattr(type(value), "stands_for", type(value))
    return snake_case(vars(cls).get("_keras_name", cls.__name__))
