"""A weight that is trained as it will be stored: read as rounded, exact underneath."""

from __future__ import annotations

from typing import Any

import jax

from exburn.compression.quantization.read_weight import ReadWeight
from exburn.compression.quantization.scheme import Scheme
from exburn.module.variable import Weight


class SimulatedWeight(ReadWeight):
    """An exact weight that reads as its scheme would give it back.

    The gradient passes the rounding as if it were not there (straight through), so the
    exact weight learns what becomes of it.

    Args:
        weight: The exact weight.
        scheme: How it is to be stored.

    Example:
        >>> import numpy as np
        >>> from exburn.module.variable import Parameter
        >>> weight = Parameter(np.float32([[100.0], [0.4], [127.0]]))
        >>> read = SimulatedWeight(weight, Scheme("int8", (3, 1), summed=(0,)))
        >>> read.numpy().ravel().tolist(), read.exact.numpy().ravel().tolist()
        ([100.0, 0.0, 127.0], [100.0, 0.4000000059604645, 127.0])

    Source: Bengio et al., *Estimating or Propagating Gradients Through Stochastic
    Neurons*, 2013 (the straight-through estimator).
    """

    exact: Any

    _in_place_of = "exact"

    def __init__(self, weight: Weight, scheme: Scheme):
        self.scheme, self.exact = scheme, weight

    def get_value(self, dtype: Any = None) -> jax.Array:
        """The weight as it will be read once it is stored."""
        value = _straight(self.scheme, self.exact.get_value())
        return value.astype(dtype or self.scheme.exact)

    def get_raw_value(self) -> Any:
        return self.exact.get_raw_value()

    def assign(self, value: Any) -> Any:
        """Replaces the exact weight."""
        return self.exact.assign(value)


def simulated_schemes(layer: Any) -> list[Scheme]:
    """How the layer's own weights will be stored, those that are simulated."""
    values = vars(layer).values()
    return [value.scheme for value in values if isinstance(value, SimulatedWeight)]


@jax.custom_vjp
def _identity(exact: Any, rounded: Any) -> Any:
    return rounded


_identity.defvjp(lambda exact, rounded: (rounded, None), lambda _, g: (g, None))


def _straight(scheme: Scheme, exact: Any) -> Any:
    rounded = jax.lax.stop_gradient(scheme.round(exact))
    return _identity(exact, rounded.astype(exact.dtype))
