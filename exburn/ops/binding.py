"""How a function of JAX becomes an op.

An op has Keras' argument names, takes arrays, weights, NumPy arrays and lists, and
inside a functional model symbols. What it computes is one pure function, which a saved
model names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import registry
from exburn.core.jax_dispatch import SPLITTING, original
from exburn.core.precision import standardize_dtype
from exburn.module.symbolic_tensor import OPERATIONS, Symbol, has_symbol, lift
from exburn.ops.descriptions import docstring

# The names by which Keras' ops call the arguments that hold tensors.
_P = ParamSpec("_P")
TENSORS = frozenset(
    "a abs_ angle array b beta bias bins condition coordinates data depthwise_kernel"
    " end_points fill_value gamma image1 image2 images indices inputs kernel key mask"
    " mean offset output output_length pointwise_kernel predictions q query scale"
    " segment_ids sequence_lengths sorted_sequence start start_points stop target"
    " target_length targets tensor transform translation updates value values variable"
    " variance volumes weights x x1 x2 x_max x_min y".split()
)


def tensor(value: Any) -> Any:
    """An array for anything that stands for one; scalars and symbols as they are."""
    if isinstance(value, jax.Array | Symbol | str) or value is None:
        return value
    if hasattr(value, "__jax_array__"):  # a variable, or a handle
        return value.__jax_array__()
    if isinstance(value, list | tuple):
        return value if has_symbol(value) else jnp.asarray(_unwrap(value))
    if isinstance(value, np.ndarray) or (
        hasattr(value, "__array__") and not isinstance(value, np.generic)
    ):
        return jnp.asarray(np.asarray(value))
    return value


def tensors(value: Any) -> Any:
    """Array arguments for each element of a list; one array may stand for a list."""
    if isinstance(value, list | tuple):
        return type(value)(map(tensor, value))
    return tensor(value)


def _axis(value: Any) -> Any:
    """An axis as an integer, several as a tuple: JAX' functions want them hashable."""
    if isinstance(value, np.ndarray | np.integer):
        value = value.tolist()
    return tuple(map(_axis, value)) if isinstance(value, list | tuple) else value


def _dtype(value: Any) -> Any:
    return None if value is None else standardize_dtype(value)


def _unwrap(value: Any) -> Any:
    """Nested lists with the weights in them replaced by their values."""
    if isinstance(value, list | tuple):
        return [_unwrap(v) for v in value]
    return value.__jax_array__() if isinstance(value, nnx.Variable) else value


def bind(function: Callable, signature: str, name: str | None = None) -> Callable:
    """The op that calls ``function``.

    Args:
        function: A pure function of arrays.
        signature: Keras' argument names in order, ``"x, /, axis, keepdims"``. Those
            before ``/`` are passed on by position, the others by name. ``*xs`` is an
            argument that is a list of tensors.
        name: Name of the op; the function's own by default.

    Example:
        >>> total = bind(jnp.sum, "x, /, axis, keepdims")
        >>> float(total(x=[1, 2, 3])), total(np.ones((2, 3)), -1).tolist()
        (6.0, [3.0, 3.0])
    """
    function = original(function)
    label = name or function.__name__
    words = [word.strip() for word in signature.split(",")]
    leading = words.index("/") if "/" in words else 0
    names = [word.lstrip("*") for word in words if word != "/"]
    convert = {
        word.lstrip("*"): tensors if word.startswith("*") else tensor
        for word in words
        if word.startswith("*") or word in TENSORS
    }
    for key, rule in (("axis", _axis), ("dtype", _dtype)):
        if key in names:
            convert[key] = rule
    run = lift(function, label)

    def call(*args, **kwargs):
        if len(args) > len(names):
            raise TypeError(
                f"{label}() takes {len(names)} arguments ({', '.join(names)}), "
                f"{len(args)} were given"
            )
        for key, value in zip(names, args, strict=False):
            if key in kwargs:
                raise TypeError(f"{label}() got two values for argument {key!r}")
            kwargs[key] = value
        symbolic = has_symbol(kwargs)
        for key, value in kwargs.items():
            # A graph keeps a variable, whose value changes.
            if key in convert and not (symbolic and isinstance(value, nnx.Variable)):
                kwargs[key] = convert[key](value)
        first = []
        for key in names[:leading]:
            if key not in kwargs:
                break
            first.append(kwargs.pop(key))
        return run(*first, **kwargs)

    return _dress(call, function, label, names, leading)


def op(function: Callable[_P, Any]) -> Callable[_P, Any]:
    """Decorator: an op whose arguments are already named and ordered as in Keras."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    return bind(function, ", ".join([*names, "/"]))


def of_many(function: Callable) -> Callable:
    """Decorator: an op of any number of tensors, ``*operands``."""
    run = lift(function)
    OPERATIONS.setdefault(function.__name__, function)
    return functools.wraps(function)(
        lambda *args, **kwargs: run(*map(tensor, args), **kwargs)
    )


def nameable(function: Callable) -> Callable:
    """Decorator: an op that files may name, as the function of a layer."""
    return registry.register(function, package="ops")


def _dress(call, function, label, names, leading):
    """Name, documentation and signature of an op; its entries, for files to name it."""
    call.__name__ = call.__qualname__ = label
    call.__doc__ = docstring(label, names, function)
    home = getattr(function, "__module__", None) or ""
    ours = home.startswith("exburn.")
    call.__module__ = home if ours else "exburn.ops"
    call.__signature__ = _signature(function, names, leading)
    OPERATIONS.setdefault(label, function)
    return call if label in SPLITTING else nameable(call)


def _signature(function, names: list[str], leading: int) -> inspect.Signature:
    """Keras' argument names with the function's own defaults."""
    own = list(inspect.signature(function).parameters.values())
    by_name = {p.name: p for p in own}
    parameters = []
    for i, name in enumerate(names):
        source = own[i] if i < min(leading, len(own)) else by_name.get(name)
        default = inspect.Parameter.empty if source is None else source.default
        if i < leading and isinstance(function, jnp.ufunc):
            default = inspect.Parameter.empty
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default
            )
        )
    parameters += [p for p in own if p.kind is p.VAR_KEYWORD]
    return inspect.Signature(parameters)
