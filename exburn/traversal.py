"""Walking through a module: its layers, its weights, and their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from flax import nnx
from jax.core import Tracer

from exburn.containers import CONTAINERS, entries
from exburn.weights import Weight

__all__ = [
    "children",
    "held_metrics",
    "in_tracked_order",
    "is_abstract",
    "iter_modules",
    "iter_weights",
    "module_paths",
    "own_weights",
    "parts",
]

# What an attribute is, by its type: ``isinstance`` takes a microsecond for each, and a
# call of a model looks at hundreds.
_OTHER, _BUILTIN, _CONTAINER, _TREE, _MODULE, _RNG, _BUFFER, _PARAMETER = range(8)
_kinds: dict[type, int] = {}


def children(module: Any) -> Iterator[tuple[str, Any]]:
    """Modules and variables directly inside, in the order of the attributes.

    Containers that a model keeps its layers in (``nodes``) add no path segment.
    """
    for key, value in vars(module).items():
        kind = _kinds.get(type(value))
        if kind is None:
            kind = _kind(value)
        if kind == _OTHER or key.startswith("_pytree__"):
            continue
        if kind >= _MODULE:
            yield key, value
        elif kind == _CONTAINER and key == "nodes":
            yield from children(value)
        elif kind != _BUILTIN or module._pytree__nodes.get(key):  # it may hold some
            yield from parts(key, value)


def in_tracked_order(module: Any, found: Iterable[tuple[str, Any]]) -> list:
    """Parts of a module in the order in which Keras comes to know of them.

    It sees a part that is made before it is put into an attribute as soon as it is, one
    that is appended to a list in an attribute when it is made. A model's graph has an
    order of its own.

    Args:
        module: The module.
        found: Some of its ``children``.
    """
    book = vars(module).get("_book")
    if book is None or isinstance(vars(module).get("nodes"), nnx.Dict):
        return list(found)
    since = book.value.held_since

    def known(item: tuple[str, Any]) -> int:
        key, part = item
        return max(since.get(key.partition("/")[0], 0), _since(part))

    return sorted(found, key=known)


def _since(part: Any) -> int:
    if isinstance(part, Weight):
        return part.get_metadata()["place"].since
    book = vars(part).get("_book") if isinstance(part, nnx.Module) else None
    return 0 if book is None else book.value.since


def parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Modules and variables in an attribute: itself, or what the container holds."""
    kind = _kinds.get(type(value)) or _kind(value)
    if kind >= _MODULE:
        yield path, value
    elif kind == _BUILTIN:
        for key, one in entries(value):
            yield from parts(f"{path}/{key}", one)
    elif kind != _OTHER:
        yield from ((f"{path}/{key}", one) for key, one in children(value))


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
    """Every module below (and with) ``root``, each once, with its path."""
    seen: set[int] = set()

    def walk(module, path):
        if id(module) in seen:
            return
        seen.add(id(module))
        yield path, module
        for key, child in in_tracked_order(module, children(module)):
            if isinstance(child, nnx.Module):
                yield from walk(child, f"{path}/{key}" if path else key)

    yield from walk(root, prefix)


def module_paths(root: Any) -> dict[int, str]:
    """``id(module) -> path`` below the root."""
    return {id(m): path for path, m in iter_modules(root)}


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
    asked = getattr(root, "_trainable", True)

    def walk(module, path, trainable):
        if id(module) in seen:
            return
        seen.add(id(module))
        trainable = asked and getattr(module, "_trainable", trainable)
        own, inner = [], []
        for key, child in in_tracked_order(module, children(module)):
            child_path = f"{path}/{key}" if path else key
            kind = _kinds.get(type(child)) or _kind(child)
            if kind == _MODULE:
                inner.append((child, child_path))
            elif kind != _RNG and id(child) not in seen:
                seen.add(id(child))
                meta = child.get_metadata()
                learns = kind == _PARAMETER
                if carried or not meta.get("carried", False):
                    learned = trainable and learns and not meta.get("frozen", False)
                    own.append((child_path, child, learned, learns))
        for child_path, child, learned, _ in sorted(own, key=lambda w: not w[3]):
            yield child_path, child, learned
        for name, variable in beside(module) if beside else ():
            if id(variable) not in seen:
                seen.add(id(variable))
                yield f"{path}/{name}" if path else name, variable, False
        for child, child_path in inner:
            yield from walk(child, child_path, trainable)

    yield from walk(root, "", True)


def own_weights(layer: Any) -> Iterator[tuple[str, Weight]]:
    """The weights of a layer that are in no layer inside of it, by path from here.

    Those of plain flax modules in it are its own.
    """
    for key, child in children(layer):
        if isinstance(child, nnx.Module):
            if not hasattr(child, "_book"):
                yield from ((f"{key}/{k}", w) for k, w in own_weights(child))
        elif not isinstance(child, nnx.RngState):
            yield key, child


def held_metrics(root: Any) -> list[Any]:
    """Metrics in attributes of the modules, directly or in lists, tuples and dicts."""
    found: dict[int, Any] = {}
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
                    found[id(one)] = one
    return list(found.values())


def is_abstract(weight: Any) -> bool:
    return isinstance(weight.get_raw_value(), jax.ShapeDtypeStruct)
