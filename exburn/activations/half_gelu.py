"""GELU of half-precision arrays, with a derivative that is computed once.

The derivative needs erf again, about a hundred instructions an element: on a GPU
that is slower than the memory traffic of its layer. So it is taken together with the
value, in float32, and kept in half precision in place of the input.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["half_gelu"]


@jax.custom_jvp
def half_gelu(x: jax.Array) -> jax.Array:
    """``x · Φ(x)`` in the dtype of ``x``, computed in float32."""
    wide = x.astype(jnp.float32)
    return (wide * _normal_cdf(wide)).astype(x.dtype)


@half_gelu.defjvp
def _half_gelu_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    wide = x.astype(jnp.float32)
    cdf = _normal_cdf(wide)
    density = jnp.exp(-0.5 * jnp.square(wide)) / math.sqrt(2 * math.pi)
    value = (wide * cdf).astype(x.dtype)
    slope = (cdf + wide * density).astype(x.dtype)
    # The barrier keeps XLA from computing the slope a second time in the backward pass.
    value, slope = lax.optimization_barrier((value, slope))
    return value, slope * t


def _normal_cdf(x: jax.Array) -> jax.Array:
    # Not erfc, as its cost is twice erf's: half precision has no use for the far tail.
    return 0.5 + 0.5 * lax.erf(x * math.sqrt(0.5))
