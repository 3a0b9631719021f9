"""An optimizer's state when other parameters are trained than before.

The state follows the parameters by their paths. A parameter that joins later begins
with slots of its own, and has its own count of updates: a moment that is young, divided
by the correction of an old one, would give steps that are several times too large
(seven times with Adam's defaults). Those that join together are a group, for which the
rule runs by itself. Numbers that a rule has for all parameters, as the product of
Nadam's momentums, each group has for itself, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.optimizers.contract import complex_parameters
from exburn.optimizers.contract.rate import SINCE, WARM_SINCE, host_value
from exburn.optimizers.contract.trees import initial_state, widen

#: The entry of a state with the groups of newcomers, by numbers. Each tells the update
#: that it joined at (``since``), the rule's own ``numbers``, and its paths (``of``).
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
    state["rate"] = dict(old["rate"])
    if _weighs(old) != _weighs(fresh):  # sums of another kind: the group begins anew
        state |= {k: v for k, v in fresh.items() if k == "accumulated"}
    if optimizer.searches or not _is_divided(old["inner"], fresh["inner"], params):
        return {**state, "inner": fresh["inner"]}
    joined = _new_paths(old["inner"], fresh["inner"], params)
    groups = []
    for group in old.get(NEWCOMERS, {}).values():
        names = {n: v for n, v in group["of"].items() if n in params.keys() - joined}
        if names:
            groups.append({**group, "of": names})
    new = {name: p for name, p in params.items() if name in joined}
    count = host_value(old["rate"]["count"])
    if new and np.any(count) and _has_age(optimizer, new):
        groups.append(_group(optimizer, new, count))
    return _with_groups(state, groups)


def _weighs(state: Mapping[str, Any]) -> bool:
    """Whether the sums of a group's gradients are weighted."""
    return "weights" in state.get("accumulated", ())


def with_groups_of(
    optimizer: Any, state: dict[str, Any], params: Any, paths: Iterable[str]
) -> dict[str, Any]:
    """A fresh state with groups of newcomers, to be filled from a file.

    Args:
        optimizer: The optimizer.
        state: The state that ``init`` makes for the parameters.
        params: The parameters by path.
        paths: Paths of the arrays in the file, as ``path_of`` tells them.
    """
    there, groups = set(paths), []
    while f"{NEWCOMERS}/{(number := len(groups))}/since" in there:
        start = f"{NEWCOMERS}/{number}/of/"
        named = {n: p for n, p in params.items() if start + n in there}
        groups.append(_group(optimizer, named, 0))
    return _with_groups(state, groups)


def apply_rules(
    optimizer: Any, grads: Any, state: Mapping[str, Any], params: Any, rate: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """The deltas of parameters, the rule's new state, and the groups of newcomers.

    Args:
        optimizer: The optimizer.
        grads: Gradients, in a dict by path.
        state: The state, which has newcomers.
        params: The parameters, in a dict by path.
        rate: The learning rate.
    """
    count, inner = state["rate"]["count"], state["inner"]
    slots = dict(jax.tree_util.tree_leaves_with_path(inner))
    deltas, groups, rest = {}, {}, set(params)

    def apply(names: Iterable[str], own: dict[_Path, Any], count: Any) -> dict:
        """Runs the rule for some parameters; returns all arrays of its new state."""
        part = {name: params[name] for name in names}
        specs = jax.eval_shape(optimizer.init_rule, part)
        places = [path for path, _ in jax.tree_util.tree_leaves_with_path(specs)]
        structure = jax.tree.structure(specs)
        before = structure.unflatten((slots | own)[path] for path in places)
        slopes = {name: grads[name] for name in part}
        delta, new = optimizer.apply_rule(slopes, before, part, rate, count)
        deltas.update(delta)
        return dict(zip(places, structure.flatten_up_to(new), strict=True))

    for number, group in state[NEWCOMERS].items():
        names = group["of"].keys()
        part = {name: params[name] for name in names}
        places = _own_numbers(
            optimizer, jax.eval_shape(optimizer.init_rule, part), names
        )
        own = dict(zip(places, group["numbers"], strict=True))
        new = apply(names, own, jnp.maximum(count - group["since"], 0))
        slots |= {p: v for p, v in new.items() if _owner(p, names) is not None}
        numbers = [
            jax.lax.convert_element_type(new[p], jnp.result_type(own[p])) for p in own
        ]
        groups[number] = {**group, "numbers": numbers}
        rest -= names
    if rest:
        slots |= apply([name for name in params if name in rest], {}, count)
    jax.eval_shape(optimizer.init_rule, params)  # a rule's own variables are all again
    inner = jax.tree_util.tree_map_with_path(lambda p, _: slots[p], inner)
    return {name: deltas[name] for name in params}, inner, groups


def set_count(state: Mapping[str, Any], count: Any) -> dict[str, Any]:
    """The state at another number of updates, with the ages of newcomers and schedules
    within it."""
    before, now = host_value(state["rate"]["count"]), host_value(count)

    def rebase_count(since: Any) -> np.int32:
        return np.int32(now - min(before - host_value(since), now))

    rate = {**state["rate"], "count": count}
    rate |= {k: rebase_count(rate[k]) for k in (SINCE, WARM_SINCE) if k in rate}
    groups = [
        group | {"since": rebase_count(group["since"])}
        for group in state.get(NEWCOMERS, {}).values()
    ]
    return _with_groups({**state, "rate": rate}, groups)


def _with_groups(state: dict[str, Any], groups: list[Any]) -> dict[str, Any]:
    if not groups:
        return state
    return {**state, NEWCOMERS: {str(i): group for i, group in enumerate(groups)}}


def _group(optimizer: Any, params: Any, count: int) -> dict[str, Any]:
    """The group of parameters that join at a count."""

    def numbers(tree: Any) -> list[Any]:
        wide = complex_parameters.split(widen(tree) if optimizer.widens else tree)
        inner = optimizer.init_rule(wide)
        return [*_own_numbers(optimizer, inner, params).values()]

    return {
        "since": jax.device_put(np.int32(count)),
        "numbers": initial_state(numbers, params),
        "of": {name: jax.device_put(np.False_) for name in params},
    }


def _own_numbers(optimizer: Any, inner: Any, names: Any) -> dict[_Path, Any]:
    """Arrays of a rule's state that a group has for itself: of no single parameter.

    Numbers that one sets are the same for all.
    """
    return {
        path: leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(inner)
        if _owner(path, names) is None and not optimizer.is_setting(path)
    }


def _fits(slot: Any, leaf: Any) -> bool:
    return slot is not None and np.shape(slot) == np.shape(leaf)


def _is_divided(old: Any, fresh: Any, params: Any) -> bool:
    """Tells whether leaves of no single parameter are alike in both states."""

    def common(inner: Any) -> dict[_Path, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(inner)
        return {p: np.shape(v) for p, v in leaves if _owner(p, params) is None}

    mine = common(fresh)
    places = {path[:-1] for path in mine}  # the old state has other parameters, too
    return mine == {p: s for p, s in common(old).items() if p[:-1] in places}


def _new_paths(old: Any, fresh: Any, params: Any) -> set[str]:
    """Parameters of whose slots the old state has none."""
    slots = dict(jax.tree_util.tree_leaves_with_path(old))
    leaves = jax.tree_util.tree_leaves_with_path(fresh)
    named = [(_owner(path, params), path, leaf) for path, leaf in leaves]
    stay = {n for n, path, leaf in named if _fits(slots.get(path), leaf)}
    return {n for n, _, _ in named if n is not None} - stay


def _has_age(optimizer: Any, params: Any) -> bool:
    """Tells whether a rule reads the count of updates, or counts by itself."""
    wide = complex_parameters.split(widen(params) if optimizer.widens else params)
    specs = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), wide)
    inner = jax.eval_shape(optimizer.init_rule, specs)
    if _own_numbers(optimizer, inner, params):
        return True
    scalars = jax.ShapeDtypeStruct((), np.float32), jax.ShapeDtypeStruct((), np.int32)
    traced = jax.make_jaxpr(optimizer.apply_rule)(specs, inner, specs, *scalars)
    count = traced.jaxpr.invars[-1]
    return any(count is v for equation in traced.jaxpr.eqns for v in equation.invars)


def _owner(path: _Path, params: Any) -> str | None:
    """The parameter that an array of a state belongs to, if it belongs to one."""
    keys = (getattr(key, "key", None) for key in path)
    return next((key for key in keys if key in params), None)


def as_initial(self: Any, opt_state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as ``init`` makes one: without newcomers and restarted schedules."""
    starts = SINCE, WARM_SINCE
    rate = {k: v for k, v in opt_state["rate"].items() if k not in starts}
    rest = {k: v for k, v in opt_state.items() if k != NEWCOMERS}
    return {**rest, "rate": rate}


def as_stored(
    self: Any, opt_state: dict[str, Any], params: Any, paths: Iterable[str]
) -> dict[str, Any]:
    """A state of ``init`` with all else that the arrays of a file tell of.

    Args:
        opt_state: The state.
        params: Its parameters by path.
        paths: Paths of all arrays in the file, within the state.
    """
    there = set(paths)
    for entry in (SINCE, WARM_SINCE):
        if f"rate/{entry}" in there:
            rate = {**opt_state["rate"], entry: jax.device_put(np.int32(0))}
            opt_state = {**opt_state, "rate": rate}
    return with_groups_of(self, opt_state, params, there)
