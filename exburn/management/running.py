"""A model's outputs, their loss, and their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.dataset import ArrayDataset, as_dataset
from exburn.errors import DataError
from exburn.training.trainer import Trainer

__all__ = ["compute_loss", "forward", "forward_pattern"]


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
    dataset = as_dataset(x, op="forward")
    if not isinstance(dataset, ArrayDataset):
        raise DataError("forward", "one batch of arrays is needed, received a loader")
    run = model._run.value
    if run.trainer is None:
        run.trainer = Trainer(model)
    model._prepare("predict", dataset)
    programs = run.trainer.programs

    def make() -> Callable:
        def forward(groups, x):
            key = jax.random.key(0)
            return programs.split.forward(groups, x, training=training, key=key)[0]

        return forward

    with model._on_device():
        program = programs.further(f"forward {training}", make)
        return program(programs.split.read(), dataset.tree[0])


def compute_loss(model: Any, predictions: Any, targets: Any) -> float:
    """The loss of ``compile`` for given outputs; penalties of weights are not in it.

    Args:
        model: A compiled model.
        predictions: Outputs, as `forward` or ``predict`` returned them.
        targets: The targets.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ShapeError, TargetError: Predictions and targets do not fit the loss.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> compute_loss(model, np.ones((2, 1)), np.zeros((2, 1)))
        1.0

    Source: ExBurn (Elixir), ``ExBurn.Model.compute_loss``.
    """
    predictions = jax.tree.map(jnp.asarray, predictions)
    return float(
        model.compute_loss(y=jax.tree.map(jnp.asarray, targets), y_pred=predictions)
    )


def forward_pattern(model: Any, batch_size: int | None = None) -> dict[str, Any]:
    """Shape and type of the outputs; nothing is computed.

    Args:
        model: A built model.
        batch_size: Rows; None leaves them open.

    Raises:
        NotBuiltError: The shapes are not known yet.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward_pattern(model, 8)
        {'output_shape': (8, 3), 'output_type': 'float32'}

    Source: ExBurn (Elixir), ``ExBurn.Model.forward_pattern``.
    """
    symbols = model.output  # raises if there are none

    def shape(symbol):
        first, *rest = symbol.shape
        return (batch_size if first is None else first, *rest)

    return {
        "output_shape": jax.tree.map(shape, symbols),
        "output_type": jax.tree.map(lambda s: jnp.dtype(s.dtype).name, symbols),
    }
