"""The contract of a metric: a pure core, and Keras' stateful surface on top."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.catalogue_class import CatalogueClass
from exburn.core.checks import check_text
from exburn.core.precision import standardize_dtype
from exburn.core.registry import snake_case
from exburn.errors import ArgumentError, ExBurnError, NotBuiltError, locate
from exburn.losses.contract.reduction import blank_out
from exburn.losses.contract.shapes import as_arrays, stand_ins
from exburn.metrics.contract.variable import MetricVariable, initial_value

State = dict[str, Any]

_NESTED = "metrics"  # key of the states of metrics inside a metric
_CORE = {"init": "reset_state", "update": "update_state", "compute": "result"}


class Metric(CatalogueClass):
    """Base class of all metrics.

    There are two ways to write one. The pure way is three functions over a dict of
    arrays, ``init() → state``, ``update(state, y_true, y_pred, sample_weight) → state``
    and ``compute(state) → value``. Keras' way is variables made with
    :meth:`add_variable`, changed in ``update_state`` and read in ``result``. Whichever
    is written, both surfaces work: inside a compiled loop the pure one is used.

    Args:
        name: Name in logs; by default the class name in snake case.
        dtype: Dtype of the state; never below float32.

    Attributes:
        per_sample: ``False`` if padded rows cannot be taken out by a weight of 0: the
            metric must then be given real rows only. ``None`` while that is not known.
        direction: ``"up"`` or ``"down"``, the way to better values, where known.
        values_rank: Axes of what it takes the mean of, where known: a mask of more axes
            is none of its.

    Raises:
        ArgumentError: ``name`` is no text.
        DTypeError: ``dtype`` is unknown.

    Example:
        Pure, so that it also runs under ``jit``, ``scan`` and ``vmap``:

        >>> class Largest(Metric):
        ...     def init(self):
        ...         return {"top": np.zeros((), np.float32)}
        ...     def update(self, state, y_true, y_pred, sample_weight=None):
        ...         return {"top": jnp.maximum(state["top"], jnp.max(y_pred))}
        ...     def compute(self, state):
        ...         return state["top"]
        >>> metric = Largest()
        >>> metric.update_state(None, jnp.array([1.0, 5.0]))
        >>> float(metric.result())
        5.0

        Keras' way:

        >>> class Rows(Metric):
        ...     def __init__(self, name="rows", **kwargs):
        ...         super().__init__(name=name, **kwargs)
        ...         self.total = self.add_variable((), "zeros", name="total")
        ...     def update_state(self, y_true, y_pred, sample_weight=None):
        ...         self.total.assign_add(len(y_pred))
        ...     def result(self):
        ...         return self.total.value
        >>> metric = Rows()
        >>> state = metric.update(metric.init(), None, jnp.ones(3))
        >>> float(metric.compute(state)), float(metric.result())
        (3.0, 0.0)
    """

    per_sample: bool | None = True
    direction: str | None = None
    values_rank: int | None = None
    _takes_weight: ClassVar[bool] = True
    _pure: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str | None = None, dtype: Any = None):
        kind = type(self).__name__
        name = snake_case(kind) if name is None else name
        self.name = check_text(kind, "name", name)
        dtype = getattr(dtype, "compute_dtype", dtype)
        dtype = standardize_dtype(dtype or "float32")
        self._dtype = jnp.promote_types(dtype, "float32").name
        self._added: dict[str, np.ndarray] = {}
        self._state: State | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets the pure functions go through methods written Keras' way."""
        super().__init_subclass__(**kwargs)
        own = {name: cls.__dict__[name] for name in _CORE if name in cls.__dict__}
        cls._pure = {**cls._pure, **own}
        if not any(surface in cls.__dict__ for surface in _CORE.values()):
            return
        for name in _CORE:
            if name not in own:
                setattr(cls, name, Metric.__dict__[name])
        if "update_state" in cls.__dict__:
            cls._takes_weight = _accepts_weight(cls.__dict__["update_state"])
            if not cls._takes_weight:
                cls.per_sample = False

    # ------------------------------------------------------------------ pure core
    # What follows is the bridge from the pure functions to a class written Keras' way;
    # a class written the pure way overrides all three.
    def init(self) -> State:
        """A fresh state: nested dicts of host arrays."""
        with self._swap_state(None):
            self.reset_state()
            return self._take_state()

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        """The state after one more batch.

        Args:
            state: From :meth:`init` or an earlier call.
            y_true: Targets.
            y_pred: Predictions.
            sample_weight: ``[batch]`` or ``[batch, …]``; rows of weight 0 contribute
                nothing, even if they are not finite.
        """
        with self._swap_state(state):
            if sample_weight is None:
                self.update_state(y_true, y_pred)
            elif self._takes_weight:
                y_true, y_pred = without_rows(sample_weight, y_true, y_pred)
                self.update_state(y_true, y_pred, sample_weight=sample_weight)
            else:
                raise ArgumentError(
                    self.name,
                    "update_state() takes no sample_weight, so rows cannot be weighted",
                    hint="Give it a third parameter, sample_weight=None.",
                )
            return self._take_state()

    def compute(self, state: State) -> Any:
        """The metric's value: an array, scalar for most metrics."""
        with self._swap_state(state):
            value = self.result()
            # Keras code may return a variable; its state is swapped out again.
            return value.value if isinstance(value, MetricVariable) else value

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Checks shapes, and learns what the state depends on.

        Args:
            y_true: Anything with ``shape`` and ``dtype``; sizes may be symbolic.
            y_pred: The same for the predictions.

        Raises:
            ShapeError: The shapes do not fit the metric.
        """
        try:
            self._prepare(y_true, y_pred)
        except ExBurnError as error:
            locate(error, f"in metric {self.name!r}")
            raise
        specs, certain = stand_ins(y_true, y_pred)
        before = [(metric, metric._state) for metric in self._tree()]
        try:
            jax.eval_shape(lambda t, p: self.update(self.init(), t, p), *specs)
        except Exception as error:
            if certain:  # else the made-up sizes may be to blame
                locate(error, f"in metric {self.name!r}")
                raise
        finally:  # variables and metrics made by the first update stay, without tracers
            for metric in self._tree():
                metric._state = None
            for metric, state in before:
                metric._state = None if state is None else {**metric._fresh(), **state}

    def _prepare(self, y_true: Any, y_pred: Any) -> None:
        """Hook for metrics whose state depends on shapes."""

    @property
    def learns_shapes(self) -> bool:
        """Whether another :meth:`build` may make another metric of this one."""
        return any(
            type(metric).build is not Metric.build
            or type(metric)._prepare is not Metric._prepare
            for metric in self._tree()
        )

    # ------------------------------------------------------------------ Keras' surface
    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Takes in one batch: ``(y_true, y_pred, sample_weight=None)``."""
        pure = self._pure_function("update")
        if self._state is None and type(self)._prepare is not Metric._prepare:
            self._prepare(*(as_arrays(a) for a in args[:2]))
        state = self._current()
        self._state = {**state, **pure(self, state, *args, **kwargs)}

    def result(self) -> Any:
        """The value over all batches since the last reset."""
        return self._pure_function("compute")(self, self._current())

    def reset_state(self) -> None:
        """Forgets all batches."""
        for metric in self._tree():
            metric._state = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.update_state(*args, **kwargs)
        return self.result()

    def add_variable(
        self,
        shape: Sequence[int] = (),
        initializer: Any = None,
        dtype: Any = None,
        aggregation: str | None = "sum",
        name: str | None = None,
    ) -> MetricVariable:
        """A variable of the state, for metrics written Keras' way.

        Args:
            shape: Its shape.
            initializer: A name, an initializer or ``None`` for zeros.
            dtype: The metric's by default.
            aggregation: Accepted for Keras code; sums and means are global anyway.
            name: Its name, unique within the metric.
        """
        if not hasattr(self, "_added"):
            raise NotBuiltError(
                type(self).__name__, "call super().__init__() before add_variable()"
            )
        name = name or "variable"
        if name in self._added or name == _NESTED:
            name = f"{name}_{len(self._added)}"
        value = initial_value(initializer, tuple(shape), dtype or self._dtype)
        self._added[name] = value
        if self._state is not None:
            self._state = {**self._state, name: value}
        return MetricVariable(self, name)

    def add_weight(
        self,
        shape: Sequence[int] = (),
        initializer: Any = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> MetricVariable:
        """The same as :meth:`add_variable`."""
        return self.add_variable(shape, initializer, dtype, name=name)

    @property
    def dtype(self) -> str:
        """Name of the state's dtype."""
        return self._dtype

    @property
    def variables(self) -> list[MetricVariable]:
        """The arrays of the state, those of nested metrics last."""
        return [MetricVariable(m, name) for m in self._tree() for name in m._current()]

    def stateless_update_state(
        self, metric_variables: Sequence[Any], *args: Any, **kwargs: Any
    ) -> list[Any]:
        """Values of :attr:`variables` after one more batch; changes nothing."""
        with self._assign_values(metric_variables):
            self.update_state(*args, **kwargs)
            return [v.value for v in self.variables]

    def stateless_result(self, metric_variables: Sequence[Any]) -> Any:
        """The value for given values of :attr:`variables`."""
        with self._assign_values(metric_variables):
            return self.result()

    def stateless_reset_state(self) -> list[Any]:
        """Fresh values of :attr:`variables`."""
        with self._swap_state(None):
            self.reset_state()
            return [v.value for v in self.variables]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {"name": self.name, "dtype": self._dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Metric:
        """The inverse of :meth:`get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({options})"

    # ------------------------------------------------------------------ state
    def _pure_function(self, name: str) -> Any:
        if name not in self._pure:
            raise NotImplementedError(
                f"{type(self).__name__} must override {name}() or {_CORE[name]}()."
            )
        return self._pure[name]

    def _fresh(self) -> State:
        """This metric's own initial state, without nested metrics."""
        pure = self._pure.get("init")
        return {**(pure(self) if pure else {}), **self._added}

    def _current(self) -> State:
        if self._state is None:
            self._state = self._fresh()
        return self._state

    def _children(self) -> dict[str, Metric]:
        """Metrics held in attributes, directly or in a list, tuple or dict."""
        metrics: dict[str, Metric] = {}
        for attribute, value in vars(self).items():
            if isinstance(value, Metric):
                metrics[attribute] = value
            elif isinstance(value, dict):
                pairs = value.items()
                metrics |= {f"{attribute}.{k}": m for k, m in pairs if _is_metric(m)}
            elif isinstance(value, list | tuple):
                pairs = enumerate(value)
                metrics |= {f"{attribute}.{k}": m for k, m in pairs if _is_metric(m)}
        return metrics

    def _tree(self) -> list[Metric]:
        return [
            self,
            *(m for child in self._children().values() for m in child._tree()),
        ]

    def state(self) -> State:
        """The state as it is, as :meth:`init` gives a fresh one."""
        return self._take_state()

    def kept(self, state: State | None = None) -> contextlib.AbstractContextManager:
        """A block, begun on another state if one is given, that leaves no trace."""
        return self._swap_state(self._take_state() if state is None else state)

    def _take_state(self) -> State:
        children = self._children()
        if not children:
            return dict(self._current())
        nested = {name: child._take_state() for name, child in children.items()}
        return {**self._current(), _NESTED: nested}

    def _give(self, state: State) -> None:
        self._state = {k: v for k, v in state.items() if k != _NESTED}
        for name, child in self._children().items():
            child._give(state[_NESTED][name])

    @contextlib.contextmanager
    def _swap_state(self, state: State | None) -> Iterator[None]:
        """Works on another state (``None``: a fresh one) within the block."""
        before = [(metric, metric._state) for metric in self._tree()]
        try:
            if state is None:
                for metric, _ in before:
                    metric._state = None
            else:
                self._give(state)
            yield
        finally:
            for metric, own in before:
                metric._state = own

    @contextlib.contextmanager
    def _assign_values(self, values: Sequence[Any]) -> Iterator[None]:
        variables = self.variables
        if len(values) != len(variables):
            raise ArgumentError(
                self.name,
                "metric_variables must have one value for each variable",
                {"received": len(values), "variables": len(variables)},
            )
        with self._swap_state(self._take_state()):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            yield


def _is_metric(value: Any) -> bool:
    return isinstance(value, Metric)


def _accepts_weight(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return True
    return any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters)


def without_rows(sample_weight: Any, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Replaces what has weight 0 by neutral values, so that NaN there does not spread.

    Example:
        >>> y = jnp.array([1.0, jnp.nan])
        >>> without_rows(jnp.array([1.0, 0.0]), y, y)[1].tolist()
        [1.0, 0.5]
    """
    counts = jnp.asarray(sample_weight) != 0
    if counts.ndim == 0:
        return y_true, y_pred
    return blank_out(as_arrays(y_true), counts, 0), blank_out(
        as_arrays(y_pred), counts, 0.5
    )
