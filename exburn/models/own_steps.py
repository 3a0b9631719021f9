"""The steps that a model may write itself, in Keras' JAX form, and what they share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.methods import overridable
from exburn.core.symbolic_shapes import canonical_spec
from exburn.data.packing import unpack_x_y_sample_weight
from exburn.errors import ArgumentError
from exburn.models.network import Network
from exburn.models.preparing import output_names, require_targets
from exburn.models.session import require_trainer
from exburn.module.building import inspect_call, spec_like
from exburn.module.stateless import Bound, bind_arrays
from exburn.training.forward import last_functions
from exburn.training.objective.stateful_metrics import holding
from exburn.training.overrides import built_in, gives_loss
from exburn.training.steps import one_number, own_loss


@built_in
def train_step(self: Network, state: tuple, data: Any) -> tuple[dict[str, Any], tuple]:
    """One update: a pure function; override it to train in another way.

    Args:
        state: Four lists of arrays: the values of ``trainable_variables``,
            ``non_trainable_variables``, ``optimizer.variables``, and of the
            variables of ``metrics``.
        data: A batch: ``x``, ``(x, y)`` or ``(x, y, sample_weight)``.

    Returns:
        What is logged, and the new state.

    Source: Keras, "Customizing what happens in fit() with JAX".
    """
    trained, rest, slots, measured = state
    optimizer, batch = self.optimizer, unpack_x_y_sample_weight(data)

    def objective(trained):
        if gives_loss(self):
            return _call_own_loss(self, (trained, rest), measured, batch, True, slots)
        loss, seen = _run_loss(self, (trained, rest), measured, batch, training=True)
        return _scale_loss(self, loss, slots), (loss, seen)

    (_, (loss, seen)), grads = jax.value_and_grad(objective, has_aux=True)(trained)
    trained, slots = optimizer.stateless_apply(slots, grads, trained)
    logs, measured = _update_metrics(self, trained, loss, seen, batch, training=True)
    return logs, (trained, seen["rest"], slots, measured)


@built_in
def compute_loss_and_updates(
    self: Network,
    trainable_variables,
    non_trainable_variables,
    metrics_variables,
    x,
    y,
    sample_weight,
    training: bool = False,
    optimizer_variables=None,
) -> tuple[Any, tuple[Any, Any, list, list]]:
    """The loss of a batch as a pure function, for ``jax.value_and_grad``.

    An override is called by ``train_step`` and ``test_step``, unless those are
    overridden, too.

    Args:
        trainable_variables, non_trainable_variables, metrics_variables: As of
            ``stateless_compute_loss``.
        x, y, sample_weight: The batch.
        training: Whether this is a training step.
        optimizer_variables: Values of ``optimizer.variables``, where a
            ``LossScaleOptimizer`` scales the loss.

    Returns:
        The loss that is differentiated, and with it the unscaled loss, the outputs,
        and the new ``non_trainable_variables`` and ``metrics_variables``.
    """
    loss, seen = _run_loss(
        self,
        (trainable_variables, non_trainable_variables),
        metrics_variables or self.metrics_variables,
        (x, y, sample_weight),
        training=training,
    )
    scaled = loss
    if training and optimizer_variables is not None:
        scaled = _scale_loss(self, loss, optimizer_variables)
    return scaled, (loss, seen["outputs"], seen["rest"], seen["metrics"])


def _scale_loss(model: Network, loss: Any, slots: Any) -> Any:
    """The loss that is differentiated: one number, scaled by the optimizer."""
    if model.optimizer.scales_loss:
        return model.optimizer.scale_loss(loss, model.optimizer.state_of(slots))
    return one_number(loss)


def _call_own_loss(
    model: Any,
    weights: tuple,
    measured: Any,
    batch: tuple,
    training: bool,
    slots=None,
) -> tuple[Any, tuple[Any, dict[str, Any]]]:
    """What the class's own ``compute_loss_and_updates`` gives, as ours does."""
    extra = {} if slots is None else {"optimizer_variables": slots}
    scaled, aux = model.compute_loss_and_updates(
        *weights, measured, *batch, training=training, **extra
    )
    if not isinstance(aux, tuple) or len(aux) != 4:
        raise ArgumentError(
            "compute_loss_and_updates",
            "without a train_step of its own it must return (loss, (unscaled_loss, "
            "y_pred, non_trainable_variables, metrics_variables))",
            {"received": f"{type(aux).__name__} beside the loss"},
        )
    loss, outputs, rest, metrics = aux
    masks = [None] * len(jax.tree.leaves(outputs))
    seen = {"outputs": outputs, "masks": masks, "rest": rest, "metrics": metrics}
    return scaled, (loss, seen)


@built_in
def test_step(self: Network, state: tuple, data: Any) -> tuple[dict[str, Any], tuple]:
    """As ``train_step``, without an update: the state has no optimizer in it.

    Args:
        state: Parameters, other weights, and totals of metrics.
        data: A batch.
    """
    trained, rest, measured = state
    batch = unpack_x_y_sample_weight(data)
    if gives_loss(self):
        _, (loss, seen) = _call_own_loss(self, (trained, rest), measured, batch, False)
    else:
        loss, seen = _run_loss(self, (trained, rest), measured, batch, training=False)
    logs, measured = _update_metrics(self, trained, loss, seen, batch, training=False)
    return logs, (trained, seen["rest"], measured)


@built_in
def predict_step(self: Network, state: tuple, data: Any) -> tuple[Any, ...]:
    """The outputs for a batch: a pure function; override it to predict others.

    Args:
        state: Two lists of arrays: the values of ``trainable_variables`` and of
            ``non_trainable_variables``.
        data: The inputs.

    Returns:
        Outputs, each with a row for every row of the inputs, and the new values of
        ``non_trainable_variables``, which ``predict`` does not keep.
    """
    x, _, _ = unpack_x_y_sample_weight(data)
    return self.stateless_call(*state, x, training=False)


@overridable
def compute_loss(
    self: Any,
    x: Any = None,
    y: Any = None,
    y_pred: Any = None,
    sample_weight: Any = None,
    training: bool = True,
) -> Any:
    """The loss of ``compile`` for a batch; override it to train on another one.

    Args:
        x, y, sample_weight: The batch.
        y_pred: The outputs.
        training: Whether this is a training step.

    Returns:
        A scalar, with the losses of layers and regularizers where the engine calls
        it. An override that does not call this adds ``sum(self.losses)`` itself.
    """
    objective = require_trainer(self, "compute_loss").preparer.objective
    require_targets(self, "compute_loss", y)
    self.match_objective(y, y_pred, sample_weight)
    ctx = forward_context.current() or forward_context.Context()
    filled, masks = ctx.attachments(y_pred)
    loss, parts = objective.loss(y, (y_pred, filled), sample_weight, masks, None)
    ctx.parts = parts if objective.parts else {}
    if ctx.root is self:
        for added in self.losses:
            loss = loss + jnp.sum(jnp.asarray(added, jnp.float32))
    return loss


def stateless_compute_loss(
    self: Network,
    trainable_variables,
    non_trainable_variables,
    metrics_variables,
    x=None,
    y=None,
    y_pred=None,
    sample_weight=None,
    training: bool = True,
) -> tuple[Any, tuple[list, list, list]]:
    """``compute_loss`` as a pure function.

    Args:
        trainable_variables: Values in the order of ``trainable_variables``.
        non_trainable_variables: The same for ``non_trainable_variables``.
        metrics_variables: Those of ``metrics_variables``; none if it is empty.
        x, y, y_pred, sample_weight, training: As of ``compute_loss``.

    Returns:
        The loss, and the three lists afterwards.
    """
    arguments = {"x": x, "y": y, "y_pred": y_pred, "sample_weight": sample_weight}
    ctx = forward_context.current()
    masks = None if ctx is None else ctx.attachments(y_pred)[1]
    weights = trainable_variables, non_trainable_variables
    measured = metrics_variables or self.metrics_variables
    op = "stateless_compute_loss"
    with _values_in_place(self, weights, measured, training, op) as (run, after):
        if masks is not None:
            run.ctx.attach(y_pred, masks)
        loss = own_loss(run.copy.compute_loss, training, **arguments)
        _track_losses(self, run.ctx.parts, y_pred)
    return loss, (list(trainable_variables), run.rest, after)


@built_in
def compute_metrics(self: Any, x, y, y_pred, sample_weight=None) -> dict[str, Any]:
    """Updates the metrics of ``compile``; override it to update others as well.

    Args:
        x, y, sample_weight: The batch.
        y_pred: The outputs.

    Returns:
        What is logged: ``get_metrics_result()``.
    """
    trainer, ctx = require_trainer(self, "compute_metrics"), forward_context.current()
    if ctx is None:
        self.match_objective(y, y_pred, sample_weight)
        trainer.preparer.readings, ctx = None, forward_context.Context()
    masks = ctx.attachments(y_pred)[1]
    trainer.preparer.objective.measure(y, y_pred, sample_weight, masks)
    return self.get_metrics_result()


@built_in
def get_metrics_result(self: Network) -> dict[str, Any]:
    """Values of all metrics by their names in logs; those of dicts one by one.

    Outside of a step they are those that ``fit``, ``evaluate`` or a method for
    single batches logged last.
    """
    trainer = self._training_session.trainer
    if trainer is None:
        return {}
    if (
        forward_context.current() is None
        and (logs := trainer.preparer.last_logs) is not None
    ):
        return logs
    results: dict[str, Any] = {}
    for metric, name in metrics_with_names(self):
        value = metric.result()
        results |= value if isinstance(value, dict) else {name: value}
    return results


def match_objective(self: Network, y: Any, y_pred: Any, sample_weight: Any) -> None:
    """Matches the losses and metrics of ``compile`` to these outputs.

    Args:
        y: Targets.
        y_pred: Outputs.
        sample_weight: A weight for each row, or for each entry of the targets.
    """
    objective = require_trainer(self, "compute_loss").preparer.objective
    arrays = jax.tree.map(spec_like, (y_pred, y, sample_weight))
    specs = jax.tree.map(canonical_spec, arrays)  # NumPy's float64 is float32 in JAX
    names = output_names(self, specs[0])
    preds, targets, weights = specs
    objective.build(preds, targets, weights, names, lambda: _ends(self))


def metrics_with_names(model: Network) -> list[tuple[Any, Any]]:
    """The metrics, those of ``compile`` one by one, and what logs call them."""
    meters = require_trainer(model, "metrics").preparer.objective.meters
    names = {id(meter.metric): meter.name for meter in meters}
    metrics = [
        one
        for metric in model.metrics
        for one in getattr(metric, "metrics", None) or [metric]
    ]
    return [(metric, names.get(id(metric), metric.name)) for metric in metrics]


def _run_loss(
    model: Network, weights: tuple, measured: Any, batch: tuple, *, training: bool
) -> tuple[Any, dict[str, Any]]:
    """The loss of a batch, and what came with it and is needed afterwards."""
    x, y, w = batch
    op = "train_step" if training else "test_step"
    with _values_in_place(model, weights, measured, training, op) as (run, after):
        outputs = run.copy._call_arrays((x,), {})
        arguments = {"x": x, "y": y, "y_pred": outputs, "sample_weight": w}
        loss = own_loss(run.copy.compute_loss, training, **arguments)
        _track_losses(model, run.ctx.parts, outputs)
    return loss, {
        "outputs": outputs,
        "masks": run.ctx.attachments(outputs)[1],
        "rest": run.rest,
        "metrics": after,
    }


def _update_metrics(
    model: Network, trained: Any, loss: Any, seen: dict, batch: tuple, *, training: bool
) -> tuple[dict[str, Any], list]:
    """The logs after a batch, and the metrics' variables."""
    x, y, w = batch
    rows = jax.tree.leaves(x)[0].shape[0]
    trackers, weights = _loss_trackers(model), (trained, seen["rest"])
    work = _values_in_place(
        model, weights, seen["metrics"], training, "compute_metrics"
    )
    with work as (run, after):
        run.ctx.attach(seen["outputs"], seen["masks"])
        trackers["loss"].update_state(loss, sample_weight=rows)
        logs = run.copy.compute_metrics(x, y, seen["outputs"], w)
    return logs, after


@contextlib.contextmanager
def _values_in_place(
    model: Network, weights: tuple, measured: Any, training: bool, op: str
) -> Iterator[tuple[Bound, list]]:
    """A block with a copy of the model that holds these weights.

    Its metrics hold ``measured`` there; the list has their new values after it.
    """
    beside = [*_loss_trackers(model).values()]
    holds = holding(model.metrics, measured, beside=beside)
    with bind_arrays(model, *weights, training=training, op=op) as run, holds as after:
        yield run, after


def _track_losses(model: Network, parts: dict[str, Any], outputs: Any) -> None:
    """Takes the losses of several outputs into their means, as ``CompileLoss``."""
    trackers, rows = _loss_trackers(model), jax.tree.leaves(outputs)[0].shape[0]
    for name, value in parts.items():
        mean = jax.lax.stop_gradient(value)
        trackers[name].update_state(mean, sample_weight=rows)


def _loss_trackers(model: Network) -> dict[str, Any]:
    return model._training_session.loss_trackers(
        require_trainer(model, "train_step").preparer.objective
    )


def _ends(model: Network) -> Any:
    """For each output the function that ends it, if that is known."""
    traced = inspect_call(model)
    return None if traced is None else last_functions(traced[0])
