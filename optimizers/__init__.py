"""Optimizers: pure updates on optax, with Keras' names and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import optax

from exburn.core import registry
from exburn.core.checks import check_not_of_keras
from exburn.core.missing_names import refuser
from exburn.errors import DTypeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.optimizers import schedules
from exburn.optimizers.adadelta import Adadelta
from exburn.optimizers.adafactor import Adafactor
from exburn.optimizers.adagrad import Adagrad
from exburn.optimizers.adam import Adam, AdamW
from exburn.optimizers.adamax import Adamax
from exburn.optimizers.by_depth import by_depth
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.ftrl import Ftrl
from exburn.optimizers.lamb import Lamb
from exburn.optimizers.lbfgs import LBFGS
from exburn.optimizers.lion import Lion
from exburn.optimizers.loss_scale import LossScaleOptimizer
from exburn.optimizers.multi import MultiOptimizer, OptimizerMap
from exburn.optimizers.muon import Muon
from exburn.optimizers.nadam import Nadam
from exburn.optimizers.optax_optimizer import OptaxOptimizer
from exburn.optimizers.rmsprop import RMSprop
from exburn.optimizers.sam import SAM
from exburn.optimizers.schedule_free import ScheduleFreeAdamW
from exburn.optimizers.sgd import SGD
from exburn.optimizers.shampoo import Shampoo
from exburn.optimizers.soap import SOAP
from exburn.optimizers.sophia import Sophia

__all__ = [
    "LBFGS",
    "SAM",
    "SGD",
    "SOAP",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "LossScaleOptimizer",
    "MultiOptimizer",
    "Muon",
    "Nadam",
    "OptaxOptimizer",
    "Optimizer",
    "OptimizerMap",
    "RMSprop",
    "ScheduleFreeAdamW",
    "Shampoo",
    "Sophia",
    "by_depth",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]

_CLASSES = (
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Adamax,
    Ftrl,
    Lamb,
    LBFGS,
    Lion,
    LossScaleOptimizer,
    MultiOptimizer,
    Muon,
    Nadam,
    RMSprop,
    SAM,
    SGD,
    SOAP,
    Shampoo,
    Sophia,
    ScheduleFreeAdamW,
    OptaxOptimizer,
)
_named: dict[str, type[Optimizer]] = {cls.__name__.lower(): cls for cls in _CLASSES}


@api_boundary
def get(identifier: Any) -> Optimizer:
    """The optimizer for a name, a configuration, an optax transformation, or itself.

    Args:
        identifier: A name such as ``"adam"``, ``{"class_name": …, "config": …}``, an
            :class:`Optimizer`, or an ``optax.GradientTransformation``.

    Raises:
        UnknownNameError: No optimizer has that name.
        DTypeError: The identifier is none of these.

    Example:
        >>> get("adam")
        Adam(learning_rate=0.001)
        >>> get({"class_name": "SGD", "config": {"learning_rate": 0.5}})
        SGD(learning_rate=0.5)
    """
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, optax.GradientTransformation):
        return OptaxOptimizer(identifier)
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    check_not_of_keras("optimizers.get", identifier)
    hint = None
    if isinstance(identifier, type):
        hint = f"Make an instance: {identifier.__name__}()."
    elif callable(identifier):
        hint = "Wrap a factory: exburn.optimizers.OptaxOptimizer(optax.lion, 0.001)."
    raise DTypeError(
        "optimizers.get",
        "an optimizer must be a name, a configuration, an Optimizer or an optax "
        f"transformation, received {identifier!r}",
        hint=hint,
    )


@api_boundary
def serialize(optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer's class name and configuration, JSON-able.

    Args:
        optimizer: An optimizer.

    Example:
        >>> serialize(SGD(0.5))["class_name"]
        'SGD'
    """
    return registry.serialize(optimizer)


@api_boundary
def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Optimizer:
    """The inverse of :func:`serialize`; names of built-in classes in any case.

    Args:
        config: ``{"class_name": …, "config": …}``.
        custom_objects: Classes and functions that are not registered, by name.

    Raises:
        ArgumentError: The configuration is none.

    Example:
        >>> deserialize(serialize(SGD(0.5, nesterov=True))).nesterov
        True
    """
    name = config.get("class_name")
    with registry.custom_objects(custom_objects):
        cls = registry.custom_class(config)
        cls = cls or _named.get(str(name).lower().replace("_", ""))
        if cls is None:
            try:
                cls = registry.find(config, "optimizer")
            except ValueError:
                raise unknown_name(
                    "optimizer", name, _named, op="optimizers.get"
                ) from None
        return cls.from_config(config.get("config", {}))


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(
        __name__,
        {
            "legacy": (
                "write exburn.optimizers.Adam …; Keras 3 refuses to make those, too"
            )
        },
    )
