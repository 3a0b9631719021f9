"""Sizes of numbers that may be complex."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def squared_size(x: jax.Array) -> jax.Array:
    """``|x|²`` of each number, which is real; of real numbers their squares.

    Example:
        >>> squared_size(jnp.array([3 + 4j])).tolist()
        [25.0]
    """
    if jnp.iscomplexobj(x):
        return jnp.square(x.real) + jnp.square(x.imag)
    return jnp.square(x)
