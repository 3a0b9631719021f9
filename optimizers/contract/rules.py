"""Update rules for one parameter, lifted to optax transformations of whole trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from optax import GradientTransformation

from exburn.core.checks import is_known
from exburn.errors import ArgumentError
from exburn.optimizers.contract.trees import path_of

_HINT = "Call update(grads, state, params)."


def per_parameter(
    init: Callable[..., dict[str, Any]], update: Callable[..., tuple[Any, dict]]
) -> GradientTransformation:
    """An optax transformation from a rule for a single parameter.

    Args:
        init: ``init(p, path) -> {slot: array}``, the rule's state for one parameter.
        update: ``update(g, p, path, **slots) -> (delta, {slot: array})``, where
            ``delta`` is added to the parameter. Scalars such as the learning rate
            are computed outside of it, once.
    """

    def init_fn(params):
        leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
        return treedef.unflatten([init(p, path_of(path)) for path, p in leaves])

    def update_fn(updates, state, params=None):
        if params is None:
            raise ArgumentError("update", "the rule needs the parameters", hint=_HINT)
        leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
        grads = treedef.flatten_up_to(updates)
        slots = treedef.flatten_up_to(state)
        results = [
            update(g, p, path_of(path), **slot)
            for g, slot, (path, p) in zip(grads, slots, leaves, strict=True)
        ]
        return (
            treedef.unflatten([delta for delta, _ in results]),
            treedef.unflatten([slot for _, slot in results]),
        )

    return GradientTransformation(init_fn, update_fn)


def bias_correction(beta: Any, count: Any) -> Any:
    """``1 − beta ** (count + 1)``, without the cancellation of the plain formula.

    In float32, ``1 - 0.999 ** 1`` is off by 1.3e-5 of its value; this by 1e-7.

    Example:
        >>> round(float(bias_correction(0.999, jnp.int32(0))), 9)
        0.001
    """
    if is_known(beta, 0):
        return jnp.float32(1.0)
    step = count.astype(jnp.float32) + 1.0
    if isinstance(beta, Tracer):  # an argument of the program
        return -jnp.expm1(step * jnp.log1p(beta - 1.0))
    return -jnp.expm1(step * math.log(beta))
