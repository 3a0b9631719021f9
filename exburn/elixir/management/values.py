"""A model's weights and key figures: read, replaced, copied, moved."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.precision import is_float
from exburn.errors import DTypeError, ShapeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.models.arguments import check_model
from exburn.module.building import require_built
from exburn.module.traversal import iter_weights
from exburn.module.variable import assign

__all__ = ["clone", "info", "parameters", "to_device", "update_params"]


@api_boundary
def parameters(model: Any) -> dict[str, jax.Array]:
    """All weights by path, those that training does not change included.

    The arrays are the model's own: the next training step may delete them. Copy what
    is to be kept.

    Args:
        model: A model.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> {path: value.shape for path, value in parameters(model).items()}
        {'dense/kernel': (4, 3), 'dense/bias': (3,)}
    """
    _check_built(model, "parameters")
    return {path: weight.get_value() for path, weight, _ in iter_weights(model)}


@api_boundary
def update_params(model: Any, params: Mapping[str, Any]) -> Any:
    """Replaces weights by path; those not named stay. All or nothing.

    Args:
        model: A model.
        params: Arrays by path.

    Returns:
        The model.

    Raises:
        UnknownNameError: The model has no weight of that path.
        ShapeError: A shape differs.
        DTypeError: A value holds no real numbers.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model = update_params(model, {"dense/bias": np.ones(3)})
        >>> parameters(model)["dense/bias"].tolist()
        [1.0, 1.0, 1.0]
    """
    op = "update_params"
    _check_built(model, op)
    if not isinstance(params, Mapping):
        raise DTypeError(
            op, f"params must be a dict by path, received {type(params).__name__}"
        )
    own = {path: weight for path, weight, _ in iter_weights(model)}
    new = {}
    for path, value in params.items():
        if path not in own:
            raise unknown_name("weight", path, own, op=op)
        new[path] = _numbers(op, path, value)
        if new[path].shape != tuple(own[path].shape):
            raise ShapeError(
                op,
                f"{path} has shape {tuple(own[path].shape)}, received "
                f"{new[path].shape}; nothing was changed",
            )
    for path, value in new.items():
        assign(own[path], value)
    return model


def _numbers(op: str, path: str, value: Any) -> Any:
    """The value as an array of real numbers."""
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        real = array.dtype.kind in "biu" or is_float(array.dtype)
    except ValueError:  # ragged lists
        real, array = False, None
    if not real:
        found = type(value).__name__ if array is None else array.dtype
        raise DTypeError(
            op, f"{path} needs real numbers, received {found}; nothing was changed"
        )
    return array


@api_boundary
def info(model: Any) -> dict[str, Any]:
    """Key figures of a model under ExBurn's names; ``model.info()`` tells more.

    Args:
        model: A model.

    Returns:
        ``total_params, layer_count, loss_function, optimizer, learning_rate, device,
        weight_decay, frozen_layers_count, estimated_memory_mb, compiled``. The memory
        is that of the parameters in their own dtypes.

    Raises:
        DTypeError: This is no model.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((784,)), exburn.layers.Dense(10)])
        >>> model.compile("adam", "cross_entropy")
        >>> found = info(model)
        >>> found["total_params"], found["optimizer"], found["loss_function"]
        (7850, 'adam', 'cross_entropy')

    Source: ExBurn (Elixir), ``ExBurn.Model.info``.
    """
    check_model("info", model)
    found = model.info()
    return {
        "total_params": found.parameters,
        "layer_count": found.layers,
        "loss_function": found.loss,
        "optimizer": found.optimizer,
        "learning_rate": found.learning_rate,
        "device": found.device,
        "weight_decay": getattr(model.optimizer, "l2_weight_decay", None) or 0.0,
        "frozen_layers_count": len(found.frozen_layers),
        "estimated_memory_mb": sum(found.bytes.values()) / 2**20,
        "compiled": found.compiled,
    }


@api_boundary
def clone(model: Any) -> Any:
    """A deep copy: weights, compile settings and optimizer state; nothing is shared.

    Args:
        model: A model.

    Raises:
        ArgumentError: A part of the model cannot be described (see ``register``).

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("adam", "mse")
        >>> twin = clone(model)
        >>> twin.compiled, twin.optimizer is model.optimizer
        (True, False)

    Source: ExBurn (Elixir), ``ExBurn.Model.clone``.
    """
    check_model("clone", model)
    twin = model.clone()
    run = model._run.value
    if not model.compiled:
        return twin
    settings = {
        name: copy.deepcopy(v)
        for name, v in run.settings.items()
        if name != "optimizer"
    }
    optimizer = type(run.optimizer).from_config(run.optimizer.get_config())
    twin.compile(optimizer, **settings)
    if run.trainer.holder.opt_state is not None:
        trainer = twin._run.value.trainer
        trainer.holder.opt_state = jax.tree.map(jnp.copy, run.trainer.holder.opt_state)
        trainer.holder.step, trainer.holder.epochs = (
            run.trainer.holder.step,
            run.trainer.holder.epochs,
        )
    return twin


@api_boundary
def to_device(model: Any, device: Any) -> Any:
    """Moves a model to ``"cpu"``, ``"gpu"`` or a JAX device: ``model.to_device``.

    Args:
        model: A model.
        device: A device, or its name.

    Raises:
        DTypeError: This is no model.
        ArgumentError: There is no such device.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> to_device(model, "cpu") is model
        True
    """
    check_model("to_device", model)
    return model.to_device(device)


def _check_built(model: Any, op: str) -> None:
    check_model(op, model)
    require_built(model, op)
    model._require_weights()
