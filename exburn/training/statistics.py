"""What gradients and outputs of layers are like, on a batch that was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import CallbackError
from exburn.module.forward_hooks import Capture
from exburn.training.custom_step import own_steps
from exburn.training.steps import Steps, batch_at, one_number
from exburn.training.trainer import Trainer

Statistics = dict[str, dict[str, float]]

_HINT = "Watch the layer around it, for example the RNN of a cell."


def measure(trainer: Trainer, paths: Sequence[str], gradients: bool) -> Statistics:
    """Statistics of the last batch of the chunk that was just trained on.

    It is a program of its own, beside the one that trains: the weights are those after
    the batch. Call it in a hook of batches.

    Returns:
        ``"norm"``, ``"dead"`` and ``"nan"`` of ``"gradients/<weight>"`` and
        ``"activations/<layer>"``.
    """
    preparer, holder = trainer.preparer, trainer.holder
    chunk, state, programs = preparer.chunk, holder.state, preparer.programs
    assert chunk is not None and state is not None
    if own_steps(preparer.custom, "train") and not preparer.objective.terms:
        gradients = False  # the model's own step alone knows its loss
    name = f"watch {gradients} {', '.join(paths)}"
    steps = programs.steps
    program = programs.further(name, lambda: _program(steps, paths, gradients))
    args, _ = holder.placement.bind((state, *chunk.arguments), 1)
    try:
        with holder.placement.scope():
            values = program(*args, np.int32(chunk.steps - 1))
    except jax.errors.UnexpectedTracerError as error:
        raise CallbackError(
            "Watch",
            "a layer that is watched runs inside a loop",
            {"layers": ", ".join(paths)},
            hint=_HINT,
        ) from error
    missing = [path for path in paths if f"activations/{path}" not in values]
    if missing:
        raise CallbackError(
            "Watch",
            "a layer that is watched is not called by the model, or inside a loop",
            {"layers": ", ".join(missing)},
            hint=_HINT,
        )
    values = jax.device_get(values)
    names = [f"activations/{path}" for path in paths]
    if gradients:  # a program returns them in the order of the alphabet
        names += [f"gradients/{name}" for name in holder.split.params]
    return {n: {k: float(v) for k, v in values[n].items()} for n in names}


def _program(steps: Steps, paths: Sequence[str], gradients: bool) -> Callable:
    def watch(state, data, index, count, at):
        batch, row_mask = batch_at(data, index, count, at, steps.placement)

        def loss(params):
            capture = Capture(paths)
            arguments = params, state, batch, row_mask
            seen = steps.loss(*arguments, interceptors=(capture,))[1]
            return one_number(seen[0]), {
                f"activations/{path}": _of_outputs(outputs, row_mask)
                for path, outputs in capture.outputs.items()
                if outputs
            }

        if not gradients:
            return loss(state.params)[1]
        grads, values = jax.grad(loss, has_aux=True)(state.params)
        return values | {f"gradients/{n}": _of_gradient(g) for n, g in grads.items()}

    return watch


def _of_outputs(outputs: Any, row_mask: Any) -> dict[str, Any]:
    """The root of the mean square, the share of units that are 0 for all rows, of NaN.

    Padded rows are left out.
    """
    leaves = [
        v for v in jax.tree.leaves(outputs) if jnp.issubdtype(v.dtype, jnp.inexact)
    ]
    if not leaves:
        zero = jnp.float32(0)
        return {"norm": zero, "dead": zero, "nan": zero}
    squares = values = broken = dead = units = jnp.float32(0)
    for leaf in leaves:
        leaf = leaf.astype(jnp.float32)
        weight = jnp.ones((1,) * max(leaf.ndim, 1), jnp.float32)
        if row_mask is not None and leaf.shape[:1] == row_mask.shape:
            shape = (-1,) + (1,) * (leaf.ndim - 1)
            weight = row_mask.reshape(shape).astype(jnp.float32)
        weight = jnp.broadcast_to(weight, leaf.shape or (1,))
        finite = jnp.isfinite(leaf)
        squares += (jnp.where(finite, leaf, 0) ** 2 * weight).sum()
        broken += (weight * ~finite).sum()
        values += weight.sum()
        quiet = (leaf == 0) | (weight == 0)
        silent = quiet.all(tuple(range(max(leaf.ndim - 1, 0))))
        dead, units = dead + silent.sum(), units + silent.size
    norm = jnp.sqrt(squares / jnp.maximum(values, 1))
    return {"norm": norm, "dead": dead / units, "nan": broken / jnp.maximum(values, 1)}


def _of_gradient(gradient: Any) -> dict[str, Any]:
    """Its length, the share of entries that are 0, and of those that are not finite."""
    gradient = gradient.astype(jnp.float32)
    finite = jnp.isfinite(gradient)
    norm = jnp.sqrt((jnp.where(finite, gradient, 0) ** 2).sum())
    return {"norm": norm, "dead": (gradient == 0).mean(), "nan": (~finite).mean()}
