"""Complex parameters as pairs of real ones, which every update rule can handle.

JAX's gradient of a real loss by ``z = x + iy`` is ``∂L/∂x - i ∂L/∂y``, the conjugate of
the direction in which the loss rises: a step against it climbs. Rules that square a
gradient, or take its sign, would be wrong besides. Rules therefore see real and
imaginary parts as two parameters, whose gradients are ``∂L/∂x`` and ``∂L/∂y``.

Source: Kreutz-Delgado, *The Complex Gradient Operator and the CR-Calculus*, 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

REAL, IMAGINARY = "(real)", "(imaginary)"


def split(tree: Any) -> Any:
    """The tree with a dict of its two parts in the place of each complex array.

    Example:
        >>> parts = split({"w": jnp.array([1 + 2j])})["w"]
        >>> {name: part.tolist() for name, part in parts.items()}
        {'(real)': [1.0], '(imaginary)': [2.0]}
    """
    return _map_complex(lambda z: {REAL: z.real, IMAGINARY: z.imag}, tree)


def split_gradients(grads: Any) -> Any:
    """Gradients by the parts of complex parameters, from those that ``jax.grad`` gives.

    Example:
        >>> grads = jax.grad(lambda w: jnp.abs(w - 2j) ** 2)(jnp.array(1 + 0j))
        >>> {name: float(part) for name, part in split_gradients(grads).items()}
        {'(real)': 2.0, '(imaginary)': -4.0}
    """
    return _map_complex(lambda g: {REAL: g.real, IMAGINARY: -g.imag}, grads)


def join(tree: Any) -> Any:
    """The tree that ``split`` made the parts of.

    Example:
        >>> join(split({"w": jnp.array([1 + 2j])}))["w"].tolist()
        [(1+2j)]
    """
    return jax.tree.map(
        lambda x: jax.lax.complex(x[REAL], x[IMAGINARY]) if is_pair(x) else x,
        tree,
        is_leaf=is_pair,
    )


def path_of_parameter(path: str) -> str:
    """The path of the parameter that a path of ``split``'s tree is, or is a part of.

    Example:
        >>> path_of_parameter("mix/kernel/(real)"), path_of_parameter("mix/bias")
        ('mix/kernel', 'mix/bias')
    """
    head, _, last = path.rpartition("/")
    return head if last in (REAL, IMAGINARY) else path


def is_pair(value: Any) -> bool:
    """Whether a value is the two parts of a complex array."""
    return isinstance(value, dict) and value.keys() == {REAL, IMAGINARY}


def _map_complex(function: Callable[[Any], Any], tree: Any) -> Any:
    def one(leaf: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating):
            return leaf
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return jax.eval_shape(function, leaf)
        return function(leaf)

    return jax.tree.map(one, tree)
