"""Exact reductions: what is masked is absent, also when it is not finite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError
from exburn.losses.contract.shapes import unsqueeze_to

REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none")


def standardize_reduction(reduction: str | None) -> str | None:
    """Checks the name of a reduction and returns it."""
    if reduction is None or reduction in REDUCTIONS:
        return reduction
    raise ArgumentError(
        "Loss",
        "unknown reduction",
        {"received": reduction, "known": ", ".join(map(repr, REDUCTIONS))},
    )


def blank_out(tree: Any, valid: jax.Array, fill: float) -> Any:
    """Replaces what ``valid`` rules out by ``fill``.

    Done to the inputs as well as to the results, because a NaN that is only masked
    afterwards comes back through the gradient as 0 · NaN.
    """

    def blank(leaf: jax.Array) -> jax.Array:
        if leaf.ndim < valid.ndim or leaf.shape[: valid.ndim] != valid.shape:
            return leaf
        keep = valid.reshape(valid.shape + (1,) * (leaf.ndim - valid.ndim))
        return jnp.where(keep, leaf, jnp.asarray(fill, leaf.dtype))

    return jax.tree.map(blank, tree)


def reduce_values(
    values: jax.Array,
    reduction: str | None,
    sample_weight: Any = None,
    valid: jax.Array | None = None,
    *,
    op: str = "loss",
) -> jax.Array:
    """Reduces per-sample values.

    Args:
        values: ``[batch, …]`` losses, or a scalar that is already reduced.
        valid: Booleans that broadcast with ``values``; false entries count neither in
            the sum nor in the denominator.

    Example:
        >>> v = jnp.array([1.0, 3.0, jnp.nan])
        >>> float(reduce_values(v, "mean", valid=jnp.array([True, True, False])))
        2.0
    """
    averaging = reduction in ("sum_over_batch_size", "mean", "mean_with_sample_weight")
    if values.ndim == 0:
        return _weighted_scalar(values, reduction, sample_weight)
    weight = None
    if sample_weight is not None:
        weight = jnp.asarray(sample_weight).astype(values.dtype)
        weight = unsqueeze_to(op, "sample_weight", weight, values)
        values = values * weight
    if valid is not None:
        values = jnp.where(valid, values, 0)
    if reduction in (None, "none"):
        return values
    if not averaging:
        return jnp.sum(values)
    if reduction == "mean_with_sample_weight" and weight is not None:
        weight = jnp.broadcast_to(weight, values.shape)
        divisor = jnp.sum(weight if valid is None else jnp.where(valid, weight, 0))
    elif valid is not None:
        divisor = jnp.sum(jnp.broadcast_to(valid, values.shape).astype(values.dtype))
    else:
        return jnp.mean(values)
    return jnp.where(
        divisor == 0, 0, jnp.sum(values) / jnp.where(divisor == 0, 1, divisor)
    )


def _weighted_scalar(
    value: jax.Array, reduction: str | None, sample_weight: Any
) -> jax.Array:
    if sample_weight is None or reduction == "mean_with_sample_weight":
        return value
    weight = jnp.asarray(sample_weight).astype(value.dtype)
    if reduction in (None, "none"):
        return value * weight
    return value * (jnp.sum(weight) if reduction == "sum" else jnp.mean(weight))
