"""What a model's own ``train_step`` is written with, in Keras' JAX form."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn import context
from exburn.building import inspect_call, spec_like
from exburn.training.check import ends_in_probabilities
from exburn.training.module import SplitModule
from exburn.traversal import iter_weights, module_paths

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

    def stateless_call(
        self,
        trainable_variables,
        non_trainable_variables,
        *args,
        return_losses: bool = False,
        training: bool = False,
        **kwargs,
    ):
        """A pure call: the weights come in as lists of arrays, and go out again.

        Args:
            trainable_variables: Values in the order of ``model.trainable_variables``.
            non_trainable_variables: The same for ``non_trainable_variables``.
            return_losses: Whether the losses that layers added are returned too.

        Returns:
            ``(outputs, non_trainable_variables)``, and a list of losses if asked for.
        """
        split = SplitModule(self)
        weights = list(iter_weights(self))
        learned = [path for path, _, learns in weights if learns]
        rest = [path for path, _, learns in weights if not learns]
        arrays = dict(zip(learned, map(_array, trainable_variables), strict=True))
        arrays |= dict(zip(rest, map(_array, non_trainable_variables), strict=True))
        spare = {n: v for group in split.read() for n, v in group.items()}
        outer = context.current()
        copy: Any = split.bind({**spare, **arrays})
        pass_ = context.Context(training=training, key=outer and outer.key)
        if outer is not None:
            pass_._draws = outer._draws  # a second call in one step draws anew
        pass_.paths, pass_.root = module_paths(copy), copy
        with context.forward(pass_):
            outputs = copy._call_arrays(args, kwargs)
            after = {path: w.get_value() for path, w, _ in iter_weights(copy)}
            losses = list(pass_.losses)
            penalty = split.penalty({n: arrays[n] for n in split.params})
        if penalty is not None:
            losses.append(penalty)
        state = [after[path] for path in rest]
        return (outputs, state, losses) if return_losses else (outputs, state)


def _array(value: Any) -> Any:
    return value.get_value() if hasattr(value, "get_value") else value
