"""What ``compile`` takes as losses, loss weights and metrics, looked at early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from exburn import metrics
from exburn.errors import ArgumentError, DTypeError
from exburn.losses.catalogue import as_loss
from exburn.losses.contract.base import Loss
from exburn.losses.contract.own_call import OwnCall
from exburn.losses.residual import Residual


def get_losses(loss: Any, each: Callable[[Any], Any] = as_loss) -> Any:
    """What ``each`` makes of a loss, or of each of a container of them."""
    if loss is None:
        return None
    if isinstance(loss, list | tuple):
        return [get_losses(one, each) for one in loss]
    if isinstance(loss, Mapping) and "class_name" not in loss:
        return {name: get_losses(one, each) for name, one in loss.items()}
    return each(loss)


def loss_name(identifier: Any) -> str:
    """What logs call a loss: a function's name as it was given, else the loss's own.

    Example:
        >>> loss_name("mse"), loss_name("MeanSquaredError")
        ('mse', 'mean_squared_error')
    """
    loss = as_loss(identifier)
    is_alias = isinstance(identifier, str) and identifier != type(loss).__name__
    return identifier if is_alias else loss.name


def check_divisible(loss: Any) -> None:
    """Raises unless a loss can be a sum over values that is divided by their weights.

    Args:
        loss: What ``get_losses`` returned.
    """
    for one in jax.tree.leaves(loss, is_leaf=lambda part: isinstance(part, Loss)):
        if isinstance(one, Residual):
            raise ArgumentError(
                "compile",
                "accumulate='tokens' divides by the tokens of targets, which the "
                "residual of an equation has none of",
                hint="Compile with accumulate='means'.",
            )
        if isinstance(one, OwnCall):
            raise ArgumentError(
                "compile",
                f"accumulate='tokens' divides sums over values, and the loss "
                f"{one.name!r} reduces them in a __call__ of its own",
                hint="Override call, which returns a value for each token, or compile "
                "with accumulate='means'.",
            )
        if one.reduction in ("sum", "none", None):
            raise ArgumentError(
                "compile",
                f"accumulate='tokens' divides by the tokens, and the loss {one.name!r} "
                f"has reduction={one.reduction!r}, which does not",
                hint="Leave out reduction, or accumulate.",
            )


def check_metrics(spec: Any) -> None:
    """Unknown names are errors at ``compile`` already."""
    if spec is None:
        return
    if isinstance(spec, Mapping) and "class_name" not in spec:
        for one in spec.values():
            check_metrics(one)
    elif isinstance(spec, list | tuple):
        for one in spec:
            check_metrics(one)
    elif isinstance(spec, str):
        metrics.check_name(spec)
    elif not (
        isinstance(spec, metrics.Metric) or callable(spec) or hasattr(spec, "get")
    ):
        raise DTypeError(
            "compile",
            "a metric must be a name, a Metric or a function of (y_true, y_pred), "
            f"received {spec!r}",
        )


def check_scales(spec: Any) -> None:
    """``loss_weights``: numbers, alone or by output."""
    if isinstance(spec, Mapping):
        spec = list(spec.values())
    for value in spec if isinstance(spec, list | tuple) else [spec]:
        if isinstance(value, list | tuple | Mapping):  # of several losses or outputs
            check_scales(value)
            continue
        number = isinstance(value, int | float | np.number | np.ndarray | jax.Array)
        if value is not None and not (
            number and np.ndim(value) == 0 and np.isfinite(value)
        ):
            raise ArgumentError(
                "compile", f"loss_weights must be finite numbers, received {value!r}"
            )


def as_list(value: Any) -> list[Any]:
    """A list of what is a list, alone, or None."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
