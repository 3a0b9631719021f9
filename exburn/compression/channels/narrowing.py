"""The choice of units that go, and the model without them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np

from exburn.compression.channels.following import follow, input_name
from exburn.compression.channels.units import Units
from exburn.core.checks import check_choice, check_rate
from exburn.core.symbolic_shapes import public_shape
from exburn.errors import ArgumentError
from exburn.layers import Input
from exburn.models import Model
from exburn.models.cloning import clone_model
from exburn.models.copies import carry_training
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights
from exburn.runtime.sharding.arrays import to_host

# Layers within layers: their attribute, and their place in the description.
_WRAPPED = (
    ("layer", "layer"),
    ("forward_layer", "layer"),
    ("backward_layer", "backward_layer"),
)


def narrow(
    model: Model, sparsity: Any, schedule: Any, scope: Any, chosen: set[str]
) -> Model:
    """A model without the least important units of its layers.

    Args:
        sparsity: Share of the units that go; 0.8 if None.
        schedule: Must be None: the shapes of a program do not change.
    """
    op = "prune"
    scope = check_choice(op, "scope", scope, ("global", "layer"))
    sparsity = 0.8 if sparsity is None else sparsity
    sparsity = check_rate(op, "sparsity", sparsity, below_one=True)
    if schedule is not None:
        raise ArgumentError(
            op,
            "channels go at once: a program has one shape, so there is no schedule",
            {"schedule": schedule},
            hint="Prune in steps: prune, fit, prune again.",
        )
    if model.graph is None:
        raise ArgumentError(
            op,
            "channels need a Sequential or functional model, whose graph tells which "
            f"layer reads which, received {type(model).__name__}",
            hint='pattern=None and "n:m" prune any model.',
        )
    if kinds := {record["kind"] for record in model.changes} - {"precision"}:
        raise ArgumentError(
            op,
            f"the model has changes that lie along its channels: {', '.join(kinds)}",
            hint="Take channels away first; or exburn.compression.strip(model) for "
            "masks.",
        )
    units = follow(model)
    if blocked := units.find_blocked(chosen):
        path, reason = next(iter(blocked.items()))
        rest = [one for one in units.producers if one in chosen - blocked.keys()]
        raise ArgumentError(
            op,
            f"the units of {path!r} cannot be followed: {reason}",
            {"layers whose units must stay": ", ".join(blocked)},
            hint=f"filters={rest} names the others." if rest else None,
        )
    gone = _choose(units, sparsity, scope, chosen)
    return _build(model, units, gone)


def _choose(units: Units, sparsity: float, scope: str, chosen: set[str]) -> set[int]:
    """The units that go; at least one of each layer stays."""
    owner = {int(i): p for p, one in units.producers.items() for i in one.ids}
    left = {path: len(one.ids) for path, one in units.producers.items()}
    pools: dict[Any, list[tuple[float, list[int]]]] = {}
    for score, members in units.groups(chosen):
        key = None
        if scope == "layer":  # units that are added belong to several layers
            key = tuple(sorted({owner[one] for one in members}))
        pools.setdefault(key, []).append((score, members))
    if not pools:
        raise ArgumentError(
            "prune",
            "no unit can go: layers that make outputs, or are added to inputs, keep "
            "theirs",
            {"chosen": ", ".join(sorted(chosen)) or "none"},
        )
    gone: set[int] = set()
    for pool in pools.values():
        count = round(sparsity * len(pool))
        for _, members in sorted(pool):
            fewer = Counter(owner[one] for one in members)
            if count and all(left[path] > less for path, less in fewer.items()):
                gone.update(members)
                count -= 1
                for path, less in fewer.items():
                    left[path] -= less
    return gone


def _build(model: Model, units: Units, gone: set[int]) -> Model:
    """The model without some units, with the weights that are left."""
    keep = np.ones(len(units), bool)
    keep[list(gone)] = False
    options: dict[str, dict[str, Any]] = {}
    layers = layer_paths(model)
    paths = {id(layer): path for path, layer in layers.items()}
    for path, one in units.producers.items():
        options.setdefault(path, {})[one.option] = int(keep[one.ids].sum())
    for (path, name), (ids, place) in units.sizes.items():
        size: Any = int(keep[ids].sum())
        if place is not None:
            target = list(getattr(layers[path], name))
            target[place] = size
            size = tuple(target)
        options.setdefault(path, {})[name] = size

    def remake(layer: Any) -> Any:
        path = paths[id(layer)]
        if getattr(layer, "graph", None) is not None:
            inputs = _inputs(layer, path, units, keep)
            return clone_model(layer, inputs, clone_function=remake)
        config = layer.get_config()
        _resize(config, layer, path, options)
        return type(layer).from_config(config)

    narrow = clone_model(model, clone_function=remake)
    narrow.repeat_changes(model.changes)
    old = layers | {"": model}
    for path, layer in [("", narrow), *layer_paths(narrow).items()]:
        layer._trainable = old[path]._trainable
    weights = {path: weight for path, weight, _ in iter_weights(model)}

    def cut(path: str, array: Any) -> np.ndarray:
        value = np.asarray(to_host(array))
        for axis in range(value.ndim):
            if (ids := units.along.get((path, axis))) is not None:
                value = value.compress(keep[ids], axis)
        return value

    for path, weight, _ in iter_weights(narrow):
        weight.assign(cut(path, weights[path].get_value()))
        if weights[path].get_metadata().get("frozen"):
            weight.set_metadata("frozen", True)
    carry_training(narrow, model, cut)
    return narrow


def _resize(config: dict, layer: Any, path: str, options: dict) -> None:
    """Writes the new sizes into the description of a layer, and of those around which
    it is."""
    config.update(options.get(path, {}))
    for part, name in _WRAPPED:
        inner = getattr(layer, part, None)
        if inner is not None and isinstance(config.get(name), dict):
            _resize(config[name]["config"], inner, f"{path}/{part}", options)


def _inputs(model: Any, path: str, units: Units, keep: np.ndarray) -> Any:
    """Inputs for a model within the model, with as many channels as are left."""
    symbols = []
    graph = model.graph
    for number, spec in enumerate(graph.inputs):
        shape = list(public_shape(spec.shape))
        for axis in range(len(shape)):
            ids = units.along.get((input_name(path, number), axis))
            shape[axis] = shape[axis] if ids is None else int(keep[ids].sum())
        name = graph.input_names[number]
        symbols.append(Input(batch_shape=shape, dtype=spec.dtype, name=name))
    return jax.tree.unflatten(graph.input_tree, symbols)
