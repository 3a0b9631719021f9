"""Things made anew from their configurations, with other values.

A layer, an optimizer, a loss or a part of one, such as an initializer, may compute
something from an argument when it is made. To have another value it is made anew.
"""

from __future__ import annotations

import copy
import functools
import math
import types
from collections.abc import Callable, Container, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core import registry
from exburn.core.batch_independence import is_foreign
from exburn.core.substitution import making_clone
from exburn.errors import ArgumentError, ExBurnError
from exburn.models import Model
from exburn.models.cloning import copy_graph
from exburn.models.compiling import replace_optimizer
from exburn.models.copies import set_up_like
from exburn.models.saving import set_training_state, training_state
from exburn.module.building import infer
from exburn.module.cloning import copying_parts, keep_settings, unbuilt_copy
from exburn.module.layer import Layer
from exburn.module.signature import init_names
from exburn.module.traversal import children, iter_modules
from exburn.module.variable import own_copy
from exburn.optimizers import LossScaleOptimizer, MultiOptimizer, OptimizerMap

_OP = "sweep"
# What no argument decides: bookkeeping of layers, of optimizers, of flax' modules.
_BOOKKEEPING = frozenset(
    "_meta _live _revision _given _lists _pytree__nodes _pytree__state _object__state"
    " _name _auto_name name".split()
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class CannotRemake(ArgumentError):
    """A thing whose configuration does not make it again."""


def arguments_of(thing: Any, but: Container[str] = ()) -> dict[str, Any]:
    """The constructor's arguments of a thing, by its configuration.

    What that leaves out and an attribute of the same name holds is there, too.
    """
    cls = type(thing)
    config, reason = {}, "its configuration does not tell"
    with _copying(thing):
        if isinstance(thing, Layer):
            return thing._copy_config()
        try:
            config = dict(thing.get_config())
        except Exception as error:  # a user's may raise anything
            reason = str(getattr(error, "reason", error))
            if not is_foreign(cls):
                raise _cannot(thing, reason) from None
    if not is_foreign(cls):
        return config
    ours = next((base for base in cls.__mro__ if not is_foreign(base)), object)
    for name in init_names(cls):
        if name in config or name in but or name in init_names(ours):
            continue
        if name not in vars(thing):
            raise _cannot(thing, f"{reason} {name!r}")
        config[name] = copy.deepcopy(vars(thing)[name])
    return config


def remake(thing: Any, changes: Mapping[str, Any]) -> Any:
    """Another thing like one, which is made with other arguments."""
    own = arguments_of(thing, changes)
    config = own | dict(changes)
    for name in changes:
        if name not in own and name not in init_names(type(thing)):
            raise _cannot(thing, f"its constructor takes no {name!r}")
    try:
        with _copying(thing):
            if hasattr(type(thing), "from_config"):
                other = type(thing).from_config(config)
            else:
                other = type(thing)(**config)
    except ExBurnError:
        raise
    except Exception as error:  # a user's constructor may raise anything
        if not is_foreign(type(thing)):
            raise
        reason = f"its constructor says {type(error).__name__}: {error}"
        raise _cannot(thing, reason) from error
    if (scale := vars(thing).get("_scale")) is not None:  # of an optimizer's rate
        other.scale = getattr(thing, "scale", scale)
    return other


def _copying(thing: Any) -> Any:
    return copying_parts(thing) if isinstance(thing, Layer) else registry.copying(())


def _cannot(thing: Any, reason: str, hint: str | None = None) -> CannotRemake:
    """The error that says why a thing is not made anew."""
    kind = type(thing).__name__
    name = getattr(thing, "name", None) or kind
    return CannotRemake(
        _OP,
        f"{name!r} cannot be made anew with another value: {reason}",
        hint=hint or f"Let {kind}.get_config return the constructor's arguments.",
    )


# ---------------------------------------------------------------------- models
def with_layer(model: Model, layer: Layer, key: str, value: Any) -> Model:
    """The model with a layer that is made anew in the place of one.

    It has fresh weights, is compiled like the model, and goes on with its training.
    """
    with making_clone():
        changed = _around(model, layer, lambda: remake(layer, {key: value}))
        if not changed.built:
            infer(changed, *model._meta.value.traced)
        changed.repeat_changes(model.changes)
    keep_settings(model, changed, but=(layer, key))
    set_up_like(changed, model)
    if (state := training_state(model)) is not None and state["step"]:
        set_training_state(changed, jax.tree.map(own_copy, state))
    return changed


def _around(owner: Any, layer: Layer, make: Callable[[], Layer]) -> Any:
    """An unbuilt copy of what holds a layer, with another one in its place."""
    if owner is layer:
        return make()
    if all(part is not layer for _, part in iter_modules(owner)):
        return unbuilt_copy(owner)
    if isinstance(owner, Model) and owner.graph is not None:
        make_part = functools.partial(_around, layer=layer, make=make)
        return copy_graph(owner, clone_function=make_part, recursive=True)
    for name in arguments_of(owner):
        inner = getattr(owner, name, None)
        if isinstance(inner, Layer) and _holds(inner, layer):
            return remake(owner, {name: _around(inner, layer, make)})
    copied = unbuilt_copy(owner)
    parts = dict(children(copied)) if is_foreign(type(owner)) else {}
    for path, part in children(owner):
        if isinstance(part, Layer) and _holds(part, layer) and path in parts:
            _put(copied, path, _around(part, layer, make))
            return copied
    reason, hint = f"{owner.name!r} makes it", f"Vary an option of {owner.name!r}."
    raise _cannot(layer, reason, hint)


def _holds(owner: Any, layer: Layer) -> bool:
    return any(part is layer for _, part in iter_modules(owner))


def _put(owner: Any, path: str, layer: Any) -> None:
    """Puts a layer in the place of one: an attribute, a list or a dict in one.

    Weights come in the order in which layers were made and kept, so that it counts as
    made when the one before it was.
    """
    before, meta = dict(children(owner))[path], owner._meta.value
    name, *keys = path.split("/")
    since = meta.held_since.get(name)
    if keys:
        holder = getattr(owner, name)
        *outer, last = [int(key) if key.isdigit() else key for key in keys]
        for key in outer:
            holder = holder[key]
        holder[last] = layer
    else:
        setattr(owner, name, layer)
    layer._meta.value.made_at = before._meta.value.made_at
    if since is not None:
        meta.held_since[name] = since


def with_optimizer(model: Model, old: Any, new: Any) -> None:
    """Trains a model with another optimizer in the place of one; it goes on."""
    state = training_state(model)
    replace_optimizer(model, _instead(model._training_session.optimizer, old, new))
    if state is not None and state["step"]:
        set_training_state(model, state)


def _instead(optimizer: Any, old: Any, new: Any) -> Any:
    """An optimizer like one, with another one in a place within it."""
    if optimizer is old:
        return new
    if isinstance(optimizer, LossScaleOptimizer):
        inner = _instead(optimizer.inner_optimizer, old, new)
        return remake(optimizer, {"inner_optimizer": inner})
    if isinstance(optimizer, MultiOptimizer):
        by_pattern = optimizer.optimizer_map
        if not isinstance(by_pattern, OptimizerMap):
            reason = "a function chooses among the optimizers"
            raise _cannot(old, reason, "Give MultiOptimizer an OptimizerMap.")
        optimizers = [by_pattern.default_optimizer, *by_pattern.values()]
        replaced = {id(one): _instead(one, old, new) for one in optimizers}
        parts = {pattern: replaced[id(one)] for pattern, one in by_pattern.items()}
        default = replaced[id(by_pattern.default_optimizer)]
        return remake(optimizer, {"optimizer_map": OptimizerMap(default, parts)})
    return optimizer


def with_loss(model: Model, old: Any, new: Any) -> None:
    """Trains a model with another loss in the place of one; it goes on."""
    run = model._training_session
    preparer = run.preparer
    if sum(term.original is old for term in preparer.objective.terms) > 1:
        hint = "Give each output a loss of its own."
        raise _cannot(old, "several outputs have it", hint)
    preparer.aim(preparer.objective.with_loss(old, new))
    run.loss = run.settings["loss"] = preparer.objective.losses


# ---------------------------------------------------------------------- comparison
def differs_elsewhere(one: Any, other: Any, key: str) -> bool:
    """Whether two things of a class differ in more than an attribute.

    They do if something was computed from it when they were made. What cannot be
    compared is taken for different.
    """
    seen: set[tuple[int, int]] = set()
    return not _same_entries(vars(one), vars(other), seen, {key})


def is_same(one: Any, other: Any) -> bool:
    """Whether two things are made of the same values; no if they cannot be compared.

    Example:
        >>> is_same([1, {"a": (2.0,)}], [1, {"a": (2.0,)}]), is_same(1, 1.0)
        (True, False)
    """
    return _same(one, other, set())


def _same_entries(
    one: Mapping, other: Mapping, seen: set, but: set[str] | frozenset[str]
) -> bool:
    but = _BOOKKEEPING | but
    mine, others = ({k: v for k, v in m.items() if k not in but} for m in (one, other))
    return mine.keys() == others.keys() and all(
        _same(value, others[name], seen) for name, value in mine.items()
    )


def _same(one: Any, other: Any, seen: set) -> bool:
    if one is other or (id(one), id(other)) in seen:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _PLAIN):
        nans = isinstance(one, float) and math.isnan(one) and math.isnan(other)
        return nans or one == other
    seen.add((id(one), id(other)))
    if isinstance(one, np.ndarray | np.generic | jax.Array):
        same_kind = one.shape == other.shape and one.dtype == other.dtype
        return same_kind and bool(np.array_equal(one, other))
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_same(a, b, seen) for a, b in pairs)
    if isinstance(one, set | frozenset | range | slice | np.dtype):
        return one == other
    if isinstance(one, Mapping):
        return _same_entries(one, other, seen, frozenset())
    if isinstance(one, functools.partial):
        return _same(
            (one.func, one.args, one.keywords),
            (other.func, other.args, other.keywords),
            seen,
        )
    if isinstance(one, types.MethodType):
        return _same(
            (one.__self__, one.__func__), (other.__self__, other.__func__), seen
        )
    if isinstance(one, types.FunctionType):
        return _same_functions(one, other, seen)
    if isinstance(one, types.CellType):
        return _same(_content(one), _content(other), seen)
    if isinstance(one, jax.ShapeDtypeStruct):
        return one == other
    if isinstance(one, nnx.Variable):
        values = one.get_raw_value(), other.get_raw_value()
        metas = one.get_metadata(), other.get_metadata()
        return _same(*values, seen) and _same_entries(*metas, seen, {"place"})
    if hasattr(one, "__dict__"):
        return _same_entries(vars(one), vars(other), seen, frozenset())
    return False


def _same_functions(one: Any, other: Any, seen: set) -> bool:
    parts = "__code__", "__defaults__", "__kwdefaults__"
    codes = [[getattr(function, part) for part in parts] for function in (one, other)]
    if codes[0][0] is not codes[1][0]:
        return False
    cells = one.__closure__ or (), other.__closure__ or ()
    return _same(codes[0][1:], codes[1][1:], seen) and _same(*cells, seen)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
