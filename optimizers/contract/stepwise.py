"""Rules written as Keras' ``update_step``, which assigns to variables, made pure.

A pass gives the rule handles that hold a trace's values, runs it, and reads off what
was assigned. ``build`` runs in a pass, too: the values of the variables that it adds
are the rule's state. They are kept by the path of the parameter that each was made for,
so that they stay with it when others are frozen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax

from exburn import initializers
from exburn.core.variable_proxy import Handle
from exburn.errors import ArgumentError, NotBuiltError
from exburn.optimizers.contract import eager
from exburn.optimizers.contract.trees import path_of

if TYPE_CHECKING:
    from exburn.optimizers.contract.optimizer import Optimizer


_SHARED = ""  # the owner of the variables that belong to no parameter


@dataclasses.dataclass
class RulePass:
    """Values while a rule runs: of the parameters, and of the variables it added."""

    paths: list[str]
    params: list[Any]
    slots: dict[str, list[Any]]
    count: Any
    learning_rate: Any

    @property
    def weights(self) -> list[_Weight]:
        return [_Weight(self, i, path) for i, path in enumerate(self.paths)]


class _Weight(Handle):
    """A parameter, as the rule sees it."""

    trainable = True
    constraint = None

    def __init__(self, within: RulePass, index: int, path: str):
        self._within, self.index = within, index
        self.path, self.name = path, path.rpartition("/")[2]

    @property
    def value(self) -> Any:
        return self._within.params[self.index]

    def _replace(self, value: Any) -> None:
        self._within.params[self.index] = value


class _Slot(Handle):
    """A variable that the rule added: one of those of a parameter, or of its own."""

    def __init__(self, optimizer: Any, owner: str, index: int, path: str):
        self._optimizer, self._owner, self._index = optimizer, owner, index
        self.path, self.name = path, path.rpartition("/")[2]

    def _values(self) -> dict[str, list[Any]]:
        if self._optimizer._pass is not None:
            return self._optimizer._pass.slots
        state = self._optimizer._live.state
        if state is None:
            raise NotBuiltError(
                self.path,
                "the optimizer has no state yet",
                hint="Call optimizer.build(variables), or model.fit, before.",
            )
        return state["inner"]

    @property
    def value(self) -> Any:
        return self._values()[self._owner][self._index]

    def _replace(self, value: Any) -> None:
        values = self._values()
        if self._optimizer._pass is not None:
            values[self._owner][self._index] = value
            return
        own = list(values[self._owner])
        own[self._index] = jax.device_put(value)
        live = self._optimizer._live
        live.state = {**live.state, "inner": {**values, self._owner: own}}


def add_variable(
    self: Optimizer,
    shape: Iterable[int],
    initializer: Any = "zeros",
    dtype: Any = None,
    aggregation: Any = None,
    layout: Any = None,
    name: str | None = None,
) -> Handle:
    """A variable of the optimizer's own; for ``build`` of a class that has it.

    Args:
        shape: Its shape.
        initializer: A name, an initializer, or a function of shape and dtype.
        dtype: ``"float32"`` by default.
        aggregation, layout: Of Keras; not used.
        name: Its name.

    Raises:
        ArgumentError: It is called elsewhere.
    """
    return _add(self, _SHARED, shape, initializer, dtype, name)


def _add(
    optimizer: Optimizer,
    owner: str,
    shape: Iterable[int],
    initializer: Any,
    dtype: Any,
    name: str | None,
) -> Handle:
    """Adds a variable that belongs to the parameter of a path, or to none."""
    run = optimizer._pass
    if run is None:
        raise ArgumentError(
            "add_variable", "it is for build(self, variables) of a class of yours"
        )
    make, number = initializers.get(initializer), sum(map(len, run.slots.values()))
    own = run.slots.setdefault(owner, [])
    own.append(jnp.asarray(make(tuple(shape), dtype or "float32")))
    path = f"{type(optimizer).__name__}/{name or number}"
    return _Slot(optimizer, owner, len(own) - 1, path)


def add_variable_from_reference(
    self: Optimizer,
    reference_variable: Any,
    name: str | None = None,
    initializer="zeros",
) -> Handle:
    """A variable of the shape and dtype of a parameter.

    Args:
        reference_variable: The parameter.
        name: Appended to the parameter's.
        initializer: As of ``add_variable``.
    """
    path = str(getattr(reference_variable, "path", ""))
    whole = "_".join(part for part in (path.replace("/", "_"), name) if part)
    dtype, shape = jnp.dtype(reference_variable.dtype).name, reference_variable.shape
    owner = path if isinstance(reference_variable, _Weight) else _SHARED
    return _add(self, owner, shape, initializer, dtype, whole)


def add_optimizer_variables(
    self: Optimizer,
    trainable_variables: Iterable[Any],
    name: Any,
    initializer: Any = "zeros",
) -> Any:
    """A variable for each parameter; a tuple of lists for several names.

    Args:
        trainable_variables: The parameters.
        name: A name, or a sequence of them.
        initializer: As of ``add_variable``; or one for each name.
    """
    variables = list(trainable_variables)
    names = [name] if isinstance(name, str) else list(name)
    initializers = (
        initializer if isinstance(initializer, list | tuple) else [initializer]
    )
    makes = [*initializers, *initializers[:1] * (len(names) - len(initializers))]
    lists = tuple(
        [self.add_variable_from_reference(v, n, make) for v in variables]
        for n, make in zip(names, makes, strict=True)
    )
    return lists[0] if isinstance(name, str) else lists


def assign(self: Optimizer, variable: Any, value: Any) -> None:
    """``variable.assign(value)``."""
    variable.assign(value)


def assign_add(self: Optimizer, variable: Any, value: Any) -> None:
    """``variable.assign_add(value)``."""
    variable.assign_add(value)


def assign_sub(self: Optimizer, variable: Any, value: Any) -> None:
    """``variable.assign_sub(value)``."""
    variable.assign_sub(value)


def get_variable_index(self: Optimizer, variable: Any) -> int:
    """The place of a parameter among those of a pass."""
    if isinstance(variable, _Weight):
        return variable.index
    lists = self._lists
    position = [id(v) for v in lists.variables].index(id(variable))
    return sorted(lists.names).index(lists.names[position])  # as in a pass


def transformation(
    optimizer: Any, learning_rate: Any, count: Any
) -> optax.GradientTransformation:
    """The rule of a class with ``update_step(gradient, variable, learning_rate)``.

    What it assigns to a parameter is added to it as a difference.
    """

    def init(params):
        with _run_pass(optimizer, params, {}, count, learning_rate) as run:
            optimizer.build(run.weights)
            return run.slots

    def update(updates, state, params=None):
        old, treedef = jax.tree.flatten(params)
        slots = {owner: [*values] for owner, values in state.items()}
        with _run_pass(optimizer, params, slots, count, learning_rate) as run:
            for grad, weight in zip(
                treedef.flatten_up_to(updates), run.weights, strict=True
            ):
                optimizer.update_step(grad, weight, learning_rate)
            changed = [new - was for new, was in zip(run.params, old, strict=True)]
            return treedef.unflatten(changed), run.slots

    return optax.GradientTransformation(init, update)


@contextlib.contextmanager
def _run_pass(
    optimizer: Any, params: Any, slots: dict[str, Any], count: Any, rate: Any
) -> Iterator[RulePass]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    values = [jnp.asarray(leaf) for _, leaf in leaves]
    run = RulePass([path_of(path) for path, _ in leaves], values, slots, count, rate)
    before, optimizer._pass = optimizer._pass, run
    try:
        yield run
    finally:
        optimizer._pass = before


def holds_slots(value: Any) -> bool:
    """Whether a value is, or contains, variables that a rule added."""
    return any(map(_is_slot, jax.tree.leaves(value, is_leaf=_is_slot)))


def _is_slot(part: Any) -> bool:
    return isinstance(part, _Slot)


def adopt_rule(cls: Any) -> None:
    """Lets a class that has an ``update_step`` run by it.

    Raises:
        ArgumentError: It derives from an optimizer whose rule is another one.
    """
    if "build" in vars(cls):
        cls.build = _in_passes(cls.build)
    if "update_step" not in vars(cls) or "transformation" in vars(cls):
        return
    inherited = cls.transformation
    if not getattr(inherited, "__isabstractmethod__", inherited is transformation):
        raise ArgumentError(
            cls.__name__,
            "its update_step would not be called: it inherits the rule of another "
            "optimizer, which is a pure function",
            hint="Derive from exburn.optimizers.Optimizer, or override "
            "transformation(self, learning_rate, count).",
        )
    cls.transformation = transformation


def _in_passes(build: Callable) -> Callable:
    """A user's ``build``: outside of a pass the state is made, in which it runs."""

    @functools.wraps(build)
    def run(self: Any, variables: Any) -> None:
        if self._pass is None:
            eager.build(self, variables)
        else:
            build(self, variables)

    return run
