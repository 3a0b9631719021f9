"""Keras' stateful way of calling an optimizer, on top of the pure one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.constraints import apply_constraints, constraints_of
from exburn.errors import ArgumentError, DTypeError, NotBuiltError
from exburn.module.building import spec_like
from exburn.optimizers.exclusions import exactly
from exburn.optimizers.variable import OptimizerVariable, variables_of

__all__ = ["Eager"]


class Eager:
    """Lists of variables instead of trees, and a state that the optimizer holds.

    ``model.fit`` does not use this; loops written for Keras do:
    ``optimizer.build(variables)``, then ``optimizer.apply(grads)``, which assigns, or
    ``optimizer.stateless_apply(optimizer_variables, grads, trainable_variables)``.
    """

    _names: list[str] | None = None
    _variables: list[Any]
    _treedef: Any
    _constraints: dict[str, Callable] = {}
    _compiled: tuple[int, Any] | None = None
    _undecayed: Sequence[Any] = ()  # given to exclude_from_weight_decay
    weight_decay_exclusions: Sequence[str]

    init: Any
    update: Any
    bind: Any
    final_params: Any
    revision: int
    iterations: Any
    _live: Any
    _get_state: Any
    _set_state: Any
    _pass: Any

    @property
    def built(self) -> bool:
        """Whether it has a state: of ``build``, or of a model that it trains."""
        return self._pass is None and (self._adopted or self._live() is not None)

    @property
    def _adopted(self) -> bool:
        return self._names is not None and self._pass is None

    def build(self, variables: Iterable[Any]) -> None:
        """Makes the state for a list of variables; a second call does nothing.

        The state of an optimizer that was given to ``compile`` is the model's.

        Args:
            variables: Objects with a value, or arrays. A ``path`` names a parameter.
        """
        if self._adopted or self._pass is not None:
            return
        variables = list(variables)
        paths = [str(getattr(v, "path", "")) for v in variables]
        unique = len(set(paths)) == len(paths)
        names = [p if unique else f"{i}/{p}" for i, p in enumerate(paths)]
        params = dict(zip(names, map(_value, variables), strict=True))
        if not unique:
            self._tell_apart(dict(zip(names, variables, strict=True)))
        state = self._shared_state(params)
        if state is None:
            state = self.init(params)
            box = [state]
            self.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
        self._variables = variables
        self.adopt(names, jax.tree.structure(state), constraints_of(names, variables))

    def _tell_apart(self, variables: dict[str, Any]) -> None:
        """Excludes the variables that were given, not all that have their paths."""
        given = {id(v) for v in self._undecayed}
        paths = {exactly(v.path) for v in self._undecayed}
        self.weight_decay_exclusions = (
            *(p for p in self.weight_decay_exclusions if p not in paths),
            *(exactly(name) for name, v in variables.items() if id(v) in given),
        )

    def _shared_state(self, params: dict[str, Any]) -> Any:
        """The state of the model that the optimizer trains, if it is for these."""
        if self._get_state is None:
            return None
        if self._live() is None:
            self._set_state(self.init(params))
            return self._live()
        specs = self.init(jax.tree.map(spec_like, params))
        same = jax.tree.map(np.shape, specs) == jax.tree.map(np.shape, self._live())
        return self._live() if same else None

    def adopt(
        self, names: Sequence[str], treedef: Any, constraints: dict[str, Callable]
    ) -> None:
        """Tells ``stateless_apply`` how a trainer's lists map to its state.

        Args:
            names: Paths of the trained parameters, in the order of the lists.
            treedef: Structure of the state that the optimizer's list of arrays is of.
            constraints: Of the parameters that have one, by path.
        """
        self._names, self._treedef = list(names), treedef
        self._constraints = constraints

    @property
    def variables(self) -> list[OptimizerVariable]:
        """The state's arrays, each as a variable with ``value`` and ``assign``.

        Raises:
            NotBuiltError: There is no state yet.
        """
        return variables_of(self, self._need_state("variables"))

    def save_own_variables(self, store: dict[str, Any]) -> None:
        """Puts all of ``variables`` into a dict, as ``"0"``, ``"1"`` …

        Raises:
            NotBuiltError: There is no state yet.
        """
        for number, variable in enumerate(self.variables):
            store[str(number)] = np.asarray(variable)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes up what ``save_own_variables`` stored.

        Raises:
            NotBuiltError: There is no state yet.
            ArgumentError: The number of variables differs.
            ShapeError: A value has another shape.
        """
        self.set_weights([store[str(number)] for number in range(len(store))])

    def set_weights(self, weights: Sequence[Any]) -> None:
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

    def state_of(self, optimizer_variables: Sequence[Any]) -> Any:
        """The state that a list of its values, or of ``variables``, is of.

        Raises:
            ArgumentError: The list has another length.
        """
        wanted = self._treedef.num_leaves
        values = self._checked(optimizer_variables, wanted, "state arrays")
        return self._treedef.unflatten(map(_value, values))

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
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
        self._need_state("stateless_apply")
        params, state = self._update_constrained(
            self._named(grads, "gradients"),
            self.state_of(optimizer_variables),
            self._named(trainable_variables, "parameters"),
        )
        return [params[name] for name in self._names or ()], jax.tree.leaves(state)

    def apply(
        self, grads: Sequence[Any], trainable_variables: Iterable[Any] | None = None
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
            given = list(trainable_variables)
            self.build(given)
            if [id(v) for v in given] != [id(v) for v in self._variables]:
                raise ArgumentError(
                    "apply",
                    "the variables are not those that the optimizer was built with",
                    hint="Make an optimizer for each list of variables.",
                )
        state = self._need_state("apply")
        if self._compiled is None or self._compiled[0] != self.revision:
            self._compiled = (self.revision, jax.jit(self._update_constrained))
        named = self._named(grads, "gradients")
        values = self._named(self._variables, "parameters")
        idle = self._idle(named)
        full = named | {name: jnp.zeros_like(values[name]) for name in idle}
        params, new = self._compiled[1](full, state, values)
        if idle:
            new = jax.tree.map_with_path(
                lambda path, old, v: old if idle & {*map(_key, path)} else v, state, new
            )
        for name, variable in zip(named, self._variables, strict=True):
            if name not in idle:
                _assign(variable, params[name])
        self._set_state(new)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> int:
        """``apply`` for pairs of gradient and variable; returns the update count."""
        pairs = list(grads_and_vars)
        self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def _idle(self, grads: dict[str, Any]) -> set[str]:
        """Names of the variables that have no gradient; a warning tells them."""
        idle = [name for name, grad in grads.items() if grad is None]
        if idle and len(idle) == len(grads):
            raise ArgumentError("apply", "no variable has a gradient")
        if idle:
            warnings.warn(
                f"no gradients for {', '.join(idle)}: they stay as they are",
                stacklevel=3,
            )
        return set(idle)

    def finalize_variable_values(self, var_list: Iterable[Any]) -> None:
        """Assigns the moving average to the variables, if the optimizer keeps one."""
        variables = list(var_list)
        state = self._need_state("finalize_variable_values")
        values = [_value(v) for v in variables]
        final = self.final_params(state, self._named(values, "variables"))
        for name, variable in zip(self._names or (), variables, strict=True):
            _assign(variable, final[name])

    def _update_constrained(self, grads: Any, state: Any, params: Any) -> tuple:
        """An update, after which parameters that have a constraint obey it."""
        params, state = self.update(grads, state, params)
        return apply_constraints(params, self._constraints), state

    def _need_state(self, op: str) -> Any:
        state = self._live()
        if state is None or (op != "variables" and not self._adopted):
            raise NotBuiltError(
                op,
                "the optimizer has no state yet",
                hint="Call optimizer.build(variables), or give the variables to apply.",
            )
        return state

    def _named(self, values: Sequence[Any], what: str) -> dict[str, Any]:
        names = self._names or []
        return dict(zip(names, self._checked(values, len(names), what), strict=True))

    def _checked(self, values: Sequence[Any], wanted: int, what: str) -> list[Any]:
        values = [_value(value) for value in values]
        if len(values) != wanted:
            raise ArgumentError(
                type(self).__name__,
                f"the optimizer was built for {wanted} {what}, received {len(values)}",
            )
        return values


def _key(entry: Any) -> Any:
    """The key of a step into a tree."""
    return getattr(entry, "key", None)


def _value(variable: Any) -> Any:
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
