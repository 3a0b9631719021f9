"""A metric's variable, as Keras code expects it: a handle on one array of the state."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ShapeError

if TYPE_CHECKING:
    from exburn.metrics.base import Metric

__all__ = ["MetricVariable", "initial_value"]


def initial_value(initializer: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A host array: zeros unless an initializer says otherwise."""
    dtype = np.dtype(dtype)
    if initializer is None or initializer in ("zeros", "zero"):
        return np.zeros(shape, dtype)
    if initializer in ("ones", "one"):
        return np.ones(shape, dtype)
    from exburn import initializers

    return np.asarray(initializers.get(initializer)(shape, dtype), dtype)


class MetricVariable:
    """One array of a metric's state, for ``update_state`` written Keras' way.

    Args:
        metric: The metric.
        name: Key in its state.

    Raises:
        ShapeError: A value of another shape is assigned.

    Example:
        >>> from exburn.metrics import Mean
        >>> metric = Mean()
        >>> metric.update_state([1.0, 3.0])
        >>> {v.name: float(v) for v in metric.variables}
        {'total': 4.0, 'count': 2.0}
    """

    trainable = False

    def __init__(self, metric: Metric, name: str):
        self._metric = metric
        self.name = name

    @property
    def path(self) -> str:
        """The metric's name and the variable's."""
        return f"{self._metric.name}/{self.name}"

    @property
    def value(self) -> Any:
        """The array."""
        return self._metric._current()[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        """The array's rank."""
        return len(self.shape)

    @property
    def dtype(self) -> str:
        """Name of the array's dtype."""
        return np.dtype(self.value.dtype).name

    def assign(self, value: Any) -> MetricVariable:
        """Replaces the array; a scalar fills it."""
        old = self.value
        if isinstance(value, MetricVariable):
            value = value.value
        if isinstance(value, int | float | np.ndarray | np.generic):
            new = np.asarray(value, old.dtype)
        else:
            new = jnp.asarray(value).astype(old.dtype)
        if new.shape != old.shape:
            if new.shape != ():
                raise ShapeError(
                    self.path,
                    f"the variable has shape {old.shape}, received {new.shape}",
                )
            new = (np if isinstance(new, np.ndarray) else jnp).broadcast_to(
                new, old.shape
            )
        state = self._metric._current()
        self._metric._state = {**state, self.name: new}
        return self

    def assign_add(self, value: Any) -> MetricVariable:
        """Adds to the array."""
        return self.assign(jnp.add(self.value, _plain(value)))

    def assign_sub(self, value: Any) -> MetricVariable:
        """Subtracts from the array."""
        return self.assign(jnp.subtract(self.value, _plain(value)))

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        return np.array(self.value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype)

    def __jax_array__(self) -> Any:
        return jnp.asarray(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Any:
        return self.value[index]

    def __neg__(self) -> Any:
        return -jnp.asarray(self.value)

    def __repr__(self) -> str:
        return f"<MetricVariable {self.path} {self.dtype}{list(self.shape)}>"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, MetricVariable) else value


def _operator(function: Callable[[Any, Any], Any], reflected: bool) -> Any:
    def apply(self: MetricVariable, other: Any) -> Any:
        pair = (jnp.asarray(self.value), jnp.asarray(_plain(other)))
        return function(*(reversed(pair) if reflected else pair))

    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(MetricVariable, f"__{_name}__", _operator(getattr(operator, _name), False))
    setattr(MetricVariable, f"__r{_name}__", _operator(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(MetricVariable, f"__{_name}__", _operator(getattr(operator, _name), False))


# In a compiled function a variable is its value, as a plain array would be.
jax.tree_util.register_pytree_node(
    MetricVariable, lambda v: ((v.value,), None), lambda _, leaves: leaves[0]
)
