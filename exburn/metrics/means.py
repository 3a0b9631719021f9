"""Weighted means and sums, and any function of (y_true, y_pred) as a metric."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.scoped import value_scope
from exburn.errors import ArgumentError, ShapeError
from exburn.losses.contract.base import (
    Loss,
    function_config,
    function_name,
    name_constructor,
    takes_predictions_first,
)
from exburn.losses.contract.shapes import as_arrays, as_float, rank_for, unsqueeze_to
from exburn.metrics.contract.base import Metric, State
from exburn.metrics.contract.variable import variable

__all__ = [
    "FormulaMetric",
    "Mean",
    "MeanMetricWrapper",
    "Sum",
    "ratio",
    "row_weights",
    "weigh",
    "zeros",
]


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Zeros on the host: a state costs no compilation."""
    return np.zeros(shape, dtype)


def ratio(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """The quotient, and 0 where the denominator is 0."""
    empty = denominator == 0
    return jnp.where(empty, 0, numerator / jnp.where(empty, 1, denominator))


def weigh(values: jax.Array, weight: jax.Array) -> jax.Array:
    """``values · weight``; weight 0 gives 0 even where the value is not finite."""
    return jnp.where(weight == 0, 0, values * weight)


_ALL_AXES = 64  # more than an array has
_counted: contextvars.ContextVar[int] = contextvars.ContextVar(
    "exburn_counted_axes", default=1
)


def counting_positions() -> AbstractContextManager[int]:
    """In the block means are of the positions of rows of unlike lengths.

    Each counts by its weight, whatever length its batch was filled up to; else what a
    row has beyond its first axis is averaged.
    """
    return value_scope(_counted, 2)


def counting_values() -> AbstractContextManager[int]:
    """In the block means are of all values: each counts by its weight.

    Example:
        >>> with counting_values():
        ...     state = Mean().update(Mean().init(), jnp.ones((2, 3)))
        >>> float(state["count"])
        6.0
    """
    return value_scope(_counted, _ALL_AXES)


def row_weights(sample_weight: Any, rows: Any, dtype: Any) -> jax.Array:
    """One weight for each row: the mean of its weights; ones by default."""
    if sample_weight is None:
        return jnp.ones(rows, dtype)
    weight = jnp.asarray(sample_weight).astype(dtype)
    if weight.ndim > 1:
        if _counted.get() > 1:
            raise of_whole_rows("metric")
        weight = jnp.mean(weight, axis=tuple(range(1, weight.ndim)))
    return jnp.broadcast_to(weight, (rows,))


class _Accumulator(Metric):
    """What `Mean` and `Sum` share: values in, weights aligned from the left."""

    total = variable("total")

    def _terms(
        self, values: Any, sample_weight: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        """Weighted values and their weights, both ``[batch, …]``."""
        values = as_float(values, self._dtype).astype(self._dtype)
        if sample_weight is None:
            return values, None
        weight = jnp.asarray(sample_weight).astype(values.dtype)
        if values.ndim == 0:
            values = jnp.broadcast_to(values, weight.shape)
        elif weight.ndim:
            weight = unsqueeze_to(self.name, "sample_weight", weight, values)
            counted = min(_counted.get(), values.ndim)
            shape = values.shape[:counted] + weight.shape[counted:]
            weight = jnp.broadcast_to(weight, shape)
        return weigh(values, weight), weight


class Sum(_Accumulator):
    """Weighted sum of values, ``Σ w·v``.

    Shape:
        values: [batch, …]; sample_weight: [batch] or [batch, …]

    Raises:
        ShapeError: The weights do not fit the values.

    Example:
        >>> metric = Sum()
        >>> metric.update_state([1.0, 3.0, 5.0])
        >>> metric.update_state([2.0, 4.0], sample_weight=[1.0, 0.0])
        >>> float(metric.result())
        11.0
    """

    def __init__(self, name: str = "sum", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)

    def init(self) -> State:
        return {"total": zeros(dtype=self._dtype)}

    def update(self, state: State, values: Any, sample_weight: Any = None) -> State:  # type: ignore[override]
        terms, _ = self._terms(values, sample_weight)
        return {"total": state["total"] + jnp.sum(terms)}

    def compute(self, state: State) -> jax.Array:
        return jnp.asarray(state["total"])


class Mean(_Accumulator):
    """Weighted mean of values, ``Σ w·v / Σ w``.

    Every row counts by its weight, whatever batch it came in; what a row has beyond
    its first axis is averaged.

    Shape:
        values: [batch, …]; sample_weight: [batch] or [batch, …]

    Raises:
        ShapeError: The weights do not fit the values.

    Example:
        >>> metric = Mean()
        >>> metric.update_state([1.0, 3.0, 5.0, 7.0])
        >>> metric.update_state([100.0], sample_weight=[0.0])
        >>> float(metric.result())
        4.0
    """

    count = variable("count")
    _count_key: ClassVar[str] = "count"

    def __init__(self, name: str = "mean", dtype: Any = None):
        super().__init__(name=name, dtype=dtype)

    def init(self) -> State:
        return {
            "total": zeros(dtype=self._dtype),
            self._count_key: zeros(dtype=self._dtype),
        }

    def update(self, state: State, values: Any, sample_weight: Any = None) -> State:  # type: ignore[override]
        terms, weight = self._terms(values, sample_weight)
        if weight is None:
            count = math.prod(terms.shape[: _counted.get()])
        elif weight.ndim == 0:
            terms, count = jnp.mean(terms), weight  # one weight for the whole batch
        else:
            count = _sum_of_row_means(weight)
        return {
            "total": state["total"] + _sum_of_row_means(terms),
            self._count_key: state[self._count_key] + count,
        }

    def compute(self, state: State) -> jax.Array:
        return ratio(jnp.asarray(state["total"]), jnp.asarray(state[self._count_key]))


def of_whole_rows(name: str) -> ShapeError:
    """The error of a loss or metric that has one number for all positions of a row."""
    return ShapeError(
        name,
        "it has one value for a row, and would count positions that are filled up",
        hint="Of rows of unlike lengths it needs a value for each position: outputs of "
        "shape [batch, time, features].",
    )


def of_no_tokens(kind: str, name: str) -> ShapeError:
    """The error of a loss or metric without a value for each token."""
    return ShapeError(
        name,
        f"the {kind} has one number for a whole batch, and accumulate='tokens' divides "
        "sums over values",
        hint="Return a value for each token, or compile with accumulate='means'.",
    )


def _sum_of_row_means(x: jax.Array) -> jax.Array:
    first = _counted.get()
    if x.ndim > first:
        x = jnp.mean(x, axis=tuple(range(first, x.ndim)))
    return jnp.sum(x)


class MeanMetricWrapper(Mean):
    """Weighted mean of any function ``fn(y_true, y_pred)``.

    The function returns one value per row (or more), or a scalar, which then counts by
    the rows of its batch.

    Args:
        fn: A function, or a :class:`~exburn.losses.Loss`.
        name: By default the function's name.
        **kwargs: Passed on to the function.

    Raises:
        ArgumentError: ``fn`` is not callable.
        ShapeError: ``fn`` returns neither a scalar nor one value per row.

    Example:
        >>> metric = MeanMetricWrapper(lambda t, p: jnp.abs(t - p), name="distance")
        >>> metric.update_state(jnp.zeros(3), jnp.array([1.0, 2.0, 6.0]))
        >>> float(metric.result())
        3.0
    """

    per_sample: bool | None = None

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        dtype: Any = None,
        **kwargs,
    ):
        if not callable(fn):
            raise ArgumentError(
                type(self).__name__, "fn must be a function of (y_true, y_pred)"
            )
        loss = isinstance(fn, Loss)
        super().__init__(
            name=name or (fn.name if loss else function_name(fn)), dtype=dtype
        )
        self._fn = fn
        self._fn_kwargs = kwargs
        self._swapped_arguments = not loss and takes_predictions_first(fn)
        if loss:
            self.direction = "down"

    def values(self, y_true: Any, y_pred: Any) -> jax.Array:
        """The function's values for one batch."""
        if isinstance(self._fn, Loss):
            return self._fn.call(*self._fn._convert(y_true, y_pred))
        first, second = (
            (y_pred, y_true) if self._swapped_arguments else (y_true, y_pred)
        )
        return jnp.asarray(self._fn(first, second, **self._fn_kwargs))

    def ignored(self, y_true: Any, y_pred: Any) -> jax.Array | None:
        """Entries of the values that the targets rule out, or ``None``."""
        return self._fn.ignored(y_true, y_pred) if isinstance(self._fn, Loss) else None

    def update(  # type: ignore[override]
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        y_true, y_pred = as_arrays(y_true), as_arrays(y_pred)
        if isinstance(y_true, jax.Array) and isinstance(y_pred, jax.Array):
            y_true, y_pred = rank_for(self.values, self._fn, y_true, y_pred)
        values = self.values(y_true, y_pred)
        self.values_rank = values.ndim
        rows = jax.tree.leaves(y_pred)[0].shape[:1]
        if values.ndim and values.shape[:1] != rows and self.per_sample is not False:
            raise ShapeError(
                self.name,
                "a metric function must return one value per row, or a scalar",
                {"rows": rows[0] if rows else 1, "returned": values.shape},
            )
        if self.per_sample is None:
            self.per_sample = True
        if values.ndim == 0:
            self.per_sample = False
            sample_weight = row_weights(
                sample_weight, rows[0] if rows else 1, self._dtype
            )
        ignored = self.ignored(y_true, y_pred)
        if ignored is not None:
            weight = (~ignored).astype(self._dtype)
            if sample_weight is None:
                sample_weight = weight
            else:
                factor = jnp.asarray(sample_weight).astype(self._dtype)
                sample_weight = weigh(
                    weight, unsqueeze_to(self.name, "sample_weight", factor, weight)
                )
        return Mean.update(self, state, values, sample_weight)

    def get_config(self) -> dict[str, Any]:
        if isinstance(self._fn, Loss):
            fn = registry.serialize(self._fn)
        else:
            fn = function_config(self._fn)
        kwargs = {k: registry.serialize(v) for k, v in self._fn_kwargs.items()}
        return {"fn": fn, **super().get_config(), **kwargs}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MeanMetricWrapper:
        return cls(**{key: registry.deserialize(v) for key, v in config.items()})


class FormulaMetric(MeanMetricWrapper):
    """The mean of a function of this package: the class holds its options.

    Args:
        axis: Axis of the classes.
        from_logits: Whether predictions are logits.
        label_smoothing: Share of the uniform distribution mixed into the targets.
        k: How many guesses there are.

    Shape:
        both: [batch, …, d] → scalar

    Raises:
        ShapeError: The shapes of targets and predictions differ.
    """

    per_sample = True
    formula: ClassVar[Callable[..., jax.Array]]
    _default_name: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()
    elementwise: ClassVar[bool] = True

    def __init__(self, name: str = "", dtype: Any = None):
        super().__init__(type(self).formula, name=name, dtype=dtype)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name_constructor(cls)

    def values(self, y_true: Any, y_pred: Any) -> jax.Array:
        if self.elementwise and y_pred.ndim == 1 and y_true.ndim == 1:
            y_pred = y_pred[:, None]  # [batch] → [batch, 1]: one value per sample
        return type(self).formula(y_true, y_pred, **self._options())

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.options}

    def get_config(self) -> dict[str, Any]:
        return {**self._options(), **Metric.get_config(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FormulaMetric:
        return cls(**config)
