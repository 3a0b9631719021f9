"""A metric's variable, as Keras code expects it: a handle on one array of the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from exburn.core.precision import standardize_dtype
from exburn.core.variable_proxy import Handle

if TYPE_CHECKING:
    from exburn.metrics.contract.base import Metric


def initial_value(initializer: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A host array: zeros unless an initializer says otherwise."""
    dtype = np.dtype(standardize_dtype(dtype))
    if initializer is None or initializer in ("zeros", "zero"):
        return np.zeros(shape, dtype)
    if initializer in ("ones", "one"):
        return np.ones(shape, dtype)
    from exburn import initializers

    return np.asarray(initializers.get(initializer)(shape, dtype), dtype)


class MetricVariable(Handle):
    """One array of a metric's state, for ``update_state`` written Keras' way.

    Example:
        >>> from exburn.metrics import Mean
        >>> metric = Mean()
        >>> metric.update_state([1.0, 3.0])
        >>> {v.name: float(v) for v in metric.variables}
        {'total': 4.0, 'count': 2.0}
    """

    def __init__(self, metric: Metric, name: str):
        self._metric = metric
        self.name, self.path = name, f"{metric.name}/{name}"

    @property
    def value(self) -> Any:
        return self._metric._current()[self.name]

    @property
    def identity(self) -> tuple[int, str]:
        return id(self._metric), self.name

    def _replace(self, value: Any) -> None:
        self._metric._state = {**self._metric._current(), self.name: value}


class FromState:
    """An attribute that is read off a metric's state, unless a subclass sets another.

    Example:
        >>> from exburn.metrics import Sum
        >>> metric = Sum()
        >>> metric.update_state([1.0, 3.0])
        >>> float(metric.total)
        4.0
    """

    def __init__(self, read: Callable[[Any], Any]):
        self.read = read

    def __get__(self, metric: Metric | None, owner: Any) -> Any:
        return self if metric is None else self.read(metric)


def variable(key: str) -> Any:
    """The attribute for a variable of the state."""
    return FromState(lambda metric: MetricVariable(metric, key))
