"""The batch of a call, and the programs that compute on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from exburn.data import as_batch
from exburn.errors import ArgumentError, DataError, unknown_name
from exburn.models.arguments import check_model
from exburn.models.preparing import prepare
from exburn.models.training_settings import require_trainer
from exburn.training.overrides import overrides
from exburn.training.program import Programs
from exburn.training.state import TrainState
from exburn.training.trainer import Trainer

METHODS = ("autodiff", "numerical", "numerical_batch")


def prepare_batch(model: Any, batch: Any, op: str, method: str) -> tuple[Trainer, Any]:
    """The model's trainer, ready for the batch, and the batch, checked."""
    check_model(op, model)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS, op=op)
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(parts) <= 3:
        raise DataError(
            op,
            f"a batch is (x, y) or (x, y, sample_weight), received {len(parts)} parts",
        )
    dataset = as_batch(*parts, op=op)
    trainer = require_trainer(model, op)
    own = overrides(model, "train_step")
    if own and not (op == "train_step" and method == "autodiff"):
        raise ArgumentError(
            op,
            f"{type(model).__name__} computes its gradients in its own train_step",
            hint="Use train_step(model, batch), or jax.grad on stateless_call.",
        )
    prepare(model, op, dataset, train=True)
    return trainer, dataset.tree


def on_device(tree: Any) -> Any:
    return jax.tree.map(jax.device_put, tree)


def loss_of(programs: Programs, scaled: bool = False) -> Callable:
    def loss(state: TrainState, batch: Any) -> jax.Array:
        value, (plain, *_) = programs.steps.loss(state.params, state, batch, None)
        return value if scaled else plain

    return loss


def gradients_of(programs: Programs) -> Callable:
    def gradients(state: TrainState, batch: Any) -> dict[str, jax.Array]:
        def loss(params):
            return programs.steps.loss(params, state, batch, None)[1][0]

        return jax.grad(loss)(state.params)

    return gradients


def precise(fn: Callable) -> Callable:
    """The same function with products of float32 that are of float32.

    GPUs multiply with the 10 bits of TF32: what they round away is more than a step of
    a difference changes.
    """

    def run(*args):
        with jax.default_matmul_precision("highest"):
            return fn(*args)

    return run


def exact_gradients(programs: Programs, state: TrainState, data: Any) -> dict[str, Any]:
    """By calculus, in the order of the parameters: JAX sorts dictionaries by name."""
    found = programs.further("gradients", lambda: gradients_of(programs))(state, data)
    return {path: found[path] for path in state.params}


def update_of(programs: Programs) -> Callable:
    """One update from given gradients, everything else as in a training step."""

    def apply(state: TrainState, batch: Any, grads: Any) -> tuple[jax.Array, Any]:
        _, (loss, _, others, *_) = programs.steps.loss(state.params, state, batch, None)
        params, opt_state = programs.steps.optimizer.update(
            grads, state.opt_state, state.params
        )
        params = programs.split.constrain(params)
        new = state.assign(others)
        params, others = programs.split.masking.advance(
            params, new.frozen, new.others, 1
        )
        return loss, new.replace(params=params, others=others, opt_state=opt_state)

    return apply
