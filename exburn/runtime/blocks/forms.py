"""Equations that compute the same of their operands have the same form, a number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

_CUSTOM = {"custom_jvp_call", "custom_vjp_call"}  # functions with rules for derivatives

_CONTEXT = (
    "compute_type",
    "cur_abstract_mesh",
    "xla_metadata",
    "threefry_partitionable",
)


class Forms:
    """Forms of the equations of one trace: equal ones have the same number.

    Literals among the operands of an outermost equation may differ. What cannot be
    compared equals nothing but itself.

    Args:
        differentiable: Whether equal ones have equal gradients, too.

    Example:
        >>> code = jax.make_jaxpr(lambda x: jnp.sin(x * 2) * 3)(1.0).jaxpr
        >>> forms = Forms()
        >>> [forms.of_equation(equation) for equation in code.eqns]
        [0, 1, 0]
    """

    def __init__(self, differentiable: bool = True):
        self._compares_rules = differentiable
        self._numbers: dict[Hashable, int] = {}
        self._programs: dict[Hashable, tuple[Any, int]] = {}  # by id, which they keep

    def of_equation(self, equation: Any) -> int:
        """The form of an outermost equation."""
        if _has_effects(equation):
            return self._number(("alone", _Same(equation)))
        return self._number(self._equation(equation))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _equation(self, equation: Any) -> Hashable:
        custom = equation.primitive.name in _CUSTOM
        params = {
            name: value
            for name, value in equation.params.items()
            if not custom or isinstance(value, ClosedJaxpr | int | str)
        }
        rule = None
        if custom and self._compares_rules:
            rule = self._rule(equation)
        return (
            equation.primitive,
            self._value(params),
            rule,
            tuple(_kind(v) for v in equation.invars),
            tuple(_kind(v) for v in equation.outvars),
            tuple(self._value(part) for part in _context(equation)),
        )

    def _rule(self, equation: Any) -> int:
        """The form of a function's gradient; rules of what that calls are left out."""
        self._compares_rules = False
        try:
            return self._number(self._code(_gradient(equation)))
        finally:
            self._compares_rules = True

    def _value(self, value: Any) -> Hashable:
        """A parameter of an equation, as something to compare by."""
        match value:
            case ClosedJaxpr() | Jaxpr():
                return "program", self._program(value)
            case dict():
                pairs = sorted(value.items(), key=lambda pair: str(pair[0]))
                return tuple((name, self._value(part)) for name, part in pairs)
            case tuple() | list():
                return type(value), tuple(map(self._value, value))
            case float() if value != value:
                return "nan"
        try:
            hash(value)
        except TypeError:
            return _Same(value)
        return type(value), value

    def _program(self, program: Any) -> int:
        """The form of a program within an equation: literals and constants count."""
        key = id(program), self._compares_rules
        if key not in self._programs:
            self._programs[key] = program, self._number(self._code(program))
        return self._programs[key][1]

    def _code(self, program: Any) -> Hashable:
        constants = tuple(map(_constant, getattr(program, "consts", ())))
        code = getattr(program, "jaxpr", program)
        numbers = itertools.count()
        places: dict[Any, int] = {}

        def define(variables: Any) -> tuple:
            places.update((v, next(numbers)) for v in variables)
            return tuple(_kind(v) for v in variables)

        def use(operand: Any) -> Hashable:
            if isinstance(operand, Literal):
                return "literal", literal_form(operand)
            return places[operand]

        lines: list[Hashable] = [
            ("inputs", define(code.constvars), define(code.invars))
        ]
        for equation in code.eqns:
            form = self._equation(equation)
            alone = _Same(equation) if _has_effects(equation) else None
            lines.append((form, alone, tuple(map(use, equation.invars))))
            define(equation.outvars)
        return constants, tuple(lines), tuple(map(use, code.outvars))


class _Same:
    """A value that equals itself alone."""

    def __init__(self, value: Any):
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)


def _has_effects(equation: Any) -> bool:
    """Whether it does more than to compute, and to ask other devices of its mesh."""
    names = (type(effect).__name__ for effect in equation.effects)
    return any(name != "NamedAxisEffect" for name in names)


def _kind(operand: Any) -> Hashable:
    """Shape, dtype and layout of a variable or literal.

    What a ``shard_map`` returns has a mesh and no layout on it, as if it had none.
    """
    aval = operand.aval
    layout = getattr(getattr(aval, "sharding", None), "spec", None)
    if layout is None or any(axis is not None for axis in layout):
        return isinstance(operand, Literal), aval
    return isinstance(operand, Literal), aval.shape, aval.dtype, aval.weak_type


def literal_form(literal: Literal) -> Hashable:
    """What is equal for literals that are the same value of the same kind."""
    return _kind(literal), _constant(literal.val)


def _constant(value: Any) -> Hashable:
    if isinstance(value, jax.Array) or not np.isscalar(value) and np.size(value) > 1:
        return _Same(value)
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        array = np.asarray(value)
        return type(value), array.dtype.str, array.shape, array.tobytes()
    return _Same(value)


def _context(equation: Any) -> list[Any]:
    """What surrounded an equation: the mesh, where it computes."""
    return [getattr(equation.ctx, name, None) for name in _CONTEXT]


def _gradient(equation: Any) -> ClosedJaxpr:
    """The program that computes an equation and its gradient, by its rule."""
    inputs = variables(equation.invars)
    call = function_of(inputs, [equation], equation.outvars)
    specs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in inputs]
    smooth = [
        i for i, spec in enumerate(specs) if jnp.issubdtype(spec.dtype, jnp.inexact)
    ]

    def compute(values: list[Any], slopes: list[Any]) -> Any:
        def by_smooth(*some: Any) -> list[Any]:
            whole = list(values)
            for place, value in zip(smooth, some, strict=True):
                whole[place] = value
            outputs = call(*whole)
            return [v for v in outputs if jnp.issubdtype(v.dtype, jnp.inexact)]

        outputs, pull = jax.vjp(by_smooth, *(values[i] for i in smooth))
        return outputs, pull(slopes)

    outs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.outvars]
    slopes = [spec for spec in outs if jnp.issubdtype(spec.dtype, jnp.inexact)]
    return jax.make_jaxpr(compute)(specs, slopes)


def variables(operands: Iterable[Any]) -> list[Any]:
    """The variables among some operands, each once."""
    return list(dict.fromkeys(v for v in operands if not isinstance(v, Literal)))


def function_of(
    inputs: list[Any], equations: list[Any], outputs: list[Any]
) -> Callable[..., list[Any]]:
    """Equations as a function of some variables, which returns others."""
    effects = frozenset().union(*(equation.effects for equation in equations))
    parts = {"invars": inputs, "eqns": equations, "outvars": outputs}
    code = jax.make_jaxpr(lambda: ())().jaxpr.replace(**parts, effects=effects)
    return jaxpr_as_fun(ClosedJaxpr(code, ()))
