"""An optimizer's state when other parameters are trained than before.

The state follows the parameters by their paths. A parameter that joins later begins
with slots of its own, and has its own count of updates: a moment that is young, divided
by the correction of an old one, would give steps that are several times too large
(seven times with Adam's defaults). Numbers that a rule has for all parameters, as the
product of Nadam's momentums, newcomers have for themselves, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.optimizers import complex_parameters
from exburn.optimizers.rate import host_value
from exburn.optimizers.trees import initial_state, widen

#: The entry of a state with the newcomers: the update each joined at, and its numbers.
NEWCOMERS = "newcomers"

_Path = tuple[Any, ...]


def refit(
    optimizer: Any, old: Mapping[str, Any], fresh: Mapping[str, Any], params: Any
) -> dict[str, Any]:
    """A state for parameters, of which some had slots in another state.

    Args:
        optimizer: The optimizer.
        old: The other state.
        fresh: The state that ``init`` makes for the parameters.
        params: The parameters by path.
    """
    slots = dict(jax.tree_util.tree_leaves_with_path(old))

    def follow(path: _Path, leaf: Any) -> Any:
        slot: Any = slots.get(path)
        return slot.astype(leaf.dtype) if _fits(slot, leaf) else leaf

    state = jax.tree_util.tree_map_with_path(follow, dict(fresh))
    if optimizer.searches or not _is_divided(old["inner"], fresh["inner"], params):
        return {**state, "inner": fresh["inner"]}
    joined = _joined(old["inner"], fresh["inner"], params)
    stay = params.keys() - joined
    entries = {n: v for n, v in old.get(NEWCOMERS, {}).items() if n in stay}
    new = {name: p for name, p in params.items() if name in joined}
    count = host_value(old["rate"]["count"])
    if new and np.any(count) and _has_age(optimizer, new):
        entries |= _entries(optimizer, new, count)
    return {**state, NEWCOMERS: entries} if entries else state


def with_entries(
    optimizer: Any, state: dict[str, Any], params: Any, paths: Iterable[str]
) -> dict[str, Any]:
    """A fresh state with entries for newcomers, to be filled from a file.

    Args:
        optimizer: The optimizer.
        state: The state that ``init`` makes for the parameters.
        params: The parameters by path.
        paths: Paths of the arrays in the file, as ``path_of`` tells them.
    """
    there = set(paths)
    named = {n: p for n, p in params.items() if f"{NEWCOMERS}/{n}/since" in there}
    if not named:
        return state
    return {**state, NEWCOMERS: _entries(optimizer, named, 0)}


def apply_rules(
    optimizer: Any, grads: Any, state: Mapping[str, Any], params: Any, rate: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """What is added to parameters, the rule's new state, and the newcomers' entries.

    The rule runs for each newcomer alone, with its own count, and for all others.

    Args:
        optimizer: The optimizer.
        grads: Gradients, in a dict by path.
        state: The state, which has newcomers.
        params: The parameters, in a dict by path.
        rate: The learning rate.
    """
    count, inner = state["rate"]["count"], state["inner"]
    slots = dict(jax.tree_util.tree_leaves_with_path(inner))
    deltas, entries = {}, {}
    for name, entry in state[NEWCOMERS].items():
        own, treedef = _places(optimizer, {name: params[name]})
        numbers = iter(entry["numbers"])
        values = [
            slots[p] if _is_common(optimizer, p, name) else next(numbers) for p in own
        ]
        age = jnp.maximum(count - entry["since"], 0)
        part = {name: grads[name]}, treedef.unflatten(values), {name: params[name]}
        delta, new = optimizer.apply_rule(*part, rate, age)
        deltas |= delta
        found = dict(zip(own, treedef.flatten_up_to(new), strict=True))
        slots |= {p: v for p, v in found.items() if _is_owned(p, name)}
        rest = [v for p, v in found.items() if not _is_common(optimizer, p, name)]
        entries[name] = {"since": entry["since"], "numbers": _like(rest, entry)}
    others = {name: p for name, p in params.items() if name not in entries}
    if others:
        own, treedef = _places(optimizer, others)
        part = {n: grads[n] for n in others}, treedef.unflatten(slots[p] for p in own)
        delta, new = optimizer.apply_rule(*part, others, rate, count)
        deltas |= delta
        slots |= dict(zip(own, treedef.flatten_up_to(new), strict=True))
    jax.eval_shape(optimizer.init_rule, params)  # a rule's own variables are all again
    inner = jax.tree_util.tree_map_with_path(lambda p, _: slots[p], inner)
    return {name: deltas[name] for name in params}, inner, entries


def set_count(state: Mapping[str, Any], count: Any) -> dict[str, Any]:
    """The state at another number of updates; newcomers keep their age within it."""
    before = host_value(state["rate"]["count"])
    state = {**state, "rate": {**state["rate"], "count": count}}
    if NEWCOMERS not in state:
        return state
    now = host_value(count)
    entries = {
        name: entry
        | {"since": np.int32(now - min(before - host_value(entry["since"]), now))}
        for name, entry in state[NEWCOMERS].items()
    }
    return {**state, NEWCOMERS: entries}


def _entries(optimizer: Any, params: Any, count: int) -> dict[str, Any]:
    """An entry for each of the parameters, all of which join at a count."""

    def numbers(tree: Any) -> dict[str, list[Any]]:
        wide = widen(tree) if optimizer.widens else tree
        return {
            name: [
                leaf
                for path, leaf in jax.tree_util.tree_leaves_with_path(
                    optimizer.init_rule({name: part})
                )
                if not _is_common(optimizer, path, name)
            ]
            for name, part in complex_parameters.split(wide).items()
        }

    made = initial_state(numbers, params)
    return {
        name: {"since": jax.device_put(np.int32(count)), "numbers": made[name]}
        for name in params
    }


def _places(optimizer: Any, params: Any) -> tuple[list[_Path], Any]:
    """Paths of the arrays of a rule's state for parameters, and its structure."""
    specs = jax.eval_shape(optimizer.init_rule, params)
    leaves = jax.tree_util.tree_leaves_with_path(specs)
    return [path for path, _ in leaves], jax.tree.structure(specs)


def _is_owned(path: _Path, name: str) -> bool:
    """Whether an array of a rule's state belongs to a parameter."""
    return any(getattr(key, "key", None) == name for key in path)


def _is_common(optimizer: Any, path: _Path, name: str) -> bool:
    """Whether a newcomer's array lies among those of all parameters."""
    return _is_owned(path, name) or optimizer.is_setting(path)


def _fits(slot: Any, leaf: Any) -> bool:
    return slot is not None and np.shape(slot) == np.shape(leaf)


def _like(new: list[Any], entry: Mapping[str, Any]) -> list[Any]:
    pairs = zip(new, entry["numbers"], strict=True)
    return [jax.lax.convert_element_type(n, jnp.result_type(o)) for n, o in pairs]


def _is_divided(old: Any, fresh: Any, params: Any) -> bool:
    """Whether what does not belong to single parameters has one form in both states."""

    def common(inner: Any) -> dict[_Path, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(inner)
        return {p: np.shape(v) for p, v in leaves if _owner(p, params) is None}

    mine = common(fresh)
    places = {path[:-1] for path in mine}  # the old state has other parameters, too
    return mine == {p: s for p, s in common(old).items() if p[:-1] in places}


def _joined(old: Any, fresh: Any, params: Any) -> set[str]:
    """Parameters of whose slots the old state has none."""
    slots = dict(jax.tree_util.tree_leaves_with_path(old))
    leaves = jax.tree_util.tree_leaves_with_path(fresh)
    named = [(_owner(path, params), path, leaf) for path, leaf in leaves]
    stay = {n for n, path, leaf in named if _fits(slots.get(path), leaf)}
    return {n for n, _, _ in named if n is not None} - stay


def _has_age(optimizer: Any, params: Any) -> bool:
    """Whether a rule reads the count of updates, or counts by itself."""
    wide = complex_parameters.split(widen(params) if optimizer.widens else params)
    specs = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), wide)
    inner = jax.eval_shape(optimizer.init_rule, specs)
    if any(
        _owner(path, params) is None and not optimizer.is_setting(path)
        for path, _ in jax.tree_util.tree_leaves_with_path(inner)
    ):
        return True
    scalars = jax.ShapeDtypeStruct((), np.float32), jax.ShapeDtypeStruct((), np.int32)
    traced = jax.make_jaxpr(optimizer.apply_rule)(specs, inner, specs, *scalars)
    count = traced.jaxpr.invars[-1]
    return any(count is v for equation in traced.jaxpr.eqns for v in equation.invars)


def _owner(path: _Path, params: Any) -> str | None:
    """The parameter that an array of a state belongs to, if it belongs to one."""
    keys = (getattr(key, "key", None) for key in path)
    return next((key for key in keys if key in params), None)
