"""What Keras code expects of a variable that is one array of someone else's state."""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from exburn.errors import ShapeError, printable


class Handle(abc.ABC):
    """Reads and replaces one array, wherever its owner keeps it.

    In a compiled function it is its value, as a plain array would be.
    """

    trainable = False
    name: str
    path: str

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        jax.tree_util.register_pytree_node(
            cls, lambda v: ((v.value,), None), lambda _, leaves: leaves[0]
        )

    @property
    @abc.abstractmethod
    def value(self) -> Any:
        """The array."""

    @abc.abstractmethod
    def _replace(self, value: Any) -> None:
        """Puts another array of the same shape and dtype in its place."""

    @property
    def identity(self) -> Any:
        """Equal for all handles of one array, if there are several."""
        return id(self)

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

    def assign(self, value: Any) -> Self:
        """Replaces the array; a scalar fills it."""
        old, value = self.value, _plain(value)
        if isinstance(value, int | float | np.ndarray | np.generic):
            # A copy: what was given may be changed in place later.
            new = np.array(value, old.dtype)
        elif isinstance(value, jax.Array):
            new = own_array(value, old.dtype)
        else:
            new = jnp.asarray(value).astype(old.dtype)
        self._put(new, old)
        return self

    def _put(self, new: Any, old: Any) -> None:
        if new.shape != old.shape:
            if new.shape != ():
                raise ShapeError(
                    self.path,
                    f"the variable has shape {old.shape}, received {new.shape}",
                )
            new = (np if isinstance(new, np.ndarray) else jnp).broadcast_to(
                new, old.shape
            )
        self._replace(new)

    def assign_add(self, value: Any) -> Self:
        """Adds to the array."""
        return self._apply(jnp.add, value)

    def assign_sub(self, value: Any) -> Self:
        """Subtracts from the array."""
        return self._apply(jnp.subtract, value)

    def _apply(self, function: Callable[[Any, Any], Any], value: Any) -> Self:
        old = self.value  # the result is nobody else's, and is not copied
        self._put(function(old, _plain(value)).astype(old.dtype), old)
        return self

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
        text = f"<{type(self).__name__} {self.path} {self.dtype}{list(self.shape)}>"
        return printable(text)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Handle) else value


def _operator(function: Callable[[Any, Any], Any], reflected: bool) -> Any:
    def apply(self: Handle, other: Any) -> Any:
        pair = (jnp.asarray(self.value), jnp.asarray(_plain(other)))
        return function(*(reversed(pair) if reflected else pair))

    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Handle, f"__{_name}__", _operator(getattr(operator, _name), False))
    setattr(Handle, f"__r{_name}__", _operator(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _operator(getattr(operator, _name), False))


def own_array(value: jax.Array, dtype: Any) -> jax.Array:
    """The array in the dtype, and a copy if that is itself.

    Training consumes its arrays, and must not consume others'.
    """
    new = value.astype(dtype)
    return jnp.copy(value) if new is value and not isinstance(value, Tracer) else new
