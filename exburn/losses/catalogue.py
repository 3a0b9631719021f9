"""Names of losses: strings, functions and configurations become `Loss` objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

from exburn.core import registry
from exburn.core.checks import check_not_of_keras
from exburn.core.registry import snake_case
from exburn.errors import DTypeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.losses.any_targets import *
from exburn.losses.circle_loss import *
from exburn.losses.contract.base import FormulaLoss, FunctionLoss, Loss
from exburn.losses.contract.own_call import OwnCall, has_own_call
from exburn.losses.crossentropy import *
from exburn.losses.ctc_loss import *
from exburn.losses.divergence import *
from exburn.losses.focal import *
from exburn.losses.hinge import *
from exburn.losses.overlap import *
from exburn.losses.preference import *
from exburn.losses.regression import *

CLASSES: dict[str, type[FormulaLoss]] = {
    name: value
    for name, value in sorted(globals().items())
    if isinstance(value, type)
    and issubclass(value, FormulaLoss)
    and value is not FormulaLoss
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    cls.formula.__name__: cls.formula for cls in CLASSES.values()
}
_class_of: dict[Any, type[Loss]] = {cls.formula: cls for cls in CLASSES.values()}
_ALIASES = {
    "bce": BinaryCrossentropy,
    "binary_cross_entropy": BinaryCrossentropy,
    "ce": AutoCrossentropy,
    "crossentropy": AutoCrossentropy,
    "huber_loss": Huber,
    "kld": KLDivergence,
    "kullback_leibler_divergence": KLDivergence,
    "logcosh": LogCosh,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "mse": MeanSquaredError,
    "msle": MeanSquaredLogarithmicError,
}
PREFERENCES = DPO, IPO, KTO, ORPO
_NAMES: dict[str, Any] = {
    **{snake_case(name): cls for name, cls in CLASSES.items()},
    **{cls.formula.__name__: cls for cls in CLASSES.values()},
    **CLASSES,
    **{name.upper(): cls for name, cls in _ALIASES.items() if len(name) < 5},
    **_ALIASES,
    **{
        name: cls
        for cls in PREFERENCES
        for name in (cls.__name__, cls.__name__.lower())
    },
}

for _cls in CLASSES.values():
    registry.register(_cls, package="losses")
    registry.register(_cls.formula, package="losses")
for _cls in PREFERENCES:
    registry.register(_cls, package="losses")
registry.register(FunctionLoss, package="losses")


@api_boundary
def get(identifier: Any) -> Any:
    """What a name means: the function of a loss, or an object for a class's name.

    Args:
        identifier: A name (``"mse"``, ``"MeanSquaredError"``, ``"cross_entropy"`` …), a
            class, or a configuration made by :func:`serialize`. A `Loss` object, a
            function ``fn(y_true, y_pred)`` and ``None`` are returned as they are.

    Raises:
        UnknownNameError: No loss has that name.
        DTypeError: ``identifier`` is none of these.

    Example:
        >>> get("mse")([[0.0, 1.0], [1.0, 1.0]], [[0.0, 3.0], [1.0, 1.0]]).tolist()
        [2.0, 0.0]
        >>> get("BinaryCrossentropy").name
        'binary_crossentropy'
    """
    if isinstance(identifier, str) and identifier not in CLASSES:
        if identifier in FUNCTIONS:
            return FUNCTIONS[identifier]
        cls = _NAMES.get(identifier)
        if cls in PREFERENCES:  # which no function of targets and outputs is
            return cls()
        return get(_lookup_registered(identifier)) if cls is None else cls.formula
    loss = as_loss(identifier)
    if callable(identifier) and not inspect.isclass(identifier):
        return identifier
    return loss.loss if isinstance(loss, OwnCall) else loss


@overload
def as_loss(identifier: None) -> None: ...
@overload
def as_loss(identifier: Any) -> Loss: ...
def as_loss(identifier: Any) -> Loss | None:
    """Turns anything that :func:`get` takes into a `Loss`, functions among it.

    Raises:
        UnknownNameError: No loss has that name.
        DTypeError: ``identifier`` names no loss.

    Example:
        >>> as_loss("mse").name, as_loss("binary_cross_entropy").name
        ('mean_squared_error', 'binary_cross_entropy')
    """
    if inspect.isclass(identifier) and issubclass(identifier, Loss):
        identifier = identifier()
    if isinstance(identifier, Loss):
        return OwnCall(identifier) if has_own_call(identifier) else identifier
    if identifier is None:
        return None
    if isinstance(identifier, str):
        return _by_name(identifier)
    if isinstance(identifier, Mapping):
        return as_loss(deserialize(identifier))
    check_not_of_keras("losses.get", identifier)
    if callable(identifier):
        try:
            loss_class = _class_of.get(identifier)
        except TypeError:  # a callable object that cannot be hashed
            loss_class = None
        return loss_class() if loss_class is not None else FunctionLoss(identifier)
    raise DTypeError(
        "get",
        "a loss must be a name, a Loss, a function of (y_true, y_pred), or a config",
        {"received": repr(identifier)},
    )


def _by_name(name: str) -> Loss:
    cls = _NAMES.get(name)
    if cls is not None:
        return cls(name=name) if name == "binary_cross_entropy" else cls()
    return as_loss(_lookup_registered(name))


def _lookup_registered(name: str) -> Any:
    """What the user has registered; it is no other name."""
    try:
        entry = registry.lookup(name, "loss")
    except ValueError:
        entry = None
    of_kind = issubclass(entry, Loss) if inspect.isclass(entry) else callable(entry)
    if not of_kind:
        raise unknown_name("loss", name, _NAMES, op="losses.get")
    return entry


@api_boundary
def serialize(loss: Any) -> dict[str, Any] | str:
    """A JSON-able description of a loss, for :func:`deserialize`.

    A function of this package becomes its name.

    Args:
        loss: A loss, or a function.

    Example:
        >>> serialize(Huber(delta=2.0))["config"]["delta"]
        2.0
    """
    if not isinstance(loss, Loss) and callable(loss):
        if getattr(loss, "__name__", None) in FUNCTIONS:
            return loss.__name__
        loss = as_loss(loss)
    return registry.serialize(loss)


@api_boundary
def deserialize(name: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """A loss from what :func:`serialize` made, or from a name.

    Args:
        name: The description.
        custom_objects: Classes and functions by name, besides the registered ones.

    Raises:
        UnknownNameError: A class or function that is named is not known.

    Example:
        >>> deserialize(serialize(Huber(delta=2.0)))
        Huber(delta=2.0, name='huber_loss', reduction='sum_over_batch_size')
    """
    with registry.custom_objects(custom_objects):
        if not isinstance(name, Mapping):
            return get(name)
        if name["class_name"] == "function":
            return as_loss(registry.find_function(name["config"]))
        cls = registry.custom_class(name) or _NAMES.get(name["class_name"])
        if cls is None:
            cls = registry.find({**name, "module": "losses"}, "loss")
        return cls.from_config(dict(name["config"]))
