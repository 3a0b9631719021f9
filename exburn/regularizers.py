"""Penalties on weights or outputs that are added to the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from exburn.core import registry
from exburn.core.checks import check_number
from exburn.core.magnitudes import squared_size
from exburn.core.missing_names import refuser
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary

__all__ = [
    "L1",
    "L1L2",
    "L2",
    "OrthogonalRegularizer",
    "Regularizer",
    "deserialize",
    "get",
    "l1",
    "l1_l2",
    "l2",
    "orthogonal_regularizer",
    "serialize",
]


class Regularizer(registry.Configured):
    """Base of regularizers: an object called with an array, giving a scalar.

    Any function of the same kind works in its place.

    Example:
        >>> class Mean(Regularizer):
        ...     def __call__(self, x):
        ...         return jnp.mean(x) ** 2
        >>> float(Mean()(jnp.full((2, 2), 3.0)))
        9.0
    """

    def __call__(self, x) -> Any:
        raise ArgumentError(
            type(self).__name__, "a regularizer must define __call__(self, x)"
        )


@registry.register_builtin
class L1L2(Regularizer):
    """``l1 · Σ|x| + l2 · Σ|x|²``, summed in float32 at least.

    Args:
        l1: Factor of the absolute values.
        l2: Factor of the squares.

    Raises:
        ArgumentError: A factor is negative or not finite.

    Example:
        >>> float(L1L2(l1=1.0, l2=0.5)(jnp.array([-1.0, 2.0])))
        5.5
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0):
        self.l1 = check_number("L1L2", "l1", 0.0 if l1 is None else l1)
        self.l2 = check_number("L1L2", "l2", 0.0 if l2 is None else l2)

    def __call__(self, x):
        return self.l1 * _sum_abs(x) + self.l2 * _sum_square(x)

    def get_config(self):
        return {"l1": self.l1, "l2": self.l2}


@registry.register_builtin
class L1(Regularizer):
    """``l1 · Σ|x|``, summed in float32 at least: drives weights to exactly 0.

    Args:
        l1: The factor.

    Raises:
        ArgumentError: The factor is negative or not finite.

    Example:
        >>> float(L1(0.5)(jnp.array([-1.0, 3.0])))
        2.0

    Source: Tibshirani, *Regression Shrinkage and Selection via the Lasso*, 1996.
    """

    def __init__(self, l1: float = 0.01):
        self.l1 = check_number("L1", "l1", 0.01 if l1 is None else l1)

    def __call__(self, x):
        return self.l1 * _sum_abs(x)

    def get_config(self):
        return {"l1": self.l1}


@registry.register_builtin
class L2(Regularizer):
    """``l2 · Σ|x|²``, summed in float32 at least.

    Args:
        l2: The factor.

    Raises:
        ArgumentError: The factor is negative or not finite.

    Example:
        >>> float(L2(0.5)(jnp.array([-1.0, 3.0])))
        5.0

    Source: Hoerl & Kennard, *Ridge Regression*, 1970.
    """

    def __init__(self, l2: float = 0.01):
        self.l2 = check_number("L2", "l2", 0.01 if l2 is None else l2)

    def __call__(self, x):
        return self.l2 * _sum_square(x)

    def get_config(self):
        return {"l2": self.l2}


@registry.register_builtin
class OrthogonalRegularizer(Regularizer):
    """Pushes the rows (or columns) of a matrix towards right angles.

    ``factor`` times the mean of ``|cos(angle)|`` over all pairs of rows.

    Args:
        factor: The factor.
        mode: ``"rows"`` or ``"columns"``.

    Raises:
        ArgumentError: An argument is none of these values.
        ShapeError: The input is not a matrix.

    Example:
        >>> matrix = jnp.array([[1.0, 0.0], [3.0, 4.0]])
        >>> round(float(OrthogonalRegularizer(0.5)(matrix)), 4)
        0.3

    Source: Brock et al., *Neural Photo Editing with Introspective Adversarial
    Networks*, 2016.
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows"):
        self.factor = check_number("OrthogonalRegularizer", "factor", factor)
        if mode not in ("rows", "columns"):
            raise ArgumentError(
                "OrthogonalRegularizer",
                f"mode must be 'rows' or 'columns', received {mode!r}",
            )
        self.mode = mode

    def __call__(self, x):
        x = _wide(x)
        if x.ndim != 2:
            raise ShapeError(
                "OrthogonalRegularizer",
                f"the input must be a matrix, received shape {tuple(x.shape)}",
            )
        x = x if self.mode == "rows" else x.T
        norm = jax.lax.rsqrt(jnp.sum(squared_size(x), axis=1, keepdims=True))
        x = x * jnp.minimum(norm, 1e7)
        cosines = jnp.abs(x @ (x.conj() if jnp.iscomplexobj(x) else x).T)
        cosines = cosines * (1 - jnp.eye(x.shape[0], dtype=cosines.dtype))
        pairs = x.shape[0] * (x.shape[0] - 1)
        return self.factor * jnp.sum(cosines) / max(pairs, 1)

    def get_config(self):
        return {"factor": self.factor, "mode": self.mode}


l1, l2, l1_l2, orthogonal_regularizer = L1, L2, L1L2, OrthogonalRegularizer

_names: dict[str, type[Regularizer]] = {
    "L1": L1,
    "L1L2": L1L2,
    "L2": L2,
    "OrthogonalRegularizer": OrthogonalRegularizer,
    "l1": L1,
    "l1_l2": L1L2,
    "l2": L2,
    "orthogonal_regularizer": OrthogonalRegularizer,
}


def _wide(x: Any) -> jax.Array:
    """The array in float32 at least: the square of 256 overflows in half precision."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _sum_abs(x: Any) -> jax.Array:
    return jnp.sum(jnp.abs(_wide(x)))


def _sum_square(x: Any) -> jax.Array:
    return jnp.sum(squared_size(_wide(x)))


_catalogue = registry.Catalogue("regularizer", _names, Regularizer)


@api_boundary
def get(identifier: Any) -> Any:
    """The regularizer that an identifier stands for.

    Args:
        identifier: A name, a configuration, a class, or any callable of an array.
            ``"l1_l2"`` stands for ``L1L2(0.01, 0.01)``.

    Returns:
        A callable, or ``None`` for ``None``.

    Raises:
        UnknownNameError: Nothing has that name.
        ArgumentError: The identifier is none of the above.

    Example:
        >>> get("l2"), get({"class_name": "L1", "config": {"l1": 0.5}})
        (L2(l2=0.01), L1(l1=0.5))
    """
    if isinstance(identifier, str) and identifier in ("l1_l2", "l1l2", "L1L2"):
        return L1L2(0.01, 0.01)
    hint = "Pass a name such as 'l2', a Regularizer, or a function of the weight."
    return _catalogue.resolve(identifier, hint)


@api_boundary
def serialize(regularizer: Any) -> Any:
    """The configuration that :func:`deserialize` reads back.

    Args:
        regularizer: A regularizer.

    Example:
        >>> serialize(L2(0.5))["config"]
        {'l2': 0.5}
    """
    return registry.serialize(regularizer)


@api_boundary
def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The regularizer of a configuration (ExBurn's or Keras') or a name.

    Args:
        config: What :func:`serialize` returned, or a name.
        custom_objects: Further classes and functions by name.

    Example:
        >>> deserialize({"class_name": "L2", "config": {"l2": 0.5}})
        L2(l2=0.5)
    """
    with registry.custom_objects(custom_objects):
        if not isinstance(config, Mapping):
            return get(config)
        return _catalogue.from_config(config)


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
