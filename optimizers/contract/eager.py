"""Keras' stateful way of calling an optimizer, on top of the pure one.

Lists of variables instead of trees, and a state that the optimizer holds. ``model.fit``
does not use this; loops written for Keras do.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.constraints import apply_constraints, constraints_of
from exburn.errors import ArgumentError, DTypeError, NotBuiltError
from exburn.optimizers.contract.exclusions import exactly

if TYPE_CHECKING:
    from exburn.optimizers.contract.optimizer import Optimizer


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
        length = self.treedef.num_leaves
        values = self._check_length(optimizer_variables, length, "state arrays")
        return self.treedef.unflatten(values)

    def _check_length(self, values: Sequence[Any], length: int, what: str) -> list[Any]:
        values = [_value_of(value) for value in values]
        if len(values) != length:
            raise ArgumentError(
                self.op,
                f"the optimizer was built for {length} {what}, received {len(values)}",
            )
        return values


def build(self: Optimizer, variables: Iterable[Any]) -> None:
    """Makes the state for a list of variables; a second call does nothing.

    The state of an optimizer that was given to ``compile`` is the model's.

    Args:
        variables: Objects with a value, or arrays. A ``path`` names a parameter.
    """
    has_lists = self._lists is not None
    if has_lists or self._pass is not None:
        return
    variables = list(variables)
    paths = [str(getattr(v, "path", "")) for v in variables]
    unique = len(set(paths)) == len(paths)
    names = [p if unique else f"{i}/{p}" for i, p in enumerate(paths)]
    params = dict(zip(names, map(_value_of, variables), strict=True))
    if not unique:
        _tell_apart(self, dict(zip(names, variables, strict=True)))
    state = _shared_state(self, params)
    if state is None:
        state = self.init(params)
        box = [state]
        self.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    structure = jax.tree.structure(state)
    self.adopt(names, structure, constraints_of(names, variables))
    self._lists.variables = variables


def adopt(
    self: Optimizer,
    names: Sequence[str],
    treedef: Any,
    constraints: dict[str, Callable],
) -> None:
    """Tells ``stateless_apply`` how a trainer's lists map to its state.

    Args:
        names: Paths of the trained parameters, in the order of the lists.
        treedef: Structure of the state that the optimizer's list of arrays is of.
        constraints: Of the parameters that have one, by path.
    """
    op, before = type(self).__name__, self._lists
    self._lists = ListLayout(op, list(names), treedef, constraints)
    if before is not None:
        self._lists.variables = before.variables
        self._lists.compiled = before.compiled


def _tell_apart(optimizer: Any, variables: dict[str, Any]) -> None:
    """Excludes the variables that were given, not all that have their paths."""
    excluded = {id(v) for v in optimizer._undecayed}
    paths = {exactly(v.path) for v in optimizer._undecayed}
    optimizer.weight_decay_exclusions = (
        *(p for p in optimizer.weight_decay_exclusions if p not in paths),
        *(exactly(name) for name, v in variables.items() if id(v) in excluded),
    )


def _shared_state(optimizer: Any, params: dict[str, Any]) -> Any:
    """The state of the model that the optimizer trains, if it is for these."""
    live = optimizer._live
    if not live.is_bound:
        return None
    if live.state is None:
        live.state = optimizer.init(params)
        return live.state
    return live.state if optimizer.fits(live.state, params) else None


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


def save_own_variables(self: Optimizer, store: dict[str, Any]) -> None:
    """Puts all of ``variables`` into a dict, as ``"0"``, ``"1"`` …

    Raises:
        NotBuiltError: There is no state yet.
    """
    for number, variable in enumerate(self.variables):
        store[str(number)] = np.asarray(variable)


def load_own_variables(self: Optimizer, store: Mapping[str, Any]) -> None:
    """Takes up what ``save_own_variables`` stored.

    Raises:
        NotBuiltError: There is no state yet.
        ArgumentError: The number of variables differs.
        ShapeError: A value has another shape.
    """
    self.set_weights([store[str(number)] for number in range(len(store))])


def set_weights(self: Optimizer, weights: Sequence[Any]) -> None:
    """Sets all of ``variables``, from a list of values in their order.

    Raises:
        NotBuiltError: There is no state yet.
        ArgumentError: The list has another length.
        ShapeError: A value has another shape.
    """
    variables = self.variables
    if len(weights) != len(variables):
        raise ArgumentError(
            f"{type(self).__name__}.set_weights",
            f"{len(variables)} values are needed, received {len(weights)}",
            hint="One for each of optimizer.variables, in their order.",
        )
    for variable, value in zip(variables, weights, strict=True):
        variable.assign(value)


def state_of(self: Optimizer, optimizer_variables: Sequence[Any]) -> Any:
    """The state that a list of its values, or of ``variables``, is of.

    Raises:
        ArgumentError: The list has another length.
    """
    assert self._lists is not None  # of ``build`` or ``adopt``
    return self._lists.state_of(optimizer_variables)


def stateless_apply(
    self: Optimizer, optimizer_variables: Any, grads: Any, trainable_variables: Any
) -> tuple[Any, Any]:
    """A pure update in Keras' order of arguments.

    Args:
        optimizer_variables: The state, or ``optimizer.variables`` as a list.
        grads: Tree of gradients, or a list of them.
        trainable_variables: Tree of parameters, or a list of their values.

    Returns:
        New parameters and new state, in the form that they came in.

    Raises:
        NotBuiltError: Lists are given before ``build``.
        ArgumentError: A list has another length than the one it was built with.
    """
    if isinstance(optimizer_variables, Mapping):
        return self.update(grads, optimizer_variables, trainable_variables)
    require_state(self, "stateless_apply")
    lists = self._lists
    new, state = _update_constrained(
        self,
        lists.by_name(grads, "gradients"),
        lists.state_of(optimizer_variables),
        lists.by_name(trainable_variables, "parameters"),
    )
    return [new[name] for name in lists.names], jax.tree.leaves(state)


def _update_constrained(optimizer: Any, grads: Any, state: Any, params: Any) -> tuple:
    """An update, after which parameters that have a constraint obey it."""
    params, state = optimizer.update(grads, state, params)
    return apply_constraints(params, optimizer._lists.constraints), state


def apply(
    self: Optimizer,
    grads: Sequence[Any],
    trainable_variables: Iterable[Any] | None = None,
) -> None:
    """Updates variables in place.

    A variable whose gradient is ``None`` stays as it is, as do its slots; a warning
    names it.

    Args:
        grads: One gradient per variable.
        trainable_variables: Needed in the first call, unless ``build`` was called.

    Raises:
        NotBuiltError: There are no variables yet.
        ArgumentError: No variable has a gradient.
        DTypeError: A variable is a plain array, which nothing can be assigned to.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from exburn.optimizers import SGD
        >>> weight = nnx.Param(jnp.array([1.0]))
        >>> SGD(0.5).apply([jnp.ones(1)], [weight])
        >>> float(weight[0])
        0.5
    """
    if trainable_variables is not None:
        variables = list(trainable_variables)
        self.build(variables)
        if [id(v) for v in variables] != [id(v) for v in self._lists.variables]:
            raise ArgumentError(
                "apply",
                "the variables are not those that the optimizer was built with",
                hint="Make an optimizer for each list of variables.",
            )
    state, lists = require_state(self, "apply"), self._lists
    if lists.compiled is None or lists.compiled[0] != self.revision:
        update = jax.jit(lambda *trees: _update_constrained(self, *trees))
        lists.compiled = self.revision, update
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
    self._live.state = new


def apply_gradients(self: Optimizer, grads_and_vars: Iterable[tuple[Any, Any]]) -> int:
    """``apply`` for pairs of gradient and variable; returns the update count."""
    pairs = list(grads_and_vars)
    self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
    return self.iterations


def finalize_variable_values(self: Optimizer, var_list: Iterable[Any]) -> None:
    """Assigns the moving average to the variables, if the optimizer keeps one."""
    variables = list(var_list)
    state = require_state(self, "finalize_variable_values")
    lists = self._lists
    values = [_value_of(v) for v in variables]
    final = self.final_params(state, lists.by_name(values, "variables"))
    for name, variable in zip(lists.names, variables, strict=True):
        _assign(variable, final[name])


def _find_idle(grads: dict[str, Any]) -> set[str]:
    """Names of the variables that have no gradient; a warning tells them."""
    idle = [name for name, grad in grads.items() if grad is None]
    if idle and len(idle) == len(grads):
        raise ArgumentError("apply", "no variable has a gradient")
    if idle:
        warnings.warn(
            f"no gradients for {', '.join(idle)}: they stay as they are",
            stacklevel=3,  # who called ``apply``
        )
    return set(idle)


def _key(entry: Any) -> Any:
    """The key of a step into a tree."""
    return getattr(entry, "key", None)


def _value_of(variable: Any) -> Any:
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
