"""``compile``, and what a model holds for training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from exburn import optimizers
from exburn.core.batch_independence import is_foreign
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, unknown_name
from exburn.models.network import Network
from exburn.models.options import (
    set_options,
    warm_up,
    weigh_batches,
    with_accuracy,
)
from exburn.models.private_training import check_private_model
from exburn.models.session import require_idle, require_trainer
from exburn.module.building import reseed
from exburn.module.traversal import held_metrics
from exburn.runtime.blocks.rematerializing import KINDS
from exburn.runtime.device import device_of
from exburn.runtime.sharding.strategies import Distribution, make_distribution
from exburn.training.objective.compile_metrics import CompileMetrics
from exburn.training.objective.likelihood import likelihood_loss
from exburn.training.objective.objective import Objective
from exburn.training.overrides import overrides
from exburn.training.privacy.accounting import Privacy
from exburn.training.trainer import Trainer


def is_eager(value: Any, name: str = "run_eagerly") -> bool:
    """What a value of ``run_eagerly`` or ``jit_compile`` says; none or "auto": no."""
    if value is None or (name == "jit_compile" and value == "auto"):
        return False
    if value not in (True, False):
        raise ArgumentError(
            "compile", f"{name} must be True or False, received {value!r}"
        )
    return bool(value) is (name == "run_eagerly")


def compile(
    self: Any,
    optimizer: Any = "rmsprop",
    loss: Any = None,
    loss_weights: Any = None,
    metrics: Any = None,
    weighted_metrics: Any = None,
    run_eagerly: bool = False,
    steps_per_execution: int | str = "auto",
    jit_compile: bool | str = "auto",
    auto_scale_loss: bool = True,
    *,
    seed: int | None = None,
    check_numerics: bool = True,
    learning_rate: float | None = None,
    lr_schedule: Any = None,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate_gradients: int | None = None,
    accumulate: str | None = None,
    nesterov: bool | None = None,
    warmup: Any = None,
    accuracy: bool = False,
    device: Any = None,
    mesh: Any = None,
    layout: Any = None,
    unroll: int | str = "auto",
    join_batches: int | str = "auto",
    remat: str | None = None,
    privacy: Privacy | None = None,
) -> None:
    """Sets what the model is trained with. Nothing is compiled yet.

    Args:
        optimizer: A name, an ``exburn.optimizers`` object, or any optax
            transformation. The object that the model had goes on with its state.
        loss: A name, a ``Loss``, any function of ``(y_true, y_pred)``, or a list or
            dict of these by output.
        loss_weights: Factor of each output's loss.
        metrics: Names, ``Metric`` objects or functions; by output in a dict.
        weighted_metrics: The same, weighted by ``sample_weight``.
        run_eagerly: Operation by operation, to debug with prints.
        steps_per_execution: Steps in one compiled chunk; ``"auto"`` chooses.
        jit_compile: False is ``run_eagerly=True``.
        auto_scale_loss: Whether a model that computes in float16 gets a
            ``LossScaleOptimizer`` around its optimizer.
        seed: Seed of the weights nobody has changed yet, of shuffling, dropout …
        check_numerics: Whether data are checked for NaN and infinity.
        learning_rate: Instead of the optimizer's own.
        lr_schedule: A schedule, or ExBurn's tuple: ``("step", base, k, gamma)``,
            ``("exponential", base, gamma)``, ``("cosine", base, min)``.
        weight_decay: L2 decay, ``gradient += weight_decay * weight``, after
            clipping; the decoupled kind is an argument of the optimizer.
        clip_norm: Largest norm of all gradients together.
        clip_value: Largest absolute value of a gradient's element, after that.
        accumulate_gradients: Batches whose mean gradient makes one update.
        accumulate: What is divided by what in the loss of a step. ``"means"``, as in
            Keras: the losses by their number, however they are weighted, and the
            batches of ``accumulate_gradients`` count alike. ``"tokens"``: the weighted
            losses by their weights, once, over all batches and devices, so that
            several small batches train as one large one; ``History`` and metrics are
            means over tokens, too. By default ``"means"``, but for a decoder that is
            compiled without a loss, and for chats.
        nesterov: Nesterov momentum, for SGD: its own, or 0.9 if it has none.
        warmup: Epochs of a linear rise to the learning rate, or
            ``(epochs, start, target)``.
        accuracy: Whether accuracy is among the metrics.
        device: ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or a JAX device; JAX's default.
        mesh: What several devices divide: ``"data"`` the batch, ``"fsdp"`` weights and
            optimizer, too; or sizes by axis names, ``{"data": 2, "model": 4}``
            (``"context"`` divides the positions of sequences), a ``DeviceMesh``, or a
            ``Distribution``. By default that of
            ``distribution.set_distribution``, if there is one.
        layout: Rules for weights along the other axes: a ``LayoutMap``, or a dict;
            ``distribution.tensor_parallel(model)`` has some ready.
        unroll: Steps compiled into one turn of a chunk's loop; ``"auto"`` chooses.
        join_batches: How many batches of arrays ``evaluate`` and ``predict`` run as
            one, where the results are the same; ``"auto"`` chooses, 1: never.
        remat: ``"blocks"``: of equal blocks in a row (four or more) only what goes into
            them is kept for the gradient, and the rest is computed again; where devices
            divide positions, what attention gives is kept as well.
            ``"activations"``: the results of their matrix products, convolutions and
            attention are kept, too. On a GPU ``"offload"``: what goes into blocks waits
            in the host's memory. ``model.remat`` has single layers computed again.
        privacy: An ``exburn.Privacy``: ``fit`` trains by DP-SGD, so that the weights
            say little of any single row. Losses and metrics are logged as they are:
            they are not private.

    Raises:
        UnknownNameError: An unknown optimizer, loss or metric.
        ArgumentError: An argument that can never work.
        LayoutError: There are no such devices, or nothing uses an axis of the mesh.
        BusyError: The model is being trained.
    """
    require_idle(self, "compile")
    lengths = {"steps_per_execution": steps_per_execution, "unroll": unroll}
    lengths["join_batches"] = join_batches
    lengths = {name: _check_steps(name, value) for name, value in lengths.items()}
    eager = is_eager(run_eagerly) or is_eager(jit_compile, "jit_compile")
    _check_remat(self, remat, eager)
    seed = _check_seed(seed)
    metrics = with_accuracy(metrics) if accuracy else metrics
    parts = _parts_of(self, loss, loss_weights, metrics, weighted_metrics, accumulate)
    objective = objective_of(parts)
    chosen, device = _optimizer_for(self, optimizer), device_of(device, "compile")
    distribution = _distribution_of(mesh, layout, device)
    others = {"run_eagerly": eager, "remat": remat}
    _check_privacy(self, privacy, chosen, objective, accumulate_gradients, others)
    set_options(
        chosen,
        learning_rate=learning_rate,
        lr_schedule=lr_schedule,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        clip_value=clip_value,
        accumulate_gradients=accumulate_gradients,
        nesterov=nesterov,
    )
    weigh_batches(chosen, objective.by_tokens)
    run, before = self._training_session, self._training_session.trainer
    run.optimizer, run.variants, run.check_numerics = chosen, {}, check_numerics
    run.loss = run.loss if parts["loss"] is None else parts["loss"]
    run.warmup = warm_up(warmup, "compile")
    scaling = {"auto_scale_loss": bool(auto_scale_loss)}
    run.settings = {"optimizer": optimizer, **parts, "seed": seed, **scaling}
    run.hold_privacy(privacy)
    run.divide(distribution)
    _reseed(self, seed)
    run.trainer = Trainer(
        self,
        objective=objective,
        optimizer=run.optimizer,
        seed=seed,
        eager=eager,
        remat=remat,
        private=privacy is not None,
        **scaling | lengths,
    )
    if before is not None:
        run.trainer.take_over(before)
    if device is not None:
        self.to_device(device)


def _check_remat(model: Network, remat: Any, eager: bool) -> None:
    """Raises unless blocks can be computed again so."""
    if remat is None:
        return
    if remat not in KINDS:
        raise unknown_name("remat", remat, KINDS, op="compile")
    reason = None
    if eager:
        reason = "operation by operation there is no program of blocks"
    elif overrides(model, "train_step"):
        reason = "the model's train_step takes its gradients itself"
    elif remat == "offload" and jax.default_backend() != "gpu":
        reason = (
            "'offload' moves activations from a GPU to the host's memory, and there is "
            "no GPU"
        )
    if reason is not None:
        raise ArgumentError(
            "compile",
            f"remat={remat!r} cannot be had: {reason}",
            hint="remat='blocks', or none.",
        )


def _check_privacy(
    model: Network,
    privacy: Any,
    optimizer: Any,
    objective: Objective,
    group: Any,
    others: dict[str, Any],
) -> None:
    """Raises unless training can be private, where it is to be.

    Args:
        group: ``accumulate_gradients``.
        others: Further options of ``compile``, which must be off.
    """
    if privacy is None:
        return
    own = own_step(model)
    refused = {
        f"{own} of the model's own": own is not None,
        "accumulate='tokens'": objective.by_tokens,
        "a loss of log-probabilities": likelihood_loss(objective.losses) is not None,
        "accumulate_gradients": group not in (None, 1),
        **{name: value not in (None, False) for name, value in others.items()},
    }
    check_private_model(model, privacy, optimizer, refused)


def count_by_tokens(model: Network) -> None:
    """Trains by tokens from now on, as ``compile(accumulate="tokens")`` does.

    Nothing changes where ``compile`` was given ``accumulate``, nor for a model that
    computes its loss in a step of its own. What a step learns by
    itself (``fit`` of chats and documents) calls it before anything is traced.
    """
    run = model._training_session
    if run.settings.get("accumulate") is not None or own_step(model):
        return
    _loss_of(model, run.settings["loss"], "tokens")
    run.settings["accumulate"] = "tokens"
    weigh_batches(run.optimizer, True)
    run.preparer.aim(objective_of(run.settings))
    run.holder.refit_state()


def objective_of(settings: Mapping[str, Any]) -> Objective:
    """The losses and metrics of what ``compile`` was given, by the arguments' names."""
    names = "loss", "loss_weights", "metrics", "weighted_metrics"
    by_tokens = settings.get("accumulate") == "tokens"
    return Objective(*(settings[name] for name in names), by_tokens=by_tokens)


def list_metrics(model: Network) -> list[Any]:
    """Trackers of the loss, the metrics of ``compile``, those of layers."""
    run = model._training_session
    if run.trainer is None:
        return []
    objective = run.trainer.preparer.objective
    loss, *parts = run.loss_trackers(objective).values()
    listed = [meter.metric for meter in objective.meters]
    own = [m for m in held_metrics(model) if not any(m is one for one in listed)]
    compiled = compile_metrics(model)
    return [loss, *([] if compiled is None else [compiled]), *parts, *own]


def compile_metrics(model: Network) -> CompileMetrics | None:
    """The metrics of ``compile`` as one, as in Keras; ``None`` without any."""
    run = model._training_session
    if run.trainer is None or not run.trainer.preparer.objective.has_metrics:
        return None
    if run.compile_metrics is None:
        run.compile_metrics = CompileMetrics(model)
    return run.compile_metrics


def replace_optimizer(model: Network, optimizer: Any) -> None:
    """Trains with another optimizer, whose state begins anew."""
    old, run = require_trainer(model, "optimizer"), model._training_session
    run.optimizer, run.variants = optimizers.get(optimizer), {}
    run.settings["optimizer"] = optimizer
    run.trainer = old.with_optimizer(run.optimizer)


def _parts_of(
    model: Any,
    loss: Any,
    loss_weights: Any,
    metrics: Any,
    weighted_metrics: Any,
    accumulate: str | None,
) -> dict[str, Any]:
    """The arguments of ``compile`` that say what is minimized and measured."""
    loss, accumulate = _loss_of(model, loss, accumulate)
    parts = {
        "loss": loss,
        "loss_weights": loss_weights,
        "metrics": metrics,
        "weighted_metrics": weighted_metrics,
    }
    return parts if accumulate is None else parts | {"accumulate": accumulate}


_ACCUMULATE = "means", "tokens"
_OWN_STEPS = "train_step", "test_step", "compute_loss_and_updates", "compute_metrics"


def _loss_of(model: Any, loss: Any, accumulate: str | None) -> tuple[Any, str | None]:
    """The loss and ``accumulate``, a decoder's own where nothing was given."""
    if accumulate not in (None, *_ACCUMULATE):
        raise ArgumentError(
            "compile",
            f"accumulate must be 'means' or 'tokens', received {accumulate!r}",
        )
    own = own_step(model)
    if loss is None and own is None and hasattr(model, "default_loss"):
        loss, accumulate = model.default_loss(), accumulate or "tokens"
    if accumulate != "tokens":
        return loss, accumulate
    if own is not None:
        raise ArgumentError(
            "compile",
            f"accumulate='tokens' divides the loss of compile, and the model computes "
            f"its own in {own}",
            hint=f"Divide by the tokens in {own}, and leave out accumulate.",
        )
    if loss is None:
        raise ArgumentError(
            "compile",
            "accumulate='tokens' divides a loss by its tokens, and there is no loss",
            hint="Pass loss=, for example 'sparse_categorical_crossentropy'.",
        )
    return loss, accumulate


def own_step(model: Any) -> str | None:
    """The method in which a model's class computes its loss by itself."""
    own = next((name for name in _OWN_STEPS if overrides(model, name)), None)
    if own is None and getattr(model, "own_compute_loss", None) is not None:
        return "compute_loss"
    return own


def _check_steps(name: str, value: int | str) -> Any:
    return value if value == "auto" else check_count("compile", name, value)


def _check_seed(seed: int | None) -> int | None:
    if seed is None:
        return None
    seed = check_count("compile", "seed", seed, least=0)
    if seed >= 2**32:
        raise ArgumentError("compile", f"seed must be below 2**32, received {seed}")
    return seed


def _distribution_of(mesh: Any, layout: Any, device: Any) -> Distribution | None:
    """The distribution that ``mesh`` and ``layout`` name, if there is one."""
    if mesh is None and layout is None:
        return None
    distribution = make_distribution(mesh, layout)
    if device is not None:
        raise ArgumentError(
            "compile", "device= is one device, mesh= are several: pass one of them"
        )
    return distribution


def _reseed(model: Network, seed: int | None) -> None:
    """Draws weights that nobody has changed, if a seed was given."""
    if seed is not None and model.built:
        reseed(model, seed)


def _optimizer_for(model: Network, optimizer: Any) -> Any:
    """The optimizer, of which training computes ``update``, not what is around it."""
    optimizer = optimizers.get(optimizer)
    if overrides(model, "train_step"):
        return optimizer
    for name in ("apply", "stateless_apply"):
        if is_foreign(getattr(optimizer, name)):
            raise ArgumentError(
                "compile",
                f"fit would not call {type(optimizer).__name__}.{name}: it computes "
                "the optimizer's rule, which is a pure function",
                hint="Override transformation(self, learning_rate, count), derive from "
                "Optimizer and write update_step, or call it in a train_step.",
            )
    return optimizer
