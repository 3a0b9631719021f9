"""Flax modules with their state: nnx, and linen."""

from __future__ import annotations

import functools
import sys
from typing import Any

import jax
from flax import nnx

from exburn.data import ArrayDataset
from exburn.errors import ArgumentError
from exburn.models.interop.rows import in_batches

BATCH = 32  # rows where the caller says nothing, as in model.predict


def is_linen(model: Any) -> bool:
    """Whether a value is a ``flax.linen`` module; never imports linen."""
    linen = sys.modules.get("flax.linen")
    return linen is not None and isinstance(model, linen.Module)


def predict_nnx(graphdef: Any, state: Any, x: Any, batch_size: int | None) -> Any:
    """Outputs of an ``nnx`` graph definition with its state, in inference mode."""
    run = functools.partial(_apply_nnx, graphdef, state)
    return _predict(run, x, batch_size)


def predict_linen(module: Any, variables: Any, x: Any, batch_size: int | None) -> Any:
    """Outputs of ``module.apply(variables, x)``."""
    if variables is None:
        raise ArgumentError(
            "predict",
            f"{type(module).__name__} is a linen module, which holds no weights",
            hint="predict(module, x, variables=module.init(key, x[:1])).",
        )
    if not isinstance(variables, dict) or "params" not in variables:
        variables = {"params": variables}
    run = functools.partial(_apply_linen, module, variables)
    return _predict(run, x, batch_size)


def _predict(run: Any, x: Any, batch_size: int | None) -> Any:
    leaves, treedef = jax.tree.flatten(ArrayDataset(x, op="predict").tree[0])
    return in_batches(
        lambda part: run(treedef.unflatten(part)),
        leaves,
        batch_size or BATCH,
        padded=True,
    )


# Jitted once: modules of one structure share programs, over calls of predict.
@functools.partial(jax.jit, static_argnums=0)
def _apply_nnx(graphdef: Any, state: Any, x: Any) -> Any:
    module = nnx.merge(graphdef, state)
    module.eval()
    return module(x)


@functools.partial(jax.jit, static_argnums=0)
def _apply_linen(module: Any, variables: Any, x: Any) -> Any:
    return module.apply(variables, x)
