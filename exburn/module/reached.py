"""Layers and weights that a call reaches by other ways than attributes.

A function may close over a layer, an attribute may be a bound method of one, a global
name or an object that is no module may lead to one. The trace of a call meets them all:
a layer that is called, a weight that is read. The layer whose call it was then holds
them, too, in its ``_reached``, so that whoever walks through a model finds them: they
are built, trained, saved, counted and shown, each under one path.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.core import forward_context, random_keys
from exburn.core.containers import made_at
from exburn.core.substitution import substituting
from exburn.errors import UnheldLayerError
from exburn.module.copying import paths_of, standing_for, twin
from exburn.module.traversal import (
    REACHED,
    children,
    iter_modules,
    own_weights,
)
from exburn.module.variable import Weight


def adopt(holder: Any, part: Any) -> Any:
    """Has a layer hold a part that its call reaches.

    Args:
        holder: The layer.
        part: A layer, or a weight of no layer.

    Returns:
        What it holds: the part; for the layers of a clone a copy of the part, unless it
        is one of them.
    """
    meta, parts = holder._meta.value, dict(vars(holder).get(REACHED, {}))
    names = {name for name, original in meta.reached.items() if original is part}
    name = next(iter(names), None) or _name_for(holder, part)
    if name not in parts:
        parts[name] = _own(part, meta.clone)
        setattr(holder, REACHED, parts)
    meta.reached[name] = part
    return parts[name]


def _name_for(holder: Any, part: Any) -> str:
    """A name that no attribute of the holder has."""
    taken = {key.partition("/")[0] for key, _ in children(holder)} | vars(holder).keys()
    base, number = part.name, 0
    name = base
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _own(part: Any, clone: Any) -> Any:
    """The part, or the copy of it that a clone's layers share."""
    if clone is None or made_at(part) > clone.began_at:
        return part
    if id(part) not in clone.copies:
        copy = part.copy() if isinstance(part, nnx.Variable) else twin(part)
        clone.copies[id(part)] = part, copy
    return clone.copies[id(part)][1]


def made_in(ctx: forward_context.Context, part: Any) -> bool:
    """Whether a pass makes the part itself, as a layer that is made in ``call``."""
    return made_at(part) > ctx.began_at


def _layer_of(part: Any) -> Any:
    """The layer that a weight belongs to, where there is one; else the part."""
    if not isinstance(part, Weight):
        return part
    owner = part.get_metadata()["place"].owner
    layer = None if owner is None else owner()
    if layer is None or all(weight is not part for _, weight in own_weights(layer)):
        return part
    return layer


def fill(weight: Any) -> None:
    """Gives a weight its first value, if it has none yet."""
    layer = _layer_of(weight)
    if layer is not weight:
        layer._require_weights()


class Discovery:
    """What a trace of a module's copy reaches by other ways than attributes.

    Attributes:
        scope: The substitution under which the copy runs.
        met: Pairs of a layer and a part that its call reached, and no layer holds.
        noted: The same of parts that the module holds.
    """

    def __init__(self, module: Any, copied: Any, ctx: forward_context.Context):
        self._module, self._pass = module, ctx
        self.met: list[tuple[Any, Any]] = []
        self.noted: list[tuple[Any, Any]] = []
        self.scope = standing_for(module, copied, meet=self._meet, note=self._note)
        self._originals = {
            id(self.scope.find(one)): one for _, one in iter_modules(module)
        }
        ctx.paths = paths_of(module, self.scope)

    def settle(self) -> bool:
        """Has the layers hold what was found; whether some of it was held by none."""
        for holder, part in [*self.noted, *self.met]:
            adopt(holder, part)
        unheld = bool(self.met)
        self.met, self.noted = [], []
        return unheld

    def _holder(self) -> Any:
        ctx = forward_context.current() or self._pass
        return self._originals.get(id(ctx.running), self._module)

    def _note(self, part: Any) -> None:
        holder, part = self._holder(), _layer_of(part)
        pair = holder, part
        if hasattr(holder, "_meta") and not _holds(holder, part, self.noted):
            self.noted.append(pair)

    def _meet(self, part: Any) -> Any:
        if random_keys.is_seed(part) or made_in(self._pass, part):
            return part
        holder, layer = self._holder(), _layer_of(part)
        if not hasattr(holder, "_meta"):
            refuse(part)
        self.met.append((holder, layer))
        # For the rest of this trace; the next one finds it in the module.
        copied = _abstract_copy(layer)
        if isinstance(layer, nnx.Variable):
            self.scope.add([(layer, copied)])
            return copied
        inner = standing_for(layer, copied)
        self.scope.include(inner)
        self._originals |= {id(inner.find(m)): m for _, m in iter_modules(layer)}
        self._pass.paths |= paths_of(layer, inner, layer.name)
        return self.scope.find(part)


def _holds(holder: Any, part: Any, noted: list[tuple[Any, Any]]) -> bool:
    reached = holder._meta.value.reached
    parts = vars(holder).get(REACHED, {})
    if any(one is part and name in parts for name, one in reached.items()):
        return True
    return any(h is holder and p is part for h, p in noted)


def _abstract_copy(part: Any) -> Any:
    """A copy whose variables hold zeros of the trace under way."""
    zero = lambda value: jnp.zeros(value.shape, value.dtype)  # noqa: E731
    if isinstance(part, nnx.Variable):
        return part.copy(zero(part.get_raw_value()))
    graphdef, state, rest = nnx.split(part, nnx.Variable, ...)
    with substituting(None):  # of the part itself
        return nnx.merge(graphdef, jax.tree.map(zero, state), rest)


def refuse(part: Any) -> Any:
    """Raises: a program would hold a weight as a constant."""
    layer = _layer_of(part)
    what = "weight" if isinstance(layer, nnx.Variable) else "layer"
    raise UnheldLayerError(
        layer.name,
        f"a compiled program reaches the {what} {layer.name!r}, which its model does "
        "not hold, and would keep its values as they are now",
        hint=f"Make the {what} an attribute of the model or of one of its layers.",
    )


def as_reached(root: Any, reaching: list[Any]) -> AbstractContextManager[Any]:
    """In the block of an eager pass, what calls reach is what the root's layers hold.

    It differs where the root is a copy: functions still lead to the original.
    """
    if not reaching:
        return contextlib.nullcontext()
    return substituting(standing_for(root, root))
