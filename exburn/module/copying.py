"""Copies of a module, and what of one stands for what of the other."""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx

from exburn.core.batch_independence import is_foreign
from exburn.core.forward_context import Context, Interceptor, forward
from exburn.core.substitution import Substitution, substituting
from exburn.module.traversal import (
    REACHED,
    corresponding,
    iter_modules,
    own_weights,
    survey,
)
from exburn.module.variable import OwnState, Static, Weight, as_weight, own_copy


def standing_for(
    original: Any,
    copied: Any,
    *,
    meet: Callable[[Any], Any] | None = None,
    note: Callable[[Any], None] | None = None,
) -> Substitution:
    """The substitution under which a copy of a module runs."""
    scope = Substitution(corresponding(original, copied), meet=meet, note=note)
    for holder in survey(copied)[1]:
        parts = vars(holder)[REACHED]
        for name, part in holder._meta.value.reached.items():
            if name not in parts:
                continue
            if isinstance(part, nnx.Module):
                scope.add(corresponding(part, parts[name]))
            else:
                scope.add([(part, parts[name])])
    return scope


def paths_of(original: Any, scope: Substitution, prefix: str = "") -> dict[int, str]:
    """``id(module) -> path`` for the modules of a copy, by the original's paths."""
    return {id(scope.find(m)): path for path, m in iter_modules(original, prefix)}


@contextlib.contextmanager
def running_copy(
    original: Any, copied: Any, *interceptors: Interceptor
) -> Iterator[Context]:
    """In the block a copy of a module runs, in a pass with a fixed key."""
    scope, ctx = standing_for(original, copied), Context(key=jax.random.key(0))
    ctx.paths = paths_of(original, scope)
    ctx.interceptors += interceptors
    with forward(ctx), substituting(scope):
        yield ctx


def twin(module: Any) -> Any:
    """A copy of a module that shares neither variables, arrays nor bookkeeping.

    Unlike ``clone`` it needs no configuration. Symbolic calls are not copied.
    """
    graphdef, state = nnx.split(module)
    result = nnx.merge(graphdef, jax.tree.map(own_copy, state))
    for one, two in list(corresponding(module, result)):
        if isinstance(one, Weight):
            two.set_metadata("place", copy.copy(one.get_metadata()["place"]))
            as_weight(two)
        elif not isinstance(one, nnx.Variable):
            _order_like(one, two)
            for name, value in list(vars(two).items()):
                if isinstance(value, OwnState):
                    object.__setattr__(two, name, value.renew())
            if hasattr(two, "_meta"):
                object.__setattr__(two, "_meta", Static(_fresh(one._meta.value)))
    for _, part in iter_modules(result):
        if hasattr(part, "_meta"):
            set_owner(part)
    return result


def set_owner(layer: Any) -> None:
    """Notes in a copied layer's weights that they are this layer's."""
    for _, weight in own_weights(layer):
        if isinstance(weight, Weight):
            weight.get_metadata()["place"].owner = weakref.ref(layer)


def _fresh(meta: Any) -> Any:
    """The bookkeeping of a layer's twin."""
    fresh = copy.copy(meta)
    fresh.traced, fresh.clone = meta.traced, meta.clone
    fresh.initial = type(meta.initial)()
    fresh.reached = dict(meta.reached)
    return fresh


def _order_like(first: Any, second: Any) -> None:
    """Puts attributes in the order of the first: ``nnx.merge`` sorts them by name."""
    mine, other = vars(first), vars(second)
    ordered = {key: other[key] for key in mine if key in other}
    rest = {key: value for key, value in other.items() if key not in ordered}
    other.clear()
    other.update(ordered | rest)


def own_classes(module: Any) -> dict[str, type]:
    """The classes of a module's parts that are the user's, by name."""
    parts = [part for _, part in iter_modules(module)]
    graphs = [getattr(part, "graph", None) for part in parts]
    nodes = [node for graph in graphs for node in getattr(graph, "nodes", ())]
    parts += [node.target for node in nodes if not isinstance(node.target, str)]
    kinds = {type(part) for part in parts}
    classes = {getattr(kind, "stands_for", kind) for kind in kinds}  # quantized layers'
    own = filter(is_foreign, classes)
    return {c.__name__: c for c in own if not c.__module__.startswith("flax.")}
