"""Requirements of questions about a model, checked before anything is compiled."""

from __future__ import annotations

from typing import Any

from exburn.errors import ArgumentError, unknown_name
from exburn.models.network import Network
from exburn.training.overrides import overrides
from exburn.training.trainer import Trainer


def require_compiled_loss(model: Network, op: str) -> None:
    """Raises ``ArgumentError`` if the model has a ``train_step`` of its own."""
    if overrides(model, "train_step"):
        raise ArgumentError(
            op,
            f"{type(model).__name__} computes its gradients in its own train_step",
            hint="Write the loss as compute_loss, or give it to compile.",
        )


def require_trained_weights(trainer: Trainer, op: str) -> None:
    """Raises ``ArgumentError`` if no weight is trained, or several processes train."""
    if not trainer.holder.split.params:
        raise ArgumentError(
            op,
            "no weight is trained, so that the loss has no gradient",
            hint="model.unfreeze(…), or layer.trainable = True.",
        )
    if trainer.holder.placement.spans_processes:
        raise ArgumentError(op, f"{op} is for one process")


def choose_output(names: list[str], output: Any, op: str) -> int:
    """The number of the output that is asked about, by its name or number.

    Raises:
        ArgumentError: There are several, and none is named.
        UnknownNameError: There is no such output.
    """
    count = len(names)
    if output is None and count == 1:
        return 0
    if output in names:
        return names.index(output)
    if isinstance(output, int) and output in range(count) and output is not True:
        return output
    if output is None:
        raise ArgumentError(
            op,
            f"the model has {count} outputs, and one is asked about",
            {"outputs": ", ".join(names)},
            hint=f"Name it: output={names[0]!r}.",
        )
    raise unknown_name("output", output, names, op=op)
