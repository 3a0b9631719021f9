"""All that training changes in a model, as one nested dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, NotBuiltError, ShapeError, unknown_name
from exburn.models.network import Network
from exburn.module.seed_generator import iter_variables
from exburn.runtime.sharding.arrays import to_host

_FORMATS = "backend_tensor", "numpy_array"


def get_state_tree(
    self: Network, value_format: str = "backend_tensor"
) -> dict[str, Any]:
    """Values of all variables, nested by the parts of their paths.

    Args:
        value_format: ``"backend_tensor"`` for JAX' arrays, which the next step of
            training consumes, or ``"numpy_array"`` for copies.

    Returns:
        A dict with ``trainable_variables``, ``non_trainable_variables``,
        ``optimizer_variables`` and ``metrics_variables``.

    Raises:
        ArgumentError: There is no such format.

    Example:
        >>> from exburn.layers import Dense
        >>> from exburn.models import Sequential
        >>> model = Sequential([Dense(2, name="head")])
        >>> model.build((None, 3))
        >>> tree = model.get_state_tree("numpy_array")
        >>> tree["trainable_variables"]["head"]["kernel"].shape
        (3, 2)
        >>> model.set_state_tree(tree)

    Source: Keras, ``Model.get_state_tree``.
    """
    if value_format not in _FORMATS:
        raise ArgumentError(
            "get_state_tree",
            f"value_format must be one of {_FORMATS}, received {value_format!r}",
        )
    on_device = value_format == "backend_tensor"
    as_array = jnp.asarray if on_device else lambda v: np.array(to_host(v))
    tree: dict[str, Any] = {}
    for kind, variables in _variables_by_kind(self).items():
        tree[kind] = {}
        for path, variable in variables.items():
            *folders, name = path.split("/")
            place = tree[kind]
            for folder in folders:
                place = place.setdefault(folder, {})
            place[name] = as_array(variable.value)
    return tree


def set_state_tree(self: Network, state_tree: Mapping[str, Any]) -> None:
    """Sets variables to such values. Nothing is changed unless everything fits.

    Args:
        state_tree: What ``get_state_tree`` returned, or parts of it. The model
            must be built; it must be compiled if there are optimizer's in it.
            Variables of metrics that the model has not made yet are left out.

    Raises:
        UnknownNameError: There is no such variable.
        ShapeError: A value has another shape.
        NotBuiltError: There is no optimizer, and its variables are given.
    """
    if slots := state_tree.get("optimizer_variables"):
        _begin_optimizer(self, [path for path, _ in _leaves(slots)])
    variables, op = _variables_by_kind(self), "set_state_tree"
    updates: list[tuple[Any, Any]] = []
    for kind, values in state_tree.items():
        if kind not in variables:
            raise unknown_name("part of the state", kind, variables, op=op)
        for path, value in _leaves(values):
            if kind == "metrics_variables" and path not in variables[kind]:
                continue  # of compile, and made by the first batch
            if path not in variables[kind]:
                raise unknown_name("variable", path, variables[kind], op=op)
            variable = variables[kind][path]
            if np.shape(value) != tuple(variable.shape):
                raise ShapeError(
                    op,
                    f"{path} has shape {tuple(variable.shape)}, received "
                    f"{np.shape(value)}",
                )
            updates.append((variable, value))
    for variable, value in updates:
        variable.assign(value)


def _variables_by_kind(model: Network) -> dict[str, dict[str, Any]]:
    """Every variable by its path, by what it belongs to."""
    model._require_weights()
    own = list(iter_variables(model))
    return {
        "trainable_variables": {path: v for path, v, learns in own if learns},
        "non_trainable_variables": {path: v for path, v, on in own if not on},
        "optimizer_variables": {v.path: v for v in _optimizer_variables(model)},
        "metrics_variables": {v.path: v for v in model.metrics_variables},
    }


def _optimizer_variables(model: Network) -> Any:
    """The optimizer's variables; there are none before the first step."""
    trainer = model._training_session.trainer
    begun = trainer is not None and trainer.holder.current_opt_state() is not None
    return model.optimizer.variables if begun else ()


def _begin_optimizer(model: Network, paths: list[str]) -> None:
    """Makes the optimizer's state, if there is none, for such variables."""
    trainer = model._training_session.trainer
    if trainer is None or trainer.holder.optimizer is None:
        raise NotBuiltError(
            "set_state_tree",
            "the state has an optimizer's variables, and the model is not compiled",
            hint="Call compile before, or leave out 'optimizer_variables'.",
        )
    holder, optimizer = trainer.holder, trainer.holder.optimizer
    if holder.current_opt_state() is None:
        params = holder.trained_weights()
        fresh = optimizer.init(params)
        holder.opt_state = optimizer.as_stored(fresh, params, paths)


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for name, part in tree.items():
            yield from _leaves(part, f"{path}/{name}" if path else name)
    else:
        yield path, tree
