"""Projections of weights that are applied after every update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from exburn.core import registry
from exburn.core.magnitudes import squared_size
from exburn.core.missing_names import refuser
from exburn.errors import ArgumentError, DTypeError, ShapeError
from exburn.errors.boundary import api_boundary

__all__ = [
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "deserialize",
    "get",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "serialize",
    "unit_norm",
]

_EPSILON = 1e-7

Axis = int | Sequence[int] | None


class Constraint(registry.Configured):
    """Base of constraints: an object called with a weight, giving one it allows.

    Any function of the same kind works in its place.

    Shape:
        ``w: […] → […]``

    Example:
        >>> class Rounded(Constraint):
        ...     def __call__(self, w):
        ...         return jnp.round(w)
        >>> Rounded()(jnp.array([0.2, 0.9])).tolist()
        [0.0, 1.0]
    """

    def __call__(self, w) -> Any:
        return w


@registry.register_builtin
class MaxNorm(Constraint):
    """Shrinks vectors that are longer than ``max_value``.

    ``w · min(‖w‖, max_value) / ‖w‖``

    Args:
        max_value: The largest length.
        axis: Axis or axes that make up one vector: 0 for the inputs of a Dense kernel,
            ``(0, 1, 2)`` for the filters of a Conv2D kernel.

    Raises:
        ArgumentError: ``max_value`` is negative.
        ShapeError: The weight has no such axis.

    Example:
        >>> print(MaxNorm(2.5)(jnp.array([[30.0, 0.0], [40.0, 1.0]])).astype("float16"))
        [[1.5 0. ]
         [2.  1. ]]

    Source: Srebro & Shraibman, *Rank, Trace-Norm and Max-Norm*, 2005.
    """

    def __init__(self, max_value: float = 2, axis: Axis = 0):
        if not max_value >= 0:
            raise ArgumentError(
                "MaxNorm", f"max_value must be >= 0, received {max_value!r}"
            )
        self.max_value, self.axis = max_value, axis

    def __call__(self, w):
        w, norm = _with_norm("MaxNorm", w, self.axis)
        return w * (jnp.clip(norm, 0, self.max_value) / (_EPSILON + norm))

    def get_config(self):
        return {"max_value": self.max_value, "axis": _plain(self.axis)}


@registry.register_builtin
class NonNeg(Constraint):
    """Sets negative weights to 0.

    Raises:
        DTypeError: The weight is complex, which has no order.

    Example:
        >>> NonNeg()(jnp.array([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def __call__(self, w):
        w = jnp.asarray(w)
        if jnp.iscomplexobj(w):
            raise DTypeError("NonNeg", f"a weight of {w.dtype.name} has no order")
        return jnp.maximum(w, 0)


@registry.register_builtin
class UnitNorm(Constraint):
    """Scales vectors to length 1: ``w / ‖w‖``.

    Args:
        axis: Axis or axes that make up one vector; see :class:`MaxNorm`.

    Raises:
        ShapeError: The weight has no such axis.

    Example:
        >>> print(UnitNorm()(jnp.array([[3.0], [4.0]])).astype("float16"))
        [[0.6]
         [0.8]]
    """

    def __init__(self, axis: Axis = 0):
        self.axis = axis

    def __call__(self, w):
        w, norm = _with_norm("UnitNorm", w, self.axis)
        return w / (_EPSILON + norm)

    def get_config(self):
        return {"axis": _plain(self.axis)}


@registry.register_builtin
class MinMaxNorm(Constraint):
    """Brings the lengths of vectors between two bounds.

    ``w · (rate · clip(‖w‖, min_value, max_value) + (1 - rate) · ‖w‖) / ‖w‖``

    Args:
        min_value: The smallest length.
        max_value: The largest length.
        rate: How much of the way to go at a time: 1 for all of it.
        axis: Axis or axes that make up one vector; see :class:`MaxNorm`.

    Raises:
        ArgumentError: Not ``0 <= min_value <= max_value``.
        ShapeError: The weight has no such axis.

    Example:
        >>> print(MinMaxNorm(5.0, 10.0)(jnp.array([[0.75], [1.0]])).astype("float16"))
        [[3.]
         [4.]]
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: Axis = 0,
    ):
        if not 0 <= min_value <= max_value:
            raise ArgumentError(
                "MinMaxNorm",
                "0 <= min_value <= max_value must hold",
                {"min_value": min_value, "max_value": max_value},
            )
        self.min_value, self.max_value = min_value, max_value
        self.rate, self.axis = rate, axis

    def __call__(self, w):
        w, norm = _with_norm("MinMaxNorm", w, self.axis)
        clipped = jnp.clip(norm, self.min_value, self.max_value)
        desired = self.rate * clipped + (1 - self.rate) * norm
        return w * (desired / (_EPSILON + norm))

    def get_config(self):
        return {
            "min_value": self.min_value,
            "max_value": self.max_value,
            "rate": self.rate,
            "axis": _plain(self.axis),
        }


max_norm, min_max_norm, non_neg, unit_norm = MaxNorm, MinMaxNorm, NonNeg, UnitNorm

_names: dict[str, type[Constraint]] = {
    "MaxNorm": MaxNorm,
    "MinMaxNorm": MinMaxNorm,
    "NonNeg": NonNeg,
    "UnitNorm": UnitNorm,
    "max_norm": MaxNorm,
    "min_max_norm": MinMaxNorm,
    "non_neg": NonNeg,
    "unit_norm": UnitNorm,
}


def _plain(axis: Axis) -> Any:
    return axis if axis is None or isinstance(axis, int) else [int(a) for a in axis]


def _with_norm(op: str, w: Any, axis: Axis) -> tuple[jax.Array, jax.Array]:
    w = jnp.asarray(w)
    axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
    for one in (axes,) if isinstance(axes, int) else axes or ():
        if not -w.ndim <= one < w.ndim:
            raise ShapeError(
                op, f"the weight has no axis {one}", {"w": tuple(w.shape), "axis": axis}
            )
    return w, jnp.sqrt(jnp.sum(squared_size(w), axis=axes, keepdims=True))


_catalogue = registry.Catalogue("constraint", _names, Constraint)


@api_boundary
def get(identifier: Any) -> Any:
    """The constraint that an identifier stands for.

    Args:
        identifier: A name, a configuration, a class, or any callable of a weight.

    Returns:
        A callable, or ``None`` for ``None``.

    Raises:
        UnknownNameError: Nothing has that name.
        ArgumentError: The identifier is none of the above.

    Example:
        >>> get("max_norm"), get({"class_name": "UnitNorm", "config": {"axis": 1}})
        (MaxNorm(max_value=2, axis=0), UnitNorm(axis=1))
    """
    hint = "Pass a name such as 'max_norm', a Constraint, or a function."
    return _catalogue.resolve(identifier, hint)


@api_boundary
def serialize(constraint: Any) -> Any:
    """The configuration that :func:`deserialize` reads back.

    Args:
        constraint: A constraint.

    Example:
        >>> serialize(NonNeg())["class_name"]
        'NonNeg'
    """
    return registry.serialize(constraint)


@api_boundary
def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The constraint of a configuration (ExBurn's or Keras') or a name.

    Args:
        config: What :func:`serialize` returned, or a name.
        custom_objects: Further classes and functions by name.

    Example:
        >>> deserialize({"class_name": "MaxNorm", "config": {"max_value": 3}})
        MaxNorm(max_value=3, axis=0)
    """
    with registry.custom_objects(custom_objects):
        if not isinstance(config, Mapping):
            return get(config)
        return _catalogue.from_config(config)


def constraints_of(names: Iterable[str], variables: Iterable[Any]) -> dict[str, Any]:
    """The constraints of variables that have one, by their names."""
    pairs = zip(names, (getattr(v, "constraint", None) for v in variables), strict=True)
    return {name: constraint for name, constraint in pairs if callable(constraint)}


def apply_constraints(
    params: dict[str, Any], constraints: dict[str, Any]
) -> dict[str, Any]:
    """The parameters, each after its constraint if there is one."""
    return params | {name: f(params[name]) for name, f in constraints.items()}


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
