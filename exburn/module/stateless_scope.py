"""Blocks in which variables hold other values, for functions that JAX traces."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import jax
import numpy as np
from flax import nnx
from flax.errors import TraceContextError

from exburn.core import random_keys
from exburn.core.scoped import value_scope
from exburn.core.variable_proxy import Handle
from exburn.errors import ArgumentError, ShapeError


class StatelessScope:
    """Gives variables other values in a block, and theirs back at its end.

    Inside of a function that JAX traces, layers, optimizers and metrics then compute
    with the function's arguments. Assignments in the block last as long as it does;
    ``get_current_value`` tells afterwards what they were.

    Args:
        state_mapping: Pairs of a variable and its value, of the variable's shape. With
            ``non_trainable_variables`` among them, random layers draw from the seeds
            there, which the block moves on.
        collect_losses: Whether ``losses`` receives what layers add by ``add_loss``.
        initialize_variables: For Keras code; new variables are filled in any case.

    Attributes:
        losses: Scalars that layers added in the block.

    Raises:
        ArgumentError: An entry is not a pair that begins with a variable.
        ShapeError: A value has another shape than its variable.

    Example:
        >>> import exburn, jax, numpy as np
        >>> layer = exburn.layers.Dense(1, kernel_initializer="ones")
        >>> layer.build((None, 2))
        >>> @jax.jit
        ... def call(values, x):
        ...     pairs = zip(layer.variables, values)
        ...     with exburn.StatelessScope(pairs) as scope:
        ...         outputs = layer(x)
        ...         layer.bias.assign_add([1.0])
        ...     return outputs, scope.get_current_value(layer.bias)
        >>> outputs, bias = call([np.full((2, 1), 3.0), np.zeros(1)], np.ones((1, 2)))
        >>> outputs.tolist(), bias.tolist(), layer.bias.numpy().tolist()
        ([[6.0]], [1.0], [0.0])

    Source: ``keras.StatelessScope``.
    """

    def __init__(
        self,
        state_mapping: Iterable[tuple[Any, Any]] | None = None,
        collect_losses: bool = False,
        initialize_variables: bool = True,
    ):
        self.collect_losses = collect_losses
        self.initialize_variables = initialize_variables
        self.losses: list[Any] = []
        self._given = [_check_pair(pair) for pair in state_mapping or ()]
        self._seeds = [v for v, _ in self._given if random_keys.is_seed(v)]
        self._begin()

    def _begin(self) -> None:
        self._drew = False
        self._held: dict[Any, tuple[Any, Any]] = {}  # a variable, and its own value
        self._after: dict[Any, Any] | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._begin()
        try:
            self._put(self._given)
        except ArgumentError:
            set_values(self._held.values())
            raise
        self._open.enter_context(value_scope(_current, self))
        if self._seeds:
            self._open.enter_context(random_keys.key_scope(self._key))
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()
        self._after = {name: self._now(v) for name, (v, _) in self._held.items()}
        set_values(self._held.values())

    @property
    def state_mapping(self) -> dict[int, Any]:
        """The values in the block, or at its end, by ``id`` of their variable."""
        return {id(v): self.get_current_value(v) for v, _ in self._held.values()}

    def get_current_value(self, variable: Any) -> Any:
        """A variable's value in the block, or at its end; ``None`` if it has none."""
        if (name := _identity(variable)) not in self._held:
            return None
        return self._now(variable) if self._after is None else self._after[name]

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Assigns a value to a variable: ``(variable, value)``."""
        self._put([_check_pair(update)])

    def add_loss(self, loss: Any) -> None:
        """Appends to ``losses``."""
        self.losses.append(loss)

    def _put(self, pairs: list[tuple[Any, Any]]) -> None:
        for variable, _ in pairs:
            self._held.setdefault(_identity(variable), (variable, _value(variable)))
        for variable, _ in set_values(pairs):
            raise ArgumentError(
                _name(variable),
                "a variable that a traced function made cannot be set in another one "
                "inside of it",
                hint="Make it outside of jax.jit.",
            )

    def _now(self, variable: Any) -> Any:
        value = _value(variable)
        moved = self._drew and any(variable is seed for seed in self._seeds)
        return random_keys.next_words(value) if moved else value

    def _key(self) -> jax.Array:
        self._drew = True
        return random_keys.key_of(_value(self._seeds[0]))


_current: contextvars.ContextVar[StatelessScope | None] = contextvars.ContextVar(
    "exburn_stateless_scope", default=None
)


def current() -> StatelessScope | None:
    """The innermost block under way, or ``None``."""
    return _current.get()


def _check_pair(pair: Any) -> tuple[Any, Any]:
    """A variable, and its value as an array of the variable's dtype."""
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise ArgumentError("StatelessScope", f"{pair!r} is not (variable, value)")
    variable, value = pair
    if not isinstance(variable, nnx.Variable | Handle):
        raise ArgumentError(
            "StatelessScope",
            f"values are given to variables, received {type(variable).__name__}",
            hint="zip(layer.variables, values)",
        )
    value = _value(value) if isinstance(value, nnx.Variable | Handle) else value
    if np.shape(value) != tuple(variable.shape):
        raise ShapeError(
            "StatelessScope",
            f"{_name(variable)} has shape {tuple(variable.shape)}, "
            f"received {np.shape(value)}",
        )
    return variable, jax.numpy.asarray(value, _value(variable).dtype)


def _identity(variable: Any) -> Any:
    return variable.identity if isinstance(variable, Handle) else id(variable)


def _value(variable: Any) -> Any:
    if isinstance(variable, Handle):
        return variable.value
    return variable.get_raw_value()


def set_values(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Sets values, also where JAX traces a function that the variables are not of.

    flax refuses that, for they would keep what is traced: give them values that are
    not, or theirs back. Other threads are outside of the trace.

    Returns:
        Those that were refused in every way.
    """
    refused = _set(pairs)
    if refused:
        with ThreadPoolExecutor(1) as thread:
            refused = thread.submit(_set, refused).result()
    return refused


def _set(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    refused = []
    for variable, value in pairs:
        if isinstance(variable, Handle):
            variable._replace(value)
            continue
        try:
            variable.set_raw_value(value)
        except TraceContextError:
            refused.append((variable, value))
    return refused


def _name(variable: Any) -> str:
    return getattr(variable, "name", "variable")  # flax's own have none
