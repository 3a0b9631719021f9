"""Derivatives of functions: gradients, Jacobians, Hessians, and products with them.

``grad`` and ``jvp`` have Keras' arguments. The others, which Keras lacks, have those of
JAX. All of them can be nested, and work on models and layers, in a layer's ``call``, in
a ``compute_loss`` or ``train_step``, and under ``jax.jit`` and ``jax.vmap``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_integer
from exburn.errors import ArgumentError, DTypeError, GraphError
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import has_symbol
from exburn.ops.contract import tensor

# fmt: off
__all__ = [
    "grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "value_and_grad", "vjp",
]
# fmt: on


@api_boundary
def grad(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The function that computes the gradient of ``f``, whose result is summed first.

    Args:
        f: A function of arrays, weights, or structures of them, that returns an array.
        argnums: The place of the argument that the gradient is of, or several places.

    Returns:
        A function of the same arguments that gives one gradient, or a tuple of them for
        several places: zeros for what the result does not depend on. By a complex
        argument it is ``jax.grad``'s, the conjugate of the direction of ascent.

    Raises:
        ArgumentError: ``argnums`` is neither an integer nor a tuple of different ones;
            of the function that is returned, also: there is no such argument.
        DTypeError: Of the function that is returned: an argument has integers, or the
            result is complex.
        GraphError: The function that is returned is called on symbols.

    Example:
        >>> grad(lambda x, y: x * y, argnums=(0, 1))(jnp.array([1.0, 2.0]), 3.0)[0]
        Array([3., 3.], dtype=float32)
    """

    def total(*args, **kwargs):
        return jnp.sum(_check_real("grad", tensor(f(*args, **kwargs))))

    return _derivative("grad", argnums, lambda of: jax.grad(total, of))


@api_boundary
def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The function that computes ``fun`` and the gradient of its sum at once.

    The value is what ``fun`` returns, also where that has several entries: of a
    function that treats rows one by one, the gradient is each row's derivative.

    Args:
        fun: A function of arrays, weights, or structures of them, that returns an
            array.
        argnums: As of :func:`grad`.
        has_aux: Whether ``fun`` returns a pair, whose second part is not derived.

    Returns:
        A function of the same arguments that gives the value (with ``has_aux`` the
        pair) and the gradient as :func:`grad` gives it.

    Raises:
        ArgumentError, DTypeError, GraphError: As of :func:`grad`.

    Example:
        >>> value, slope = value_and_grad(jnp.square)(jnp.array([1.0, 3.0]))
        >>> value.tolist(), slope.tolist()
        ([1.0, 9.0], [2.0, 6.0])
    """

    def total(*args, **kwargs):
        result = fun(*args, **kwargs)
        value, rest = result if has_aux else (result, None)
        value = _check_real("value_and_grad", tensor(value))
        return jnp.sum(value), (value, rest) if has_aux else value

    def make(of):
        differentiate = jax.value_and_grad(total, of, has_aux=True)

        def compute(*args, **kwargs):
            (_, result), gradient = differentiate(*args, **kwargs)
            return result, gradient

        return compute

    return _derivative("value_and_grad", argnums, make)


@api_boundary
def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """The value of a function, and its derivative in a direction: ``jax.jvp``.

    Args:
        fun: A function of arrays, weights, or structures of them.
        primals: Its arguments.
        tangents: The direction: an array for each argument.
        has_aux: Whether ``fun`` returns a pair, whose second part is not derived.

    Returns:
        The value and the derivative; the second part of the pair, too, if there is one.

    Raises:
        ArgumentError: ``primals`` or ``tangents`` is not a list or tuple, or the
            function has no derivatives in forward mode.
        GraphError: They hold symbols.

    Example:
        >>> [float(part) for part in jvp(lambda x: x**2, (3.0,), (1.0,))]
        [9.0, 6.0]
    """
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, list | tuple):
            raise ArgumentError(
                "jvp",
                f"{name} must be a tuple with an entry for each argument of the "
                f"function, received {type(value).__name__}",
                hint=f"{name}=(x,) for a function of one argument.",
            )
    _refuse_symbols("jvp", (primals, tangents))
    primals, tangents = (tuple(map(_arrays, part)) for part in (primals, tangents))
    with refused_derivatives("jvp"):
        return jax.jvp(fun, primals, tangents, has_aux=has_aux)


@api_boundary
def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """The value of a function, and the function that pulls gradients back: ``jax.vjp``.

    Args:
        fun: A function of arrays, weights, or structures of them.
        *primals: Its arguments.
        has_aux: Whether ``fun`` returns a pair, whose second part is not derived.

    Returns:
        The value, and a function from a gradient by the value (of its form) to the
        tuple of gradients by the arguments; the second part of the pair, too, if there
        is one.

    Raises:
        GraphError: The arguments hold symbols.

    Example:
        >>> value, pull_back = vjp(jnp.square, jnp.array([1.0, 3.0]))
        >>> pull_back(jnp.array([1.0, 10.0]))[0].tolist()
        [2.0, 60.0]
    """
    _refuse_symbols("vjp", primals)
    return jax.vjp(fun, *map(_arrays, primals), has_aux=has_aux)


@api_boundary
def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The function that computes the Jacobian of ``fun``, a row of it at a time.

    It is right where the result has fewer entries than the argument; :func:`jacfwd`
    gives the same faster where it has more.

    Args:
        fun: A function of arrays, weights, or structures of them, that returns arrays.
        argnums: As of :func:`grad`.
        has_aux: Whether ``fun`` returns a pair, whose second part is not derived.

    Returns:
        A function of the same arguments that gives the Jacobian, of shape
        ``[*result, *argument]``; a tuple of them for several places. With ``has_aux``
        the second part of the pair comes with it.

    Raises:
        ArgumentError, DTypeError, GraphError: As of :func:`grad`.

    Example:
        >>> jacrev(lambda x: x**2)(jnp.array([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """
    fun = _real_results("jacrev", fun, has_aux)
    return _derivative(
        "jacrev", argnums, lambda of: jax.jacrev(fun, of, has_aux=has_aux)
    )


#: JAX' other name of ``jacrev``.
jacobian = jacrev


@api_boundary
def jacfwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The function that computes the Jacobian of ``fun``, a column of it at a time.

    Args:
        fun: A function of arrays, weights, or structures of them, that returns arrays,
            which may be complex.
        argnums: As of :func:`grad`.
        has_aux: Whether ``fun`` returns a pair, whose second part is not derived.

    Returns:
        What :func:`jacrev` gives.

    Raises:
        ArgumentError, GraphError: As of :func:`grad`.
        DTypeError: Of the function that is returned: an argument has integers or
            complex numbers.

    Example:
        >>> jacfwd(lambda x: x**2)(jnp.array([1.0, 3.0])).tolist()
        [[2.0, 0.0], [0.0, 6.0]]
    """
    make = lambda of: jax.jacfwd(fun, of, has_aux=has_aux)  # noqa: E731
    return _derivative("jacfwd", argnums, make, real=True)


@api_boundary
def hessian(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """The function that computes the second derivatives of ``fun``.

    Args:
        fun: A function of arrays, weights, or structures of them, that returns arrays.
        argnums: As of :func:`grad`.
        has_aux: Whether ``fun`` returns a pair, whose second part is not derived.

    Returns:
        A function of the same arguments that gives the Hessian, of shape
        ``[*result, *argument, *argument]``; nested tuples for several places.

    Raises:
        ArgumentError, GraphError: As of :func:`grad`.
        DTypeError: Of the function that is returned: an argument has integers or
            complex numbers, or the result is complex.

    Example:
        >>> hessian(lambda x: jnp.sum(x**3))(jnp.array([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    fun = _real_results("hessian", fun, has_aux)
    make = lambda of: jax.hessian(fun, of, has_aux=has_aux)  # noqa: E731
    return _derivative("hessian", argnums, make, real=True)


def _derivative(
    name: str,
    argnums: int | Sequence[int],
    make: Callable[[Any], Callable[..., Any]],
    *,
    real: bool = False,
) -> Callable[..., Any]:
    """A function of arrays that checks its arguments before it differentiates.

    Args:
        name: Of the op, in errors.
        argnums: The places of the arguments by which it differentiates.
        make: The function that computes the derivative, from places that are all there.
        real: Whether complex arguments are refused.
    """
    several = isinstance(argnums, list | tuple)
    places = tuple(
        check_integer(name, "argnums", place)
        for place in (argnums if several else (argnums,))
    )

    @api_boundary
    def derivative(*args, **kwargs):
        _refuse_symbols(name, (args, kwargs))
        if not all(-len(args) <= place < len(args) for place in places):
            raise ArgumentError(
                name,
                f"argnums must name one of {len(args)} arguments, received {argnums!r}",
            )
        ordered = tuple(place % len(args) for place in places)
        if len(set(ordered)) != len(ordered):
            raise ArgumentError(name, f"argnums names one twice: {argnums!r}")
        values = list(args)
        for place in ordered:
            values[place] = _arrays(args[place])
            _check_argument(name, values[place], place, real)
        with refused_derivatives(name):
            return make(ordered if several else ordered[0])(*values, **kwargs)

    return derivative


@contextlib.contextmanager
def refused_derivatives(op: str) -> Iterator[None]:
    """Names derivatives that something in a function does not have.

    Raises:
        ArgumentError: Something has gradients, and no derivatives in forward mode.
    """
    try:
        yield
    except (TypeError, NotImplementedError) as error:
        if not any(name in str(error) for name in ("custom_vjp", "custom_lin")):
            raise
        raise ArgumentError(
            op,
            "something in the function has no derivatives in forward mode",
            {"reason": str(error)},
            hint="layers.ODE has the others with adjoint='direct'.",
        ) from error


def _arrays(value: Any) -> Any:
    """An argument with arrays in the place of weights and NumPy arrays."""
    return jax.tree.map(tensor, value, is_leaf=lambda v: hasattr(v, "get_value"))


def _refuse_symbols(name: str, values: Any) -> None:
    if has_symbol(values):
        raise GraphError(
            name,
            "a gradient is of arrays, and these are symbols",
            hint="Call it in a layer's call, or in a Lambda layer.",
        )


def _check_argument(name: str, value: Any, place: int, real: bool) -> None:
    """Raises ``DTypeError`` for numbers that have no derivative."""
    kind = jnp.floating if real else jnp.inexact
    for leaf in jax.tree.leaves(value):
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, kind):
            raise DTypeError(
                name,
                f"argument {place} has dtype {dtype.name}, and derivatives are by "
                f"{'real' if real else 'real or complex'} floats",
                hint="ops.view_as_real gives a complex array as real ones."
                if jnp.issubdtype(dtype, jnp.complexfloating)
                else "ops.cast(x, 'float32') makes floats of integers.",
            )


def _real_results(name: str, fun: Callable[..., Any], has_aux: bool) -> Callable:
    """The function, which raises ``DTypeError`` where it returns complex numbers."""

    def real_function(*args, **kwargs):
        result = fun(*args, **kwargs)
        if not has_aux:
            return _check_real(name, result)
        value, rest = result
        return _check_real(name, value), rest

    return real_function


def _check_real(name: str, result: Any) -> Any:
    for leaf in jax.tree.leaves(result):
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise DTypeError(
                name,
                f"the function returns {dtype.name}, and real floats are needed",
                hint="Of a complex result, take ops.real, ops.imag or ops.abs; "
                "ops.jvp and ops.vjp are defined for it, too.",
            )
    return result
