"""Keras' stateful way of calling an optimizer, on top of the pure one.

Lists of variables instead of trees, and a state that the optimizer holds. ``model.fit``
does not use this; loops written for Keras do.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.constraints import constrained, constraints_of
from exburn.errors import ArgumentError, DTypeError, NotBuiltError
from exburn.module.building import spec_like
from exburn.optimizers.exclusions import exactly

__all__ = [
    "ListLayout",
    "apply",
    "assign_average",
    "build",
    "require_state",
    "set_values",
    "update_lists",
    "value_of",
]


@dataclasses.dataclass
class ListLayout:
    """How an optimizer's lists of parameters and of state arrays map to trees.

    Attributes:
        op: The optimizer's class, for errors.
        names: Paths of the parameters, in the order of the lists.
        treedef: Structure of the state whose leaves are the list of state arrays.
        constraints: Of the parameters that have one, by path.
        variables: What ``apply`` assigns to.
        compiled: The optimizer's revision, and the update that is compiled for it.
    """

    op: str
    names: list[str]
    treedef: Any
    constraints: dict[str, Callable]
    variables: list[Any] = dataclasses.field(default_factory=list)
    compiled: tuple[int, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies, without the program of the original."""
        return vars(self) | {"compiled": None}

    def by_name(self, values: Sequence[Any], what: str) -> dict[str, Any]:
        """The values of a list, by the names of the parameters.

        Raises:
            ArgumentError: The list has another length.
        """
        values = self._check_length(values, len(self.names), what)
        return dict(zip(self.names, values, strict=True))

    def state_of(self, optimizer_variables: Sequence[Any]) -> Any:
        """The state that a list of its arrays, or of variables, is of.

        Raises:
            ArgumentError: The list has another length.
        """
        wanted = self.treedef.num_leaves
        values = self._check_length(optimizer_variables, wanted, "state arrays")
        return self.treedef.unflatten(values)

    def _check_length(self, values: Sequence[Any], wanted: int, what: str) -> list[Any]:
        values = [value_of(value) for value in values]
        if len(values) != wanted:
            raise ArgumentError(
                self.op,
                f"the optimizer was built for {wanted} {what}, received {len(values)}",
            )
        return values


def build(optimizer: Any, variables: Iterable[Any]) -> None:
    """Makes an optimizer's state for a list of variables, unless it has one."""
    if optimizer._lists is not None or optimizer._pass is not None:
        return
    variables = list(variables)
    paths = [str(getattr(v, "path", "")) for v in variables]
    unique = len(set(paths)) == len(paths)
    names = [p if unique else f"{i}/{p}" for i, p in enumerate(paths)]
    params = dict(zip(names, map(value_of, variables), strict=True))
    if not unique:
        _tell_apart(optimizer, dict(zip(names, variables, strict=True)))
    state = _shared_state(optimizer, params)
    if state is None:
        state = optimizer.init(params)
        box = [state]
        optimizer.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    structure = jax.tree.structure(state)
    optimizer.adopt(names, structure, constraints_of(names, variables))
    lists: Any = optimizer._lists
    lists.variables = variables


def _tell_apart(optimizer: Any, variables: dict[str, Any]) -> None:
    """Excludes the variables that were given, not all that have their paths."""
    given = {id(v) for v in optimizer._undecayed}
    paths = {exactly(v.path) for v in optimizer._undecayed}
    optimizer.weight_decay_exclusions = (
        *(p for p in optimizer.weight_decay_exclusions if p not in paths),
        *(exactly(name) for name, v in variables.items() if id(v) in given),
    )


def _shared_state(optimizer: Any, params: dict[str, Any]) -> Any:
    """The state of the model that the optimizer trains, if it is for these."""
    live = optimizer._live
    if not live.is_bound:
        return None
    if live.state is None:
        live.state = optimizer.init(params)
        return live.state
    specs = optimizer.init(jax.tree.map(spec_like, params))
    same = jax.tree.map(np.shape, specs) == jax.tree.map(np.shape, live.state)
    return live.state if same else None


def require_state(optimizer: Any, op: str) -> Any:
    """The state that an optimizer holds.

    Raises:
        NotBuiltError: There is none yet.
    """
    state = optimizer._live.state
    built = optimizer._lists is not None and optimizer._pass is None
    if state is None or (op != "variables" and not built):
        raise NotBuiltError(
            op,
            "the optimizer has no state yet",
            hint="Call optimizer.build(variables), or give the variables to apply.",
        )
    return state


def update_lists(
    optimizer: Any, state_arrays: Any, grads: Any, params: Any
) -> tuple[list[Any], list[Any]]:
    """A pure update of lists: new parameters, and new arrays of the state."""
    require_state(optimizer, "stateless_apply")
    lists = optimizer._lists
    new, state = _update_constrained(
        optimizer,
        lists.by_name(grads, "gradients"),
        lists.state_of(state_arrays),
        lists.by_name(params, "parameters"),
    )
    return [new[name] for name in lists.names], jax.tree.leaves(state)


def _update_constrained(optimizer: Any, grads: Any, state: Any, params: Any) -> tuple:
    """An update, after which parameters that have a constraint obey it."""
    params, state = optimizer.update(grads, state, params)
    return constrained(params, optimizer._lists.constraints), state


def apply(
    optimizer: Any, grads: Sequence[Any], variables: Iterable[Any] | None
) -> None:
    """Updates variables in place; see ``Optimizer.apply``."""
    if variables is not None:
        given = list(variables)
        optimizer.build(given)
        if [id(v) for v in given] != [id(v) for v in optimizer._lists.variables]:
            raise ArgumentError(
                "apply",
                "the variables are not those that the optimizer was built with",
                hint="Make an optimizer for each list of variables.",
            )
    state, lists = require_state(optimizer, "apply"), optimizer._lists
    if lists.compiled is None or lists.compiled[0] != optimizer.revision:
        update = jax.jit(lambda *trees: _update_constrained(optimizer, *trees))
        lists.compiled = optimizer.revision, update
    named = lists.by_name(grads, "gradients")
    values = lists.by_name(lists.variables, "parameters")
    idle = _find_idle(named)
    full = named | {name: jnp.zeros_like(values[name]) for name in idle}
    params, new = lists.compiled[1](full, state, values)
    if idle:
        new = jax.tree.map_with_path(
            lambda path, old, v: old if idle & {*map(_key, path)} else v, state, new
        )
    for name, variable in zip(named, lists.variables, strict=True):
        if name not in idle:
            _assign(variable, params[name])
    optimizer._live.state = new


def _find_idle(grads: dict[str, Any]) -> set[str]:
    """Names of the variables that have no gradient; a warning tells them."""
    idle = [name for name, grad in grads.items() if grad is None]
    if idle and len(idle) == len(grads):
        raise ArgumentError("apply", "no variable has a gradient")
    if idle:
        warnings.warn(
            f"no gradients for {', '.join(idle)}: they stay as they are",
            stacklevel=4,  # who called ``Optimizer.apply``
        )
    return set(idle)


def assign_average(optimizer: Any, variables: Sequence[Any]) -> None:
    """Assigns the moving average to variables, if the optimizer keeps one."""
    state = require_state(optimizer, "finalize_variable_values")
    lists = optimizer._lists
    values = [value_of(v) for v in variables]
    final = optimizer.final_params(state, lists.by_name(values, "variables"))
    for name, variable in zip(lists.names, variables, strict=True):
        _assign(variable, final[name])


def set_values(op: str, variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Sets an optimizer's variables, from a list of values in their order."""
    if len(values) != len(variables):
        raise ArgumentError(
            op,
            f"{len(variables)} values are needed, received {len(values)}",
            hint="One for each of optimizer.variables, in their order.",
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _key(entry: Any) -> Any:
    """The key of a step into a tree."""
    return getattr(entry, "key", None)


def value_of(variable: Any) -> Any:
    """The array of a variable of any kind; an array as it is."""
    if hasattr(variable, "get_value"):
        return variable.get_value()
    return getattr(variable, "value", variable)


def _assign(variable: Any, value: Any) -> None:
    for method in ("assign", "set_value"):
        if hasattr(variable, method):
            getattr(variable, method)(value)
            return
    raise DTypeError(
        "apply",
        f"cannot assign to a {type(variable).__name__}",
        hint="Use stateless_apply or update, which return new parameters.",
    )
