"""How a function of JAX becomes an op.

An op has Keras' argument names, takes arrays, weights, NumPy arrays and lists, and
inside a functional model symbols. What it computes is one pure function, which a saved
model names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import registry
from exburn.core.docstrings import complete_arguments
from exburn.core.jax_dispatch import SPLITTING
from exburn.core.precision import standardize_dtype
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import OPERATIONS, Symbol, has_symbol, lift

_Function = TypeVar("_Function", bound=Callable[..., Any])

# The names by which Keras' ops call the arguments that hold tensors.
TENSORS = frozenset(
    "a abs_ angle array b beta bias bins condition coordinates data depthwise_kernel"
    " end_points fill_value gamma image1 image2 images indices inputs kernel key mask"
    " mean offset output output_length pointwise_kernel predictions q query scale"
    " segment_ids sequence_lengths sorted_sequence start start_points stop target"
    " target_length targets tensor transform translation updates value values variable"
    " variance volumes weights x x1 x2 x_max x_min y".split()
)

# What the docstrings of ops leave out: arguments that are the same in all of them.
ARGUMENTS = {
    "x": "An array.",
    "x1": "An array.",
    "x2": "An array whose shape broadcasts with that of ``x1``.",
    "keepdims": "Whether the axes stay, with size 1.",
    "data_format": '``"channels_last"`` or ``"channels_first"``.',
    "dtype": "Dtype of the result; it follows from the values by default.",
}


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


def hashable_axis(value: Any) -> Any:
    """An axis as an integer, several as a tuple: JAX' functions want them hashable."""
    if isinstance(value, np.ndarray | np.integer):
        value = value.tolist()
    return (
        tuple(map(hashable_axis, value)) if isinstance(value, list | tuple) else value
    )


def _dtype(value: Any) -> Any:
    return None if value is None else standardize_dtype(value)


def _unwrap(value: Any) -> Any:
    """Nested lists with the weights in them replaced by their values."""
    if isinstance(value, list | tuple):
        return [_unwrap(v) for v in value]
    return value.__jax_array__() if isinstance(value, nnx.Variable) else value


def op(function: _Function) -> _Function:
    """Decorator: an op, from a pure function with Keras' names of arguments.

    Arguments that are named as in ``TENSORS`` become arrays, an ``axis`` hashable.

    Example:
        >>> @op
        ... def total(x, axis=None):
        ...     return jnp.sum(x, axis)
        >>> float(total(x=[1, 2, 3])), total(np.ones((2, 3)), -1).tolist()
        (6.0, [3.0, 3.0])
    """
    return _bind(function, ())


def op_on_lists(*names: str) -> Callable[[_Function], _Function]:
    """Decorator: an op, some of whose arguments are lists of tensors.

    Args:
        *names: Their names; each of their elements becomes an array.

    Example:
        >>> @op_on_lists("xs")
        ... def widest(xs):
        ...     return max(x.size for x in xs)
        >>> widest([[1, 2, 3], [4]])
        3
    """
    return lambda function: _bind(function, names)


def _bind(function: Any, lists: Sequence[str]) -> Any:
    """The op that calls ``function`` on arrays, and notes the call on symbols."""
    function = inspect.unwrap(function)  # an activation takes symbols by itself
    label = function.__name__
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    convert: dict[str, Callable] = {
        name: tensors if name in lists else tensor
        for name in names
        if name in lists or name in TENSORS
    }
    for key, rule in (("axis", hashable_axis), ("dtype", _dtype)):
        if key in names:
            convert[key] = rule
    # The operators of symbols have some of the names: files know one function by each.
    run = lift(OPERATIONS.setdefault(label, function), label)

    all_names, takes_more = {*names}, len(names) < len(parameters)

    @api_boundary
    @functools.wraps(function)
    def call(*args, **kwargs):
        if len(args) > len(names) or not (takes_more or kwargs.keys() <= all_names):
            raise TypeError(f"{label}() takes {', '.join(names)}")
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
        for key in names:
            if key not in kwargs:
                break
            first.append(kwargs.pop(key))
        return run(*first, **kwargs)

    call.__doc__ = complete_arguments(function.__doc__, names, ARGUMENTS)
    return call if label in SPLITTING else nameable(call)


def of_many(function: _Function) -> _Function:
    """Decorator: an op of any number of tensors, ``*operands``."""
    run = lift(function)
    OPERATIONS.setdefault(function.__name__, function)

    @api_boundary
    @functools.wraps(function)
    def call(*args, **kwargs):
        return run(*map(tensor, args), **kwargs)

    return cast("_Function", call)


def nameable(function: _Function) -> _Function:
    """Decorator: an op that files may name, as the function of a layer."""
    return registry.register(function, package="ops")
