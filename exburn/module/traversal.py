"""Walking through a module: its layers, its weights, and their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from flax import nnx
from jax.core import Tracer

from exburn.core.containers import CONTAINERS, entries, made_at
from exburn.module.variable import Weight

#: The attribute with what a layer's call reaches, and no other attribute leads to.
REACHED = "_reached"

#: The attribute of a class whose objects are read in the place of a weight: it names
#: the attribute with that weight, which keeps the path that it had. Whatever knows a
#: weight by its path (an optimizer's state and its patterns, layouts, files) finds it.
IN_PLACE_OF = "_in_place_of"

# What an attribute is, by its type: ``isinstance`` takes a microsecond for each, and a
# call of a model looks at hundreds.
_OTHER, _BUILTIN, _CONTAINER, _TREE, _MODULE, _RNG, _BUFFER, _PARAMETER = range(8)
_kinds: dict[type, int] = {}


def children(module: Any) -> Iterator[tuple[str, Any]]:
    """Modules and variables directly inside, in the order of the attributes.

    Containers that a model keeps its layers in (``nodes``) add no path segment. What a
    layer's call reaches by other ways than attributes comes last, by its name.
    """
    yield from _attribute_parts(module)
    yield from _reached_parts(module)


def _attribute_parts(module: Any) -> Iterator[tuple[str, Any]]:
    for key, value in vars(module).items():
        kind = _kinds.get(type(value))
        if kind is None:
            kind = _kind(value)
        if kind == _OTHER or key.startswith("_pytree__") or key == REACHED:
            continue
        if kind >= _MODULE:
            yield key, value
        elif kind == _CONTAINER and key == "nodes":
            yield from _attribute_parts(value)
        elif kind != _BUILTIN or module._pytree__nodes.get(key):  # it may hold some
            yield from parts(key, value)


def _reached_parts(module: Any) -> Iterator[tuple[str, Any]]:
    return iter(vars(module).get(REACHED, {}).items())


def in_tracked_order(module: Any, parts: Iterable[tuple[str, Any]]) -> list:
    """Parts of a module in the order in which Keras comes to know of them.

    It sees a part that is made before it is put into an attribute as soon as it is, one
    that is appended to a list in an attribute when it is made. What calls reach by
    other ways comes last. A model's graph has an order of its own.
    """
    meta = vars(module).get("_meta")
    if meta is None or isinstance(vars(module).get("nodes"), nnx.Dict):
        return list(parts)
    held_since, reached = meta.value.held_since, vars(module).get(REACHED, {})

    def known_since(item: tuple[str, Any]) -> tuple[bool, int]:
        key, part = item
        since = held_since.get(key.partition("/")[0], 0)
        return key in reached, max(since, made_at(part))

    return sorted(parts, key=known_since)


def parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Modules and variables in an attribute: itself, or what the container holds."""
    kind = _kinds.get(type(value)) or _kind(value)
    if kind >= _MODULE:
        yield path, value
    elif kind == _BUILTIN:
        for key, one in entries(value):
            yield from parts(f"{path}/{key}", one)
    elif kind != _OTHER:
        inside = children(value)
        exact = getattr(type(value), IN_PLACE_OF, None)
        yield from ((path if k == exact else f"{path}/{k}", one) for k, one in inside)


def _kind(value: Any) -> int:
    tests = (
        (_BUILTIN, CONTAINERS),
        (_CONTAINER, nnx.List | nnx.Dict),
        (_MODULE, nnx.Module),
        (_RNG, nnx.RngState),
        (_PARAMETER, nnx.Param),
        (_BUFFER, nnx.Variable),
        (_TREE, nnx.Pytree),
    )
    kind = next((kind for kind, type_ in tests if isinstance(value, type_)), _OTHER)
    if not isinstance(value, Tracer):  # it may stand for a variable
        _kinds[type(value)] = kind
    return kind


def iter_modules(root: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every module below (and with) ``root``, each once, with its path.

    A path by attributes goes before one by what a call reaches.
    """
    seen: set[int] = set()
    later: list[tuple[Any, str]] = []

    def walk(module, path):
        if id(module) in seen:
            return
        seen.add(id(module))
        yield path, module
        for key, child in in_tracked_order(module, _attribute_parts(module)):
            if isinstance(child, nnx.Module):
                yield from walk(child, f"{path}/{key}" if path else key)
        for key, child in _reached_parts(module):
            if isinstance(child, nnx.Module):
                later.append((child, f"{path}/{key}" if path else key))

    yield from walk(root, prefix)
    for module, path in later:  # it grows
        yield from walk(module, path)


def module_paths(root: Any) -> dict[int, str]:
    """``id(module) -> path`` below the root."""
    return {id(m): path for path, m in iter_modules(root)}


def survey(root: Any) -> tuple[dict[int, str], list[Any]]:
    """``module_paths``, and the modules that reach what no attribute leads to."""
    paths, reaching = {}, []
    for path, module in iter_modules(root):
        paths[id(module)] = path
        if REACHED in vars(module):
            reaching.append(module)
    return paths, reaching


def iter_weights(
    root: Any,
    *,
    carried: bool = True,
    beside: Callable[[Any], Iterable[tuple[str, Weight]]] | None = None,
) -> Iterator[tuple[str, Weight, bool]]:
    """Every weight below ``root`` once: its path, itself, and whether it is trained.

    Without ``carried``, the states of stateful layers are left out, which are only
    carried from call to call. In Keras they are variables, but no weights. ``beside``
    tells of what belongs to a module and is no part of it.

    As in Keras, nothing is if ``root`` is frozen; else the innermost layer that holds a
    weight decides, not those around that one: whoever freezes a layer freezes all in
    it, and may then train some of it. A parameter whose metadata say ``frozen`` is not
    trained, whatever its layer says.

    In Keras' order: a layer's own weights, the trainable ones first, then those of
    the layers in it.
    """
    seen: set[int] = set()
    later: list[tuple[Any, str, bool]] = []
    asked = getattr(root, "_trainable", True)

    def walk(module, path, trainable):
        if id(module) in seen:
            return
        seen.add(id(module))
        trainable = asked and getattr(module, "_trainable", trainable)
        for key, child in _reached_parts(module):
            later.append((child, f"{path}/{key}" if path else key, trainable))
        own, inner = [], []
        for key, child in in_tracked_order(module, _attribute_parts(module)):
            child_path = f"{path}/{key}" if path else key
            kind = _kinds.get(type(child)) or _kind(child)
            if kind == _MODULE:
                inner.append((child, child_path))
            elif kind != _RNG and id(child) not in seen:
                seen.add(id(child))
                if (weight := entry(child, child_path, kind, trainable)) is not None:
                    own.append(weight)
        for child_path, child, learned, _ in sorted(own, key=lambda w: not w[3]):
            yield child_path, child, learned
        for name, variable in beside(module) if beside else ():
            if id(variable) not in seen:
                seen.add(id(variable))
                yield f"{path}/{name}" if path else name, variable, False
        for child, child_path in inner:
            yield from walk(child, child_path, trainable)

    def entry(weight, path, kind, trainable):
        meta = weight.get_metadata()
        if not carried and meta.get("carried", False):
            return None
        learns = kind == _PARAMETER
        learned = trainable and learns and not meta.get("frozen", False)
        return path, weight, learned, learns

    yield from walk(root, "", True)
    for child, path, trainable in later:  # it grows
        kind = _kinds.get(type(child)) or _kind(child)
        if kind == _MODULE:
            yield from walk(child, path, trainable)
        elif kind != _RNG and id(child) not in seen:
            seen.add(id(child))
            if (weight := entry(child, path, kind, trainable)) is not None:
                yield weight[:3]


def corresponding(first: Any, second: Any) -> Iterator[tuple[Any, Any]]:
    """The parts of a module and of a copy of it, pair by pair: modules and variables.

    They are matched by the attributes and containers that hold them, each once. What
    only one of them has, or has in another form, is left out.
    """
    seen: set[int] = set()

    def walk(one, two):
        kind = _kinds.get(type(one))
        if kind is None:
            kind = _kind(one)
        if kind == _OTHER or id(one) in seen:
            return
        seen.add(id(one))
        if kind == _BUILTIN:
            others = dict(entries(two)) if isinstance(two, CONTAINERS) else {}
            inside = entries(one)
        else:
            variable = isinstance(one, nnx.Variable)
            if variable is not isinstance(two, nnx.Variable):
                return
            if not (variable or isinstance(two, nnx.Pytree)):
                return
            yield one, two
            if variable:
                return
            others, inside = vars(two), vars(one).items()
        for key, value in inside:
            if key in others and not str(key).startswith("_pytree__"):
                yield from walk(value, others[key])

    yield from walk(first, second)


def own_weights(layer: Any) -> Iterator[tuple[str, Weight]]:
    """The weights of a layer that are in no layer inside of it, by path from here.

    Those of plain flax modules in it are its own.
    """
    for key, child in children(layer):
        if isinstance(child, nnx.Module):
            if not hasattr(child, "_meta"):
                yield from ((f"{key}/{k}", w) for k, w in own_weights(child))
        elif not isinstance(child, nnx.RngState):
            yield key, child


def direct_layers(layer: Any) -> list[Any]:
    """The layers directly inside, each once, in Keras' order."""
    parts = in_tracked_order(layer, children(layer))
    layers = {id(part): part for _, part in parts if hasattr(part, "_meta")}
    return list(layers.values())


def held_metrics(root: Any) -> list[Any]:
    """Metrics in attributes of the modules, directly or in lists, tuples and dicts."""
    metrics: dict[int, Any] = {}
    for _, module in iter_modules(root):
        for key, value in vars(module).items():
            if key.startswith("_pytree__") or isinstance(value, nnx.Variable):
                continue
            inside = [value]
            if isinstance(value, list | tuple | nnx.List):
                inside = list(value)
            elif isinstance(value, dict | nnx.Dict):
                inside = list(value.values())
            for one in inside:
                # By what it can do: metrics are two levels above.
                if hasattr(type(one), "stateless_update_state"):
                    metrics[id(one)] = one
    return list(metrics.values())


def is_abstract(weight: Any) -> bool:
    return isinstance(weight.get_raw_value(), jax.ShapeDtypeStruct)
