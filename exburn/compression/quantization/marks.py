"""Rounding that stays visible in programs for other runtimes, as one operation each.

ONNX and LiteRT have operations of their own for it, with which they compute in
integers. So where a program is traced for one of them, a rounding is a composite of
JAX, whose name the writers look for; everywhere else it is plain arithmetic.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from exburn.runtime import portable

#: Rounds an array to int8 and back: of it, a scale and a zero point.
ROUND = "exburn.round"
#: Integers times scales that broadcast to them, as a float32 weight.
READ = "exburn.read"


def visible() -> bool:
    """Whether roundings are to be seen in the program that is traced now."""
    target = portable.current()
    return target is not None and target.quantizes


def round_to_int8(x: Any, scale: Any, zero: Any) -> Any:
    """The multiples of ``scale`` nearest to a float32 array, of 256 about ``zero``."""

    def nearest(x: Any, scale: Any, zero: Any) -> Any:
        whole = jnp.clip(jnp.rint(x / scale) + zero, -128, 127)
        return (whole - zero) * scale

    return (
        lax.composite(nearest, ROUND)(x, scale, zero)
        if visible()
        else nearest(x, scale, zero)
    )


def read(values: Any, scale: Any, bits: int) -> Any:
    """A float32 weight of integers: ``values * scale``, which are broadcast.

    Args:
        values: int8, in the weight's shape.
        scale: float32, of as many axes.
        bits: Those that the integers need, 4 or 8.
    """

    def product(values: Any, scale: Any, bits: int) -> Any:
        return values.astype(jnp.float32) * scale

    return lax.composite(product, READ)(values, scale, bits=bits)
