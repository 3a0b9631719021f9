"""Where the time of a training step goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.elixir.gradients.programs import (
    gradients_of,
    loss_of,
    on_device,
    prepare_batch,
)
from exburn.errors.boundary import api_boundary


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
    held = [jax.tree.map(jnp.copy, state)]  # each step consumes the one it is given

    def step():
        held[0], done = programs.train(held[0], chunk, None, None)
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
    found = {name: statistics.median(values) for name, values in times.items()}
    return {
        "forward_ms": found["forward"],
        "backward_ms": max(found["gradient"] - found["forward"], 0.0),
        "optimizer_ms": found["optimizer"],
        "total_ms": found["total"],
        "loss": float(forward(state, data)),
    }
