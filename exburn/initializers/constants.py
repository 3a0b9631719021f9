"""Initializers that draw nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.core import registry
from exburn.core.checks import check_float
from exburn.errors import ShapeError
from exburn.initializers.contract import Initializer, as_dtype, as_shape


@registry.register_builtin
class Zeros(Initializer):
    """All zeros.

    Example:
        >>> Zeros()((2, 2)).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        return np.zeros(as_shape(self, shape), as_dtype(self, dtype))


@registry.register_builtin
class Ones(Initializer):
    """All ones.

    Example:
        >>> Ones()((3,), "int32").tolist()
        [1, 1, 1]
    """

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        return np.ones(as_shape(self, shape), as_dtype(self, dtype))


@registry.register_builtin
class Constant(Initializer):
    """One value everywhere.

    Args:
        value: A number, or an array that broadcasts to the weight's shape.

    Raises:
        ShapeError: The array does not broadcast to the weight's shape.

    Example:
        >>> Constant(0.5)((2,)).tolist(), Constant([1, 2])((2, 2)).tolist()
        ([0.5, 0.5], [[1.0, 2.0], [1.0, 2.0]])
    """

    def __init__(self, value: Any = 0.0):
        self.value = value

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        shape = as_shape(self, shape)
        value = np.asarray(self.value)
        try:
            value = np.broadcast_to(value, shape)
        except ValueError:
            raise ShapeError(
                "Constant",
                f"a value of shape {value.shape} does not broadcast to {shape}",
            ) from None
        return value.astype(as_dtype(self, dtype))

    def get_config(self) -> dict[str, Any]:
        return {"value": registry.serialize(self.value)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Constant:
        return cls(registry.deserialize(config["value"]))


class Identity(Initializer):
    """The identity matrix.

    Args:
        gain: Value on the diagonal.

    Raises:
        ShapeError: The weight does not have two axes.

    Example:
        >>> Identity(2.0)((2, 3)).tolist()
        [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    """

    def __init__(self, gain: float = 1.0):
        self.gain = check_float("Identity", "gain", gain)

    def __call__(self, shape, dtype=None, *, rng=None) -> np.ndarray:
        shape, dtype = as_shape(self, shape), as_dtype(self, dtype)
        if len(shape) != 2:
            raise ShapeError(
                "Identity", f"the weight needs two axes, received shape {shape}"
            )
        return (np.eye(*shape) * self.gain).astype(dtype)

    def get_config(self) -> dict[str, Any]:
        return {"gain": self.gain}


# "Identity" alone is the layer's name in configurations.
registry.register(Identity, package="initializers")
