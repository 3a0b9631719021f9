"""Functions that are traced once for each shape, however often a program calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer

from exburn.runtime import portable
from exburn.runtime.sharding.current import trace_key

_DIVISIONS = 16  # of devices, whose traces a function keeps


def traced_once(*static: str) -> Callable[[Callable], Callable]:
    """Calls within programs share the trace of those with equal shapes before them.

    For pure functions that large models call often: a block of a ResNet, the update of
    a parameter. XLA puts the calls back in place, so programs compute the same bits.
    Outside of programs the function runs operation by operation.

    Args:
        static: Names of the arguments that are no arrays: they are compared.
    """

    def decorate(function: Callable) -> Callable[..., Any]:
        shared = jit_by_devices(function, static_argnames=static)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            tracing = any(isinstance(value, Tracer) for value in args)
            return (shared if tracing else function)(*args, **kwargs)

        return call

    return decorate


def jit_by_devices(function: Callable, **options: Any) -> Callable[..., Any]:
    """A compiled function, with traces of its own for each division of the devices.

    The same shapes are traced in one way for one device, in another where kernels run
    on the rows that each device of a mesh has, and in a third to run elsewhere.

    Args:
        function: A pure function of arrays.
        **options: Of ``jax.jit``.
    """

    @functools.lru_cache(maxsize=_DIVISIONS)
    def for_division(key: tuple) -> Callable[..., Any]:
        del key
        # JAX would share the traces of one and the same function.
        own = functools.update_wrapper(functools.partial(function), function)
        return jax.jit(own, **options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return for_division((*trace_key(), portable.current()))(*args, **kwargs)

    return call
