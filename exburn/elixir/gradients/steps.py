"""One update, or the gradients of one batch."""

from __future__ import annotations

from typing import Any

import jax

from exburn.elixir.gradients.differences import numerical
from exburn.elixir.gradients.programs import (
    exact_gradients,
    on_device,
    prepare_batch,
    update_of,
)
from exburn.errors.boundary import api_boundary
from exburn.models.arguments import check_model


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
