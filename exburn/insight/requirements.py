"""Requirements of questions about gradients, checked before anything is compiled."""

from __future__ import annotations

from exburn.errors import ArgumentError
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
