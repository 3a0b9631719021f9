"""Where Keras 3 puts the weights of a model in its ``.weights.h5`` files.

Keras names a group after the attribute that holds a layer; layers in lists, and the
``layers`` of a Sequential or functional model, after their class with a number. So the
names follow the order of the layers, which in a functional model is that of their
depth. This module repeats that walk over a model of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from flax import nnx

from exburn.layer import Layer, snake_case
from exburn.layers import SpectralNormalization
from exburn.traversal import children, iter_weights, parts

__all__ = ["Place", "places"]


class Place:
    """Where a layer's own weights are.

    Attributes:
        groups: Names of the group below that of the layer around it, the likeliest
            first.
        layer: The layer.
        name: Its name, which a group has as an attribute.
        inner: The same for the layers in it.
    """

    def __init__(self, groups: list[str], layer: Any, name: str):
        self.groups, self.layer, self.name = groups, layer, name
        self.inner: list[Place] = []


def places(model: Any) -> Place:
    """The layers of a model as Keras walks over them."""
    return _walk(model, [""], model.name, set())


def own_weights(layer: Any) -> list[Any]:
    """The layer's own weights in Keras' order, the trained ones first."""
    direct = {id(v) for _, v in children(layer) if isinstance(v, nnx.Variable)}
    if isinstance(layer, SpectralNormalization):  # Keras' counts the kernel as its own
        direct.add(id(layer._weight))
    weights = iter_weights(layer, carried=False)
    owned = [w for _, w, _ in weights if id(w) in direct]
    return sorted(owned, key=lambda weight: not isinstance(weight, nnx.Param))


def _walk(layer: Any, groups: list[str], name: str, seen: set[int]) -> Place:
    seen.add(id(layer))
    place = Place(groups, layer, name)
    for key, held in _attributes(layer):
        if isinstance(held, Layer):
            if id(held) not in seen:
                place.inner.append(_walk(held, [key], key, seen))
            continue
        used: Counter[str] = Counter()
        for item in held:
            label = _class_label(item)
            number = used[label]
            used[label] += 1
            if id(item) not in seen:
                numbered = f"{label}_{number}" if number else label
                group = f"{key}/{numbered}"
                place.inner.append(_walk(item, [group], item.name, seen))
    return place


def _attributes(layer: Any) -> Iterator[tuple[str, Any]]:
    """Attributes with layers or lists of them, in the order in which Keras looks."""
    graph = getattr(layer, "graph", None)
    if graph is not None:
        yield "layers", [inner for inner in layer.layers if not _is_input(inner)]
        return
    found: dict[str, Any] = {}
    for key, value in vars(layer).items():
        if isinstance(value, Layer):
            found[key] = value
        elif inner := [v for _, v in parts(key, value) if isinstance(v, Layer)]:
            found[key] = inner
    if getattr(layer, "is_model", False):
        found["layers"] = layer._direct_layers()
    for key in sorted(found, key=lambda k: "~" + k if k.startswith("_") else k):
        yield key, found[key]


def _class_label(layer: Any) -> str:
    cls = getattr(type(layer), "stands_for", type(layer))
    if cls.__name__ == "Model":
        return "functional"
    return snake_case(cls.__name__)


def _is_input(layer: Any) -> bool:
    return getattr(layer, "is_input", False)
