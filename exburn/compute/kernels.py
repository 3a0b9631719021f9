"""A registry of named kernels: functions of arrays, compiled on their first use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp

from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.runtime.kernels.conv.dispatch import convolve

__all__ = ["compile_kernel", "kernel", "kernels", "register_kernel", "run_kernel"]

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
_kernels: dict[str, Callable] = {}


@overload
def register_kernel(name: str, fn: _Kernel) -> _Kernel: ...
@overload
def register_kernel(name: str, fn: None = ...) -> Callable[[_Kernel], _Kernel]: ...
@api_boundary
def register_kernel(name: str, fn: Any = None) -> Any:
    """Names a kernel: a JAX function, or one around ``pallas_call``.

    Positional arguments are arrays, keyword arguments are compiled in. Also a
    decorator. A name that exists is replaced.

    Args:
        name: The kernel's name, which is free.
        fn: The function.

    Raises:
        ArgumentError: No name, or no function.

    Example:
        >>> @register_kernel("saxpy")
        ... def saxpy(x, y, *, a=1.0):
        ...     return a * x + y
        >>> run_kernel("saxpy", jnp.ones(2), jnp.ones(2), a=2.0).tolist()
        [3.0, 3.0]
    """
    if fn is None:
        return functools.partial(register_kernel, name)
    if not name or not isinstance(name, str) or not callable(fn):
        raise ArgumentError(
            "register_kernel",
            f"a kernel is a name and a function, received {name!r} and {fn!r}",
        )
    _kernels[name] = fn
    return fn


@api_boundary
def kernels() -> list[str]:
    """Names of the registered kernels.

    Example:
        >>> from exburn import compute
        >>> isinstance(compute.kernels()[0], str)
        True
    """
    return sorted(_kernels)


@api_boundary
def kernel(name: str) -> Callable[..., Any]:
    """The function behind a name.

    Args:
        name: The kernel's name.

    Raises:
        UnknownNameError: No kernel has that name.

    Example:
        >>> from exburn import compute
        >>> callable(compute.kernel(compute.kernels()[0]))
        True
    """
    if name not in _kernels:
        raise unknown_name("kernel", name, _kernels, op="kernel")
    return _kernels[name]


@api_boundary
def run_kernel(name: str, *inputs: Any, **params: Any) -> Any:
    """Runs a kernel; returns at once, with an array that the device still computes.

    Args:
        name: Of the kernel.
        *inputs: Arrays.
        **params: Other arguments, compiled in.

    Raises:
        UnknownNameError: No kernel has that name.
        ArgumentError: It does not take these arrays or arguments.

    Example:
        >>> run_kernel("reduce_sum", jnp.ones((2, 3)), axis=1).tolist()
        [3.0, 3.0]
    """
    fn = kernel(name)
    try:
        return _compile(fn, tuple(params))(*inputs, **static(params))
    except (TypeError, ValueError) as error:
        raise refusal(name, inputs, params, error) from error


@api_boundary
def compile_kernel(name: str, *inputs: Any, **params: Any) -> Any:
    """Compiles a kernel ahead, for inputs like these; ``.cost_analysis()`` tells more.

    Args:
        name: The kernel's name.
        inputs: Arrays of the shapes and dtypes that are meant.
        params: Its keyword arguments.

    Raises:
        UnknownNameError: There is no such kernel.
        ArgumentError: A value can never work.

    Example:
        >>> spec = jax.ShapeDtypeStruct((2, 2), "float32")
        >>> compile_kernel("matmul", spec, spec)(jnp.eye(2), jnp.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    fn = kernel(name)
    try:
        program = _compile(fn, tuple(params))
        return program.lower(*inputs, **static(params)).compile()
    except (TypeError, ValueError) as error:
        raise refusal(name, inputs, params, error) from error


def refusal(name: str, inputs: Any, params: Any, error: Exception) -> ArgumentError:
    """The error for a kernel that was called with what it does not take."""
    if isinstance(error, ArgumentError):
        return error
    received = ", ".join(map(describe, inputs)) or "no arrays"
    return ArgumentError(
        "run_kernel",
        f"the kernel {name!r} does not take {received}",
        {"arguments": params, "cause": error},
    )


@functools.lru_cache(maxsize=256)
def _compile(fn: Callable, names: tuple[str, ...]) -> Any:
    return jax.jit(fn, static_argnames=names)


def static(params: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}


# ------------------------------------------------------------ the kernels of ExCubecl
def _layer_norm(x, scale=None, offset=None, *, eps=1e-5):
    """Over the last axis."""
    mean = x.mean(-1, keepdims=True)
    out = (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + eps)
    out = out if scale is None else out * scale
    return out if offset is None else out + offset


def _conv2d(x, kernel, *, strides=(1, 1), padding="VALID"):
    """``[n, h, w, in]`` and ``[kh, kw, in, out]`` → ``[n, h, w, out]``."""
    strides = (strides,) * 2 if isinstance(strides, int) else strides
    if isinstance(padding, str) and padding.upper() not in ("VALID", "SAME"):
        raise ValueError(f"padding is VALID, SAME or pairs of numbers: {padding!r}")
    return convolve(
        x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


_BUILT_IN: dict[str, Callable] = {
    "elementwise_add": lambda a, b: a + b,
    "elementwise_sub": lambda a, b: a - b,
    "elementwise_mul": lambda a, b: a * b,
    "elementwise_div": lambda a, b: a / b,
    "relu": lambda x: jax.nn.relu(x),
    "sigmoid": lambda x: jax.nn.sigmoid(x),
    "tanh": lambda x: jnp.tanh(x),
    "matmul": lambda a, b: a @ b,
    "reduce_sum": lambda x, *, axis=None: x.sum(axis),
    "reduce_max": lambda x, *, axis=None: x.max(axis),
    "reduce_min": lambda x, *, axis=None: x.min(axis),
    "softmax": lambda x, *, axis=-1: jax.nn.softmax(x, axis),
    "layer_norm": _layer_norm,
    "conv2d": _conv2d,
    "transpose": lambda x, *, axes=None: jnp.transpose(x, axes),
    "reshape": lambda x, *, shape: jnp.reshape(x, shape),
}
for _name, _fn in _BUILT_IN.items():
    register_kernel(_name, _fn)
