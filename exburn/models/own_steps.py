"""What a model's own ``train_step`` is written with, in Keras' JAX form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn import context
from exburn.building import inspect_call, spec_like
from exburn.training.forward import ends_in_probabilities

__all__ = ["OwnSteps"]


class OwnSteps:
    """Pure calls and losses for subclasses that write their own steps."""

    _trainer: Any
    _output_names_of: Any
    losses: Any

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training: bool = True
    ):
        """The loss of ``compile`` for a batch; override it to train on another one.

        Args:
            x, y, sample_weight: The batch.
            y_pred: The outputs.
            training: Whether this is a training step.

        Returns:
            A scalar, with the losses of layers and regularizers where the engine calls
            it. An override that does not call this adds ``sum(self.losses)`` itself.
        """
        objective = self._trainer("compute_loss").objective
        specs = jax.tree.map(spec_like, (y_pred, y, sample_weight))
        names = self._output_names_of(specs[0])
        objective.build(*specs, names, self._ends_in_probabilities)
        pass_ = context.current() or context.Context()
        filled, masks = pass_.attached(y_pred)
        loss = objective.loss(y, (y_pred, filled), sample_weight, masks, None)[0]
        if pass_.root is self:
            loss = sum((jnp.asarray(v, jnp.float32) for v in self.losses), loss)
        return loss

    def _ends_in_probabilities(self) -> Any:
        """For each output whether it ends in a softmax or sigmoid, if that is known."""
        traced = inspect_call(self)
        return None if traced is None else ends_in_probabilities(traced[0])

    @property
    def own_compute_loss(self):
        """The ``compute_loss`` of a subclass that overrides it, else ``None``."""
        own = type(self).compute_loss is not OwnSteps.compute_loss
        return self.compute_loss if own else None
