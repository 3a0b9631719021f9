"""What happens to gradients before the update rule, and to parameters after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError
from exburn.optimizers.contract.complex_parameters import is_pair, join


def global_norm(tree: Any) -> Any:
    """The L2 norm of all arrays of a tree together, in float32.

    Example:
        >>> float(global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}))
        5.0
    """
    squares = [jnp.sum(jnp.square(_wide(leaf))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares, start=jnp.float32(0.0)))


def clip(
    grads: Any,
    clipnorm: float | None = None,
    clipvalue: float | None = None,
    global_clipnorm: float | None = None,
) -> Any:
    """Gradients whose norm or elements are no larger than the given limit.

    A non-finite global norm makes every gradient NaN: scaling by zero would hide it.

    Args:
        grads: Tree of gradients.
        clipnorm: Limit for the norm of each array.
        clipvalue: Limit for the absolute value of each element, or of each part of a
            complex one.
        global_clipnorm: Limit for the norm of all arrays together.
    """
    if global_clipnorm is not None:
        norm = global_norm(grads)
        factor = global_clipnorm / jnp.maximum(norm, global_clipnorm)
        factor = jnp.where(jnp.isfinite(norm), factor, jnp.nan)
        grads = jax.tree.map(lambda g: (g * factor).astype(g.dtype), grads)
    if clipnorm is not None:

        def one(g):  # an array, or the two parts of a complex one
            factor = clipnorm / jnp.maximum(global_norm(g), clipnorm)
            return jax.tree.map(lambda part: (part * factor).astype(part.dtype), g)

        grads = jax.tree.map(one, grads, is_leaf=is_pair)
    if clipvalue is not None:
        grads = jax.tree.map(lambda g: jnp.clip(g, -clipvalue, clipvalue), grads)
    return grads


def moving_average(
    params: Any, average: Any, count: Any, momentum: float, every: int | None
) -> tuple[Any, Any]:
    """The average after update number ``count``, and the parameters, overwritten by it
    every ``every`` updates. The first average is the first updated parameters."""
    # A scalar decides about the first update, not a select over all parameters.
    share = jnp.where(count == 0, 0.0, momentum).astype(jnp.float32)
    average = jax.tree.map(
        lambda a, p: (share * a + (1.0 - share) * p).astype(a.dtype), average, params
    )
    if every is not None:
        due = (count + 1) % every == 0
        params = jax.tree.map(
            lambda p, a: jnp.where(due, a.astype(p.dtype), p), params, average
        )
    return params, average


def _wide(leaf):
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def ema_params(self: Any, opt_state: Mapping[str, Any]) -> Any:
    """The moving average of the parameters (float32 for 16-bit parameters).

    Raises:
        ArgumentError: The optimizer keeps none (``use_ema=False``).
    """
    if "average" not in opt_state:
        raise ArgumentError(
            "ema_params",
            f"{self.name} keeps no moving average of the parameters",
            hint=f"Make it with use_ema=True: {type(self).__name__}(use_ema=True).",
        )
    return join(opt_state["average"])


def final_params(self: Any, opt_state: Mapping[str, Any], params: Any) -> Any:
    """The parameters to keep when training ends: the average if there is one."""
    if not self.use_ema:
        return params
    return jax.tree.map(
        lambda p, a: a.astype(p.dtype), params, self.ema_params(opt_state)
    )
