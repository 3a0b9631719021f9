"""What every turn of a loop would compute alike, computed once in front of it.

Casts of weights to the compute dtype, and kernels that are joined or laid out anew, are
such. XLA moves some of them out of a loop, and leaves what makes arrays larger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

from exburn.models.generation import fusing

# What costs nothing where it is read, and memory where it is kept: products read
# transposed matrices as they lie.
_CHEAP = {"broadcast_in_dim", "iota", "transpose"}
_VIEWS = {"expand_dims", "reshape", "squeeze"}  # a copy, if another program made them


def hoist(function: Callable, fixed: Any, *varying: Any) -> Callable:
    """A function of the varying arguments; all that the fixed one tells is computed.

    Args:
        function: Called with the fixed and the varying arguments; it computes no more
            than arrays of them.

    Example:
        >>> import jax.numpy as jnp
        >>> double = hoist(lambda w, x: x @ w.T, jnp.ones((3, 2)), jnp.ones((1, 2)))
        >>> double(jnp.ones((1, 2))).tolist()
        [[2.0, 2.0, 2.0]]
    """
    split = HoistedFunction(function, fixed, *varying)
    return split.rest(fixed, split.begin(fixed))


class HoistedFunction:
    """A function in two parts: what a fixed argument tells, and the rest.

    The parts may run in two programs, each of which traces the function.

    Args:
        function, fixed, varying: As of ``hoist``.
    """

    def __init__(self, function: Callable, fixed: Any, *varying: Any):
        traced = jax.make_jaxpr(function, return_shape=True)
        self._closed, self._shape = traced(fixed, *varying)
        jaxpr, self._count = self._closed.jaxpr, len(jax.tree.leaves(fixed))
        told = {*jaxpr.constvars, *jaxpr.invars[: self._count]}
        self._first, self._left = [], []
        for equation in jaxpr.eqns:
            if _is_fixed(equation, told):
                self._first.append(equation)
                told.update(equation.outvars)
            else:
                self._left.append(equation)
        read = [var for equation in self._left for var in equation.invars]
        read = {var for var in [*read, *jaxpr.outvars] if not isinstance(var, Literal)}
        self._views: list[Any] = []  # which the rest makes again
        self._results: list[Any] = []
        for equation in reversed(self._first):
            needed = [var for var in equation.outvars if var in read]
            if needed and equation.primitive.name in _VIEWS:
                self._views.insert(0, equation)
                read.update(equation.invars)
            else:
                self._results += needed

    def begin(self, fixed: Any) -> list[jax.Array]:
        """What the fixed argument tells, as arrays that the rest reads."""
        values = self._constants(fixed)
        for equation in self._first:
            _run(equation, values)
        return [values[var] for var in self._results]

    def rest(self, fixed: Any, results: list[jax.Array]) -> Callable:
        """The function of the varying arguments, with what ``begin`` has computed."""
        constants = self._constants(fixed)
        constants |= zip(self._results, results, strict=True)
        for equation in self._views:
            _run(equation, constants)
        jaxpr = self._closed.jaxpr
        evaluate = _by_equations if not fusing.has_products(self._left) else _by_kernels
        varying = jaxpr.invars[self._count :]
        compute = evaluate(self._left, constants, varying, jaxpr.outvars)

        def run(*varying: Any) -> Any:
            outputs = compute(jax.tree.leaves(varying))
            return jax.tree.unflatten(jax.tree.structure(self._shape), outputs)

        return run

    def _constants(self, fixed: Any) -> dict[Any, Any]:
        jaxpr, leaves = self._closed.jaxpr, jax.tree.leaves(fixed)
        constants = dict(zip(jaxpr.constvars, self._closed.consts, strict=True))
        return constants | dict(zip(jaxpr.invars[: self._count], leaves, strict=True))


def _by_equations(
    equations: list, constants: dict[Any, Any], varying: Sequence[Any], outputs: Any
) -> Callable[[Sequence[Any]], list]:
    """What computes equations one by one."""

    def run(arguments: Sequence[Any]) -> list:
        values = constants | dict(zip(varying, arguments, strict=True))
        for equation in equations:
            _run(equation, values)
        return [_read(var, values) for var in outputs]

    return run


def _by_kernels(
    equations: list, constants: dict[Any, Any], varying: Sequence[Any], outputs: Any
) -> Callable[[Sequence[Any]], list]:
    """What computes equations, those around a product of one row by one kernel."""
    read = {v for e in equations for v in e.invars if not isinstance(v, Literal)}
    fixed = [var for var in constants if var in read or var in outputs]
    program = fusing.flatten(equations, [*fixed, *varying], outputs)
    jaxpr = program.jaxpr
    steps = fusing.fuse(jaxpr.eqns, jaxpr.outvars)
    arrays = [constants[var] for var in fixed]

    def run(arguments: Sequence[Any]) -> list:
        values = dict(zip(jaxpr.constvars, program.consts, strict=True))
        values |= zip(jaxpr.invars, [*arrays, *arguments], strict=True)
        for step in steps:
            results = step.run([values[var] for var in step.inputs])
            values.update(zip(step.outputs, results, strict=True))
        return [_read(var, values) for var in jaxpr.outvars]

    return run


def _is_fixed(equation: Any, constants: set[Any]) -> bool:
    inputs = [var for var in equation.invars if not isinstance(var, Literal)]
    if not inputs or equation.effects or equation.primitive.name in _CHEAP:
        return False
    return all(var in constants for var in inputs)


def _read(var: Any, values: dict[Any, Any]) -> Any:
    return var.val if isinstance(var, Literal) else values[var]


def _run(equation: Any, values: dict[Any, Any]) -> None:
    """Computes an equation and adds its results."""
    inputs = [_read(var, values) for var in equation.invars]
    results = fusing.run_equation(equation, inputs)
    values.update(zip(equation.outvars, results, strict=True))
