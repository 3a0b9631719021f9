"""Names of metrics: strings, functions and configurations become `Metric` objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, overload

from exburn import losses
from exburn.core import registry
from exburn.core.checks import check_not_of_keras
from exburn.core.registry import snake_case
from exburn.errors import ArgumentError, DTypeError, ShapeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.losses.catalogue import FUNCTIONS as LOSS_FUNCTIONS
from exburn.losses.contract.shapes import check_labels, check_one_hot, check_same
from exburn.metrics import accuracy as accuracies
from exburn.metrics import correlation
from exburn.metrics.accuracy import *
from exburn.metrics.auc import *
from exburn.metrics.confusion import *
from exburn.metrics.contract.base import Metric
from exburn.metrics.correlation import *
from exburn.metrics.f_score import *
from exburn.metrics.from_losses import *
from exburn.metrics.iou import *
from exburn.metrics.means import *
from exburn.metrics.operating_points import *
from exburn.metrics.regression import *

__all__ = [
    "CLASSES",
    "FUNCTIONS",
    "check_name",
    "deserialize",
    "get",
    "resolve",
    "serialize",
]

_BASES = (Metric, FormulaMetric, ThresholdMetric)
_own = sorted(globals().items())
CLASSES: dict[str, type[Metric]] = {
    name: value
    for name, value in _own
    if isinstance(value, type) and issubclass(value, Metric) and value not in _BASES
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: value
    for name, value in _own
    if inspect.isfunction(value) and name in (*accuracies.__all__, *correlation.__all__)
}
_ALIASES: dict[str, type[Metric]] = {
    "bce": BinaryCrossentropy,
    "kld": KLDivergence,
    "log_cosh": LogCoshError,
    "logcosh": LogCoshError,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "mse": MeanSquaredError,
    "msle": MeanSquaredLogarithmicError,
    "rmse": RootMeanSquaredError,
}
_BY_SHAPES = ("accuracy", "acc", "crossentropy", "ce")
_NAMES: dict[str, type[Metric]] = {
    **{snake_case(name): cls for name, cls in CLASSES.items()},
    **CLASSES,
    **{name.upper(): cls for name, cls in _ALIASES.items() if len(name) < 5},
    **_ALIASES,
}

for _cls in CLASSES.values():
    registry.register(_cls, package="metrics")
for _fn in FUNCTIONS.values():
    registry.register(_fn, package="metrics")


@overload
def get(identifier: None) -> None: ...
@overload
def get(identifier: Any) -> Metric: ...
@api_boundary
def get(identifier: Any) -> Metric | None:
    """Turns anything that names a metric into a `Metric`.

    Names that depend on shapes (``"accuracy"``) mean the class of that name here; in
    ``compile`` they go through :func:`resolve`.

    Args:
        identifier: A name (``"auc"``, ``"MeanSquaredError"``, ``"mse"`` …), a `Metric`
            object or class, a loss, a function ``fn(y_true, y_pred)``, a configuration
            made by :func:`serialize`, or ``None``, which is returned.

    Raises:
        ArgumentError: The metric cannot be made from its name alone.
        UnknownNameError: No metric has that name.
        DTypeError: ``identifier`` is none of these.

    Example:
        >>> get("auc").name, get("MeanSquaredError").name, get("mse").name
        ('auc', 'mean_squared_error', 'mean_squared_error')
    """
    if identifier is None or isinstance(identifier, Metric):
        return identifier
    if isinstance(identifier, str):
        return _by_name(identifier)
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if inspect.isclass(identifier) and issubclass(identifier, Metric):
        return _make(identifier)
    if inspect.isclass(identifier) and issubclass(identifier, losses.Loss):
        return MeanMetricWrapper(identifier())
    check_not_of_keras("metrics.get", identifier)
    if callable(identifier):
        return MeanMetricWrapper(identifier)
    raise DTypeError(
        "get",
        "a metric must be a name, a Metric, a function of (y_true, y_pred) or a config",
        {"received": repr(identifier)},
    )


def _by_name(name: str) -> Metric:
    if name in _NAMES:
        return _make(_NAMES[name])
    function = FUNCTIONS.get(name) or LOSS_FUNCTIONS.get(name)
    if function is not None:
        return MeanMetricWrapper(function)
    try:
        entry = registry.lookup(name, "metric")
    except ValueError:
        raise _unknown(name) from None
    return get(entry)


def _make(cls: type[Metric]) -> Metric:
    required = [
        p.name
        for p in inspect.signature(cls).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if required:
        raise ArgumentError(
            "metrics.get",
            f"{cls.__name__} needs arguments: {', '.join(required)}",
            hint=f"Pass metrics.{cls.__name__}({required[0]}=…) instead of its name.",
        )
    return cls()


def _unknown(name: str) -> Exception:
    names = {*_NAMES, *FUNCTIONS, *LOSS_FUNCTIONS, *_BY_SHAPES}
    return unknown_name("metric", name, names, op="metrics.get")


@api_boundary
def check_name(name: str) -> None:
    """Raises unless some metric has that name.

    Args:
        name: What a user calls the metric.

    Raises:
        UnknownNameError: No metric has that name.

    Example:
        >>> check_name("accuracy")
        >>> try:
        ...     check_name("acuracy")
        ... except ValueError as error:
        ...     print(str(error).splitlines()[-1].strip())
        → Did you mean 'accuracy'?
    """
    if name.lower() not in _BY_SHAPES and name not in _NAMES:
        if name not in FUNCTIONS and name not in LOSS_FUNCTIONS:
            try:
                registry.lookup(name, "metric")
            except ValueError:
                raise _unknown(name) from None


@api_boundary
def resolve(identifier: Any, y_true: Any, y_pred: Any) -> Metric:
    """The metric that an entry of ``compile(metrics=[...])`` means for an output.

    ``"accuracy"`` and ``"crossentropy"`` (or ``"acc"``, ``"ce"``) are binary for one
    column of predictions, sparse for integer labels, else categorical. A metric given
    by a string has that string for its name.

    Args:
        identifier: What :func:`get` takes.
        y_true: Anything with the targets' ``shape``; sizes may be symbolic.
        y_pred: The same for the predictions.

    Raises:
        ShapeError: The shapes fit none of the kinds.
        ArgumentError: ``Mean`` or ``Sum``, which take values, not targets.

    Example:
        >>> import numpy as np
        >>> metric = resolve("accuracy", np.zeros(8, int), np.zeros((8, 10)))
        >>> type(metric).__name__, metric.name
        ('SparseCategoricalAccuracy', 'accuracy')
    """
    if isinstance(identifier, str) and identifier.lower() in _BY_SHAPES:
        metric = _by_shapes(identifier.lower(), y_true, y_pred)
    else:
        metric = get(identifier)
    if metric is None:
        raise ArgumentError("compile", "a metric must not be None")
    if type(metric).update in (Mean.update, Sum.update):
        raise ArgumentError(
            "compile",
            f"{type(metric).__name__} averages values, not targets against predictions",
            hint="Use MeanMetricWrapper(fn), or override update_state(y_true, y_pred).",
        )
    if isinstance(identifier, str):
        metric.name = identifier
    return metric


def _by_shapes(name: str, y_true: Any, y_pred: Any) -> Metric:
    t, p = tuple(y_true.shape), tuple(y_pred.shape)
    accuracy = name in ("accuracy", "acc")
    if not t or not p:
        raise ShapeError(name, "needs a batch axis", {"y_true": t, "y_pred": p})
    if len(p) == 1 or p[-1] == 1:
        check_same(name, y_true, y_pred)
        return BinaryAccuracy() if accuracy else BinaryCrossentropy()
    if len(t) < len(p) or (t[-1] == 1 and p[-1] != 1):
        check_labels(name, y_true, y_pred)
        cls = SparseCategoricalAccuracy if accuracy else SparseCategoricalCrossentropy
        return cls()
    check_one_hot(name, y_true, y_pred)
    return CategoricalAccuracy() if accuracy else CategoricalCrossentropy()


@api_boundary
def serialize(metric: Any) -> dict[str, Any] | str:
    """A JSON-able description of a metric, for :func:`deserialize`.

    A function of this package becomes its name.

    Args:
        metric: A metric, or a function.

    Example:
        >>> serialize(AUC(curve="PR"))["config"]["curve"]
        'PR'
    """
    if not isinstance(metric, Metric) and callable(metric):
        name = getattr(metric, "__name__", None)
        if name in FUNCTIONS or name in LOSS_FUNCTIONS:
            return name
        metric = get(metric)
    return registry.serialize(metric)


@api_boundary
def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Metric:
    """A metric from what :func:`serialize` made, or from a name.

    Args:
        config: The description.
        custom_objects: Classes and functions by name, besides the registered ones.

    Raises:
        UnknownNameError: A class or function that is named is not known.

    Example:
        >>> deserialize(serialize(Precision(top_k=3))).top_k
        3
    """
    with registry.custom_objects(custom_objects):
        if not isinstance(config, Mapping):
            return get(config)
        if config["class_name"] == "function":
            return get(registry.find_function(config["config"]))
        cls = registry.custom_class(config) or _NAMES.get(config["class_name"])
        if cls is None:
            cls = registry.find({**config, "module": "metrics"}, "metric")
        return cls.from_config(dict(config["config"]))
