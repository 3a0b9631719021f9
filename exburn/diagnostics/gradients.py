"""A single step looked into: its update, its gradients, and its time.

Example:
    >>> import numpy as np
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    >>> model.compile("adam", "cross_entropy", seed=0)
    >>> batch = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    >>> sorted(exburn.compute_gradients(model, batch))
    ['dense/bias', 'dense/kernel']
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.diagnostics.differences import (
    gradients_of,
    loss_of,
    numerical,
    on_device,
    prepare_batch,
)
from exburn.errors.boundary import api_boundary
from exburn.models.arguments import check_model
from exburn.training.program import Programs
from exburn.training.state import TrainState


@api_boundary
def train_step(
    model: Any,
    batch: Any,
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    weight_decay: float | None = None,
    method: str = "autodiff",
    epsilon: float | None = None,
) -> tuple[float, Any]:
    """One update of a compiled model on one batch.

    Args:
        model: A compiled model; it is updated in place.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        clip_norm: Largest norm of all gradients together, in this step.
        clip_value: Largest absolute value of a gradient's element, in this step.
        weight_decay: ``gradient += weight_decay * parameter`` after clipping.
        method: Of `compute_gradients`.
        epsilon: Step of the numerical methods.

    Returns:
        ``(loss, model)``: the loss of the batch before the update; NaN if the model's
        own ``train_step`` logs none.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError, ShapeError, TargetError: The batch does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> batch = np.ones((4, 1)), np.zeros((4, 1))
        >>> first, model = train_step(model, batch)
        >>> second, model = train_step(model, batch)
        >>> second < first
        True

    Source: ExBurn (Elixir), ``ExBurn.Training.train_step``.
    """
    check_model("train_step", model)
    with model.options(
        clip_norm=clip_norm, clip_value=clip_value, weight_decay=weight_decay
    ):
        trainer, tree = prepare_batch(model, batch, "train_step", method)
        if method == "autodiff":
            logs = trainer.run_batch(tree, train=True)
            return logs.get("loss", float("nan")), model
        programs, data = trainer.preparer.programs, on_device(tree)
        state = trainer.preparer.initial_state()
        grads = numerical(
            programs, state, data, method, epsilon, model.compute_dtype, scaled=True
        )
        apply = programs.further("apply_gradients", lambda: update_of(programs))
        loss, state = apply(state, data, grads)
        trainer.holder.adopt(state, trainer.holder.step + 1)
        return float(loss), model


@api_boundary
def compute_gradients(
    model: Any,
    batch: Any,
    *,
    method: str = "autodiff",
    epsilon: float | None = None,
) -> dict[str, jax.Array]:
    """Gradients of the training loss on one batch; nothing is updated.

    ``"autodiff"`` is exact. ``"numerical"`` takes central differences,
    :math:`(L(w + ε) − L(w − ε)) / 2ε`, at two losses a scalar parameter, and
    ``"numerical_batch"`` one-sided ones, :math:`(L(w + ε) − L(w)) / ε`, at one. Many
    parameters are moved at once, in chunks that fit the device's free memory. Dropout
    draws the same masks in all of them.

    Args:
        model: A compiled model.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        method: ``"autodiff"``, ``"numerical"`` or ``"numerical_batch"``.
        epsilon: Step of the numerical methods; `default_epsilon` by default.

    Returns:
        A gradient for every trained parameter, by its path.

    Raises:
        NotCompiledError: ``compile`` was not called.
        UnknownNameError: An unknown method.
        ArgumentError: ``epsilon`` is not positive.
        DataError, ShapeError, TargetError: The batch does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> batch = np.ones((4, 2)), np.zeros((4, 1))
        >>> exact = compute_gradients(model, batch)["dense/kernel"]
        >>> close = compute_gradients(model, batch, method="numerical")["dense/kernel"]
        >>> bool(np.allclose(exact, close, atol=1e-3))
        True

    Source: ExBurn (Elixir), ``ExBurn.Training.compute_gradients``, whose ``:autodiff``
    falls back to differences; here it is autodiff.
    """
    trainer, tree = prepare_batch(model, batch, "compute_gradients", method)
    programs, data = trainer.preparer.programs, on_device(tree)
    state = trainer.preparer.initial_state()
    if method == "autodiff":
        return exact_gradients(programs, state, data)
    return numerical(programs, state, data, method, epsilon, model.compute_dtype)


@api_boundary
def profile_step(
    model: Any, batch: Any, *, warmup: int = 3, runs: int = 10
) -> dict[str, float]:
    """Times the parts of a training step on the device; the model is not changed.

    Each part is a compiled program of its own, and its time the median over the runs,
    so the parts may add up to more than ``total_ms``: the real step, in which XLA
    fuses them. For the time that data and host take, see ``fit(profile=True)``.

    Args:
        model: A compiled model.
        batch: ``(x, y)`` or ``(x, y, sample_weight)``.
        warmup: Runs before the clock starts.
        runs: Timed runs.

    Returns:
        ``forward_ms`` (outputs and loss), ``backward_ms``, ``optimizer_ms`` (clipping
        and weight decay included), ``total_ms``, and the ``loss``.

    Raises:
        ArgumentError: ``runs`` is below 1 or ``warmup`` negative.
        NotCompiledError: ``compile`` was not called.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> times = profile_step(model, (np.ones((4, 2)), np.zeros((4, 1))), runs=2)
        >>> sorted(times)
        ['backward_ms', 'forward_ms', 'loss', 'optimizer_ms', 'total_ms']

    Source: ExBurn (Elixir), ``ExBurn.Training.profile_step``.
    """
    runs = check_count("profile_step", "runs", runs)
    warmup = check_count("profile_step", "warmup", warmup, 0)
    trainer, tree = prepare_batch(model, batch, "profile_step", "autodiff")
    programs, data = trainer.preparer.programs, on_device(tree)
    state = trainer.preparer.initial_state()
    forward = programs.further("loss", lambda: loss_of(programs))
    both = programs.further("gradients", lambda: gradients_of(programs))
    update = programs.further("update", lambda: programs.steps.optimizer.update)
    grads = both(state, data)
    chunk = jax.tree.map(lambda v: v[None], data)
    current = [jax.tree.map(jnp.copy, state)]  # each step consumes the one it is given

    def step():
        current[0], done = programs.train(current[0], chunk, None, None)
        return done

    parts: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(state, data),
        "gradient": lambda: both(state, data),
        "optimizer": lambda: update(grads, state.opt_state, state.params),
        "total": step,
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for i in range(warmup + runs):
        for name, run in parts.items():  # by turns, so that all see the same machine
            start = time.perf_counter()
            jax.block_until_ready(run())
            if i >= warmup:
                times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "forward_ms": medians["forward"],
        "backward_ms": max(medians["gradient"] - medians["forward"], 0.0),
        "optimizer_ms": medians["optimizer"],
        "total_ms": medians["total"],
        "loss": float(forward(state, data)),
    }


def exact_gradients(programs: Programs, state: TrainState, data: Any) -> dict[str, Any]:
    """By calculus, in the order of the parameters: JAX sorts dictionaries by name."""
    gradients = programs.further("gradients", lambda: gradients_of(programs))(
        state, data
    )
    return {path: gradients[path] for path in state.params}


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
