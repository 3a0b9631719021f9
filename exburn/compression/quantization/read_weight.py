"""A weight that reads as its scheme stores it, whatever it is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.compression.quantization.scheme import Scheme


class ReadWeight(nnx.Pytree):
    """Base of what stands in the place of an exact weight, and reads like one.

    Attributes:
        scheme: How the weight is stored.
    """

    scheme: Scheme

    @property
    def shape(self) -> tuple[int, ...]:
        return self.scheme.shape

    @property
    def ndim(self) -> int:
        return len(self.scheme.shape)

    @property
    def dtype(self) -> np.dtype:
        """Dtype that the weight is read in."""
        return jnp.dtype(self.scheme.exact)

    def get_value(self, dtype: Any = None) -> jax.Array:
        """The weight as it is read."""
        raise NotImplementedError

    def numpy(self) -> np.ndarray:
        return np.asarray(self.get_value())

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.get_value(), dtype=dtype)
