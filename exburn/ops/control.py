"""Ops that take functions: branches, loops, and a gradient of one's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from exburn.core.annotations import Tensor
from exburn.errors import GraphError
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import OPERATIONS, Symbol, lift
from exburn.ops.contract import tensor, tensors

# fmt: off
__all__ = [
    "associative_scan", "cond", "custom_gradient", "fori_loop", "map", "scan", "switch",
    "vectorized_map", "while_loop",
]
# fmt: on


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _control(function: _Function) -> _Function:
    """An op that takes functions; symbols may be operands, not captured by them."""
    OPERATIONS.setdefault(function.__name__, function)
    run = lift(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        convert = lambda v: v if callable(v) else tensor(v)  # noqa: E731
        args, kwargs = jax.tree.map(convert, (args, kwargs), is_leaf=_is_leaf)
        return run(*args, **kwargs)

    return cast("_Function", call)


def _is_leaf(value: Any) -> bool:
    return hasattr(value, "get_value")


@api_boundary
@_control
def scan(
    f: Callable[..., Any],
    init: Tensor,
    xs: Tensor = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Runs ``carry, y = f(carry, x)`` along the first axis of ``xs``.

    Args:
        f: Function of the carry and one slice.
        init: The first carry.
        xs: Arrays (nested) to slice, or ``None``.
        length: Number of steps, if ``xs`` is ``None``.
        reverse: Whether to run from the end.
        unroll: Steps in one iteration of the compiled loop.

    Returns:
        The last carry, and every step's ``y`` stacked.

    Example:
        >>> total, steps = scan(lambda c, x: (c + x, c), 0, jnp.arange(4))
        >>> int(total), steps.tolist()
        (6, [0, 0, 1, 3])
    """
    return lax.scan(f, init, xs, length, reverse, unroll)


@api_boundary
@_control
def associative_scan(
    f: Callable[..., Any], elems: Tensor, reverse: bool = False, axis: int = 0
) -> Any:
    """All partial results of an associative function, in logarithmic depth.

    Args:
        f: ``f(a, b)`` on slices of several elements at once.
        elems: Arrays (nested).
        reverse: Whether to start from the end.
        axis: Axis to go along.

    Example:
        >>> associative_scan(jnp.add, jnp.arange(4)).tolist()
        [0, 1, 3, 6]
    """
    return lax.associative_scan(f, elems, reverse, axis)


@api_boundary
@_control
def fori_loop(
    lower: Tensor, upper: Tensor, body_fun: Callable[[Any, Any], Any], init_val: Tensor
) -> Any:
    """``value = body_fun(i, value)`` for each ``i`` from ``lower`` to below ``upper``.

    Args:
        lower: The first number.
        upper: The number before which it ends.
        body_fun: ``value = body_fun(number, value)``.
        init_val: The first value.

    Example:
        >>> int(fori_loop(0, 4, lambda i, v: v + i, 0))
        6
    """
    return lax.fori_loop(lower, upper, body_fun, init_val)


@api_boundary
@_control
def map(f: Callable[..., Any], xs: Tensor) -> Any:
    """``f`` of every slice along the first axis, one after the other, stacked.

    Args:
        f: A function of one element.
        xs: An array, or a structure of arrays, whose first axis is gone along.

    Example:
        >>> map(lambda x: x**2, jnp.arange(3)).tolist()
        [0, 1, 4]
    """
    return lax.map(f, xs)


@api_boundary
@_control
def vectorized_map(function: Callable[..., Any], elements: Tensor) -> Any:
    """``function`` of every slice along the first axis, all at once, stacked.

    Args:
        function: A function of one element.
        elements: An array, or a structure of arrays, whose first axis is gone
            along.

    Example:
        >>> vectorized_map(lambda x: x.sum(), jnp.ones((3, 2))).tolist()
        [2.0, 2.0, 2.0]
    """
    return jax.vmap(function)(elements)


@api_boundary
@_control
def switch(
    index: Tensor, branches: Sequence[Callable[..., Any]], *operands: Tensor
) -> Any:
    """The result of ``branches[index](*operands)``; the index is clamped.

    Args:
        index: Which branch.
        branches: Functions.

    Example:
        >>> int(switch(1, [lambda x: x, lambda x: -x], 5))
        -5
    """
    return lax.switch(index, branches, *operands)


@api_boundary
@_control
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Tensor,
    maximum_iterations: int | None = None,
) -> Any:
    """Runs ``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)`` holds.

    Args:
        cond: Function of the variables that gives a boolean.
        body: Function of the variables that gives them anew.
        loop_vars: A list or tuple of them, or just one.
        maximum_iterations: After which the loop ends in any case.

    Example:
        >>> [int(v) for v in while_loop(
        ...     lambda i, t: i < 4, lambda i, t: (i + 1, t + i), (0, 0)
        ... )]
        [4, 6]
    """
    several = isinstance(loop_vars, list | tuple)
    start = tuple(loop_vars) if several else (loop_vars,)

    def proceed(state):
        count, values = state
        going = cond(*values)
        if maximum_iterations is not None:
            going = jnp.logical_and(going, count < maximum_iterations)
        return going

    def step(state):
        count, values = state
        new = body(*values)
        return count + 1, tuple(new) if isinstance(new, list | tuple) else (new,)

    _, end = lax.while_loop(proceed, step, (0, start))
    return type(loop_vars)(end) if several else end[0]


@api_boundary
def cond(pred: Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """``true_fn()`` where ``pred`` holds, else ``false_fn()``.

    On arrays only the branch that is taken runs. Where the functions refer to symbols,
    both run and the result is selected.

    Args:
        pred: One boolean.
        true_fn: Function without arguments.
        false_fn: Function without arguments, whose result has the same form.

    Raises:
        GraphError: The branches give symbols of different structure.

    Example:
        >>> int(cond(jnp.array(True), lambda: 1, lambda: 2))
        1
    """
    pred = tensor(pred)
    if isinstance(pred, Symbol):
        return _select_symbols(pred, true_fn(), false_fn())
    if not isinstance(pred, Tracer):
        return true_fn() if bool(pred) else false_fn()
    return lax.cond(pred, true_fn, false_fn)


def _select_symbols(pred, yes, no):
    if jax.tree.structure(yes) != jax.tree.structure(no):
        raise GraphError(
            "cond",
            "both branches must give the same structure",
            {"true_fn": jax.tree.structure(yes), "false_fn": jax.tree.structure(no)},
        )
    return jax.tree.map(lambda a, b: _where(pred, tensor(a), tensor(b)), yes, no)


_where = lift(jnp.where)


@api_boundary
def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: gives a function its own gradient.

    Args:
        f: Function that returns its result, and a function from the gradient of the
            result to the gradients of the arguments.

    Example:
        >>> @custom_gradient
        ... def clipped(x):
        ...     return x, lambda upstream: jnp.clip(upstream, -1, 1)
        >>> float(jax.grad(lambda x: 100 * clipped(x))(1.0))
        1.0
    """
    run = lift(jax.custom_gradient(f), getattr(f, "__name__", "custom_gradient"))

    def call(*args, **kwargs):
        return run(*tensors(args), **kwargs)

    call.__name__, call.__doc__ = run.__name__, f.__doc__
    return call
