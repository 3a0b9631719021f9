"""Functions that are traced once for each shape, however often a program calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer


def traced_once(*static: str) -> Callable[[Callable], Callable]:
    """Calls within programs share the trace of those with equal shapes before them.

    For pure functions that large models call often: a block of a ResNet, the update of
    a parameter. XLA puts the calls back in place, so programs compute the same bits.
    Outside of programs the function runs operation by operation.

    Args:
        static: Names of the arguments that are no arrays: they are compared.

    Example:
        >>> @traced_once("power")
        ... def grown(x, power):
        ...     return x + x**power
        >>> grown(3.0, 2), float(jax.jit(lambda x: grown(x, 2) + grown(2 * x, 2))(3.0))
        (12.0, 54.0)
    """

    def decorate(function: Callable) -> Callable[..., Any]:
        shared = jax.jit(function, static_argnames=static)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            tracing = any(isinstance(value, Tracer) for value in args)
            return (shared if tracing else function)(*args)

        return call

    return decorate
