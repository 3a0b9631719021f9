"""A model's outputs, their loss, and their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.data import as_batch
from exburn.errors.boundary import api_boundary
from exburn.models.arguments import check_model
from exburn.models.inferring import require_predictor
from exburn.models.preparing import on_device, prepare
from exburn.models.training_settings import require_trainer
from exburn.module.building import inspect_call


@api_boundary
def forward(model: Any, x: Any, *, training: bool = False) -> Any:
    """The outputs for one batch, from one compiled program; they stay on the device.

    `predict` streams any amount of rows into host memory; this is the plain call.

    Args:
        model: A model; compiled or not.
        x: One batch of inputs, in the model's structure.
        training: Whether dropout and the like are active, with a fixed key.

    Raises:
        DataError, ShapeError: The input does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward(model, np.ones((2, 4))).shape
        (2, 3)

    Source: ExBurn (Elixir), ``ExBurn.Model.forward``.
    """
    check_model("forward", model)
    dataset = as_batch(x, op="forward")
    trainer = require_predictor(model)
    prepare(model, "predict", dataset)
    programs = trainer.preparer.programs

    def make() -> Callable:
        def forward(groups, x):
            key = jax.random.key(0)
            return programs.split.forward(groups, x, training=training, key=key)[0]

        return forward

    with on_device(model):
        program = programs.further(f"forward {training}", make)
        return program(programs.split.read(), dataset.tree[0])


@api_boundary
def compute_loss(model: Any, predictions: Any, targets: Any) -> float:
    """The loss of ``compile`` for given outputs; penalties of weights are not in it.

    Args:
        model: A compiled model.
        predictions: Outputs, as `forward` or ``predict`` returned them.
        targets: The targets.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError: Predictions and targets are no arrays of the same rows.
        ShapeError, TargetError: They do not fit the loss.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> compute_loss(model, np.ones((2, 1)), np.zeros((2, 1)))
        1.0

    Source: ExBurn (Elixir), ``ExBurn.Model.compute_loss``.
    """
    check_model("compute_loss", model)
    predictions, y, _ = as_batch(predictions, targets, op="compute_loss").tree
    loss = float(model.compute_loss(y=y, y_pred=predictions))
    if model.own_compute_loss is None:
        require_trainer(model, "compute_loss").preparer.objective.check_targets(
            y, predictions
        )
    return loss


@api_boundary
def forward_pattern(model: Any, batch_size: int | None = None) -> dict[str, Any]:
    """Shape and type of the outputs; nothing is computed.

    Args:
        model: A model with `Input`, or one that was called or trained.
        batch_size: Rows; None leaves them open.

    Raises:
        UncalledLayerError: The shapes are not known yet.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward_pattern(model, 8)
        {'output_shape': (8, 3), 'output_type': 'float32'}

    Source: ExBurn (Elixir), ``ExBurn.Model.forward_pattern``.
    """
    check_model("forward_pattern", model)
    if batch_size is not None:
        batch_size = check_count("forward_pattern", "batch_size", batch_size)
    called = inspect_call(model) if model.graph is None else None
    if called is None:
        outputs, fixed = model.output, True  # raises if there are none
    else:  # a subclass: what it was called on had some number of rows
        outputs, fixed = called[1][""], False

    def shape(output):
        rows, *rest = (n if isinstance(n, int) else None for n in output.shape)
        return (rows if fixed and rows is not None else batch_size, *rest)

    return {
        "output_shape": jax.tree.map(shape, outputs),
        "output_type": jax.tree.map(lambda s: jnp.dtype(s.dtype).name, outputs),
    }
