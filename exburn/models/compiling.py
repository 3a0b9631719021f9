"""``compile``, and what a model holds for training."""

from __future__ import annotations

import warnings
from typing import Any

from exburn import optimizers
from exburn.callbacks.contract import History
from exburn.core.batch_independence import is_foreign
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, NotCompiledError
from exburn.metrics import Mean
from exburn.models.options import set_options, warm_up, with_accuracy
from exburn.module.building import reseed
from exburn.module.traversal import held_metrics
from exburn.module.variable import OwnState
from exburn.runtime.device import device_of
from exburn.training.objective.compile_metrics import CompileMetrics
from exburn.training.objective.objective import Objective
from exburn.training.overrides import overrides
from exburn.training.trainer import Trainer

__all__ = ["Compiling"]


class _Run:
    """What a model holds for training: nothing of it is part of the module's state."""

    def __init__(self):
        self.settings: dict[str, Any] | None = None
        self.trainer: Trainer | None = None
        self.optimizer: Any = None
        self.loss: Any = None
        self.history: History | None = None
        self.stop = {"training": False, "evaluating": False, "predicting": False}
        self.check_numerics = True
        self.compile_metrics: CompileMetrics | None = None
        self._trackers: dict[str, Mean] = {}
        self.variants: dict[Any, Any] = {}
        self.warmup: Any = None
        self.device: Any = None
        self.output_axes: Any = None

    def loss_trackers(self, objective: Objective) -> dict[str, Mean]:
        """A metric for the loss and, if there are several, for each of them."""
        names = ["loss", *objective.parts]
        return {n: self._trackers.setdefault(n, Mean(name=n)) for n in names}

    def reset(self) -> None:
        """Forgets everything compiled; settings stay."""
        if self.trainer is not None:
            self.trainer.forget()


def _stop(kind: str) -> Any:
    def get(self) -> bool:
        return self._run.value.stop[kind]

    def put(self, value: bool) -> None:
        self._run.value.stop[kind] = bool(value)

    return property(get, put, doc=f"Set to True in a callback to end {kind}.")


def _count_or_auto(name: str, value: Any) -> Any:
    return value if value == "auto" else check_count("compile", name, value)


def _is_eager(value: Any, name: str = "run_eagerly") -> bool:
    """What a value of ``run_eagerly`` or ``jit_compile`` says; none or "auto": no."""
    if value is None or (name == "jit_compile" and value == "auto"):
        return False
    if value not in (True, False):
        raise ArgumentError(
            "compile", f"{name} must be True or False, received {value!r}"
        )
    return bool(value) is (name == "run_eagerly")


class Compiling:
    """The settings of training; mixed into ``Model``."""

    _run: OwnState
    built: bool
    own_compute_loss: Any
    to_device: Any
    stop_training = _stop("training")
    stop_evaluating = _stop("evaluating")
    stop_predicting = _stop("predicting")

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls, *args, **kwargs)
        object.__setattr__(self, "_run", OwnState(_Run()))
        return self

    def compile(
        self,
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
        nesterov: bool | None = None,
        warmup: Any = None,
        accuracy: bool = False,
        device: Any = None,
        unroll: int | str = "auto",
        join_batches: int | str = "auto",
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
            nesterov: Nesterov momentum, for SGD: its own, or 0.9 if it has none.
            warmup: Epochs of a linear rise to the learning rate, or
                ``(epochs, start, target)``.
            accuracy: Whether accuracy is among the metrics.
            device: ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or a JAX device; JAX's default.
            unroll: Steps compiled into one turn of a chunk's loop; ``"auto"`` chooses.
            join_batches: How many batches of arrays ``evaluate`` and ``predict`` run as
                one, where the results are the same; ``"auto"`` chooses, 1: never.

        Raises:
            UnknownNameError: An unknown optimizer, loss or metric.
            ArgumentError: An argument that can never work.
            BusyError: The model is being trained.
        """
        self._require_idle("compile")
        steps_per_execution = _count_or_auto("steps_per_execution", steps_per_execution)
        unroll = _count_or_auto("unroll", unroll)
        join_batches = _count_or_auto("join_batches", join_batches)
        eager = _is_eager(run_eagerly) or _is_eager(jit_compile, "jit_compile")
        if seed is not None:
            seed = check_count("compile", "seed", seed, least=0)
            if seed >= 2**32:
                raise ArgumentError(
                    "compile", f"seed must be below 2**32, received {seed}"
                )
        metrics = with_accuracy(metrics) if accuracy else metrics
        objective = Objective(loss, loss_weights, metrics, weighted_metrics)
        chosen, device = optimizers.get(optimizer), device_of(device, "compile")
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
        if not overrides(self, "train_step"):
            _refuse_own_apply(chosen)
        run = self._run.value
        before = run.trainer
        run.optimizer, run.variants = chosen, {}
        run.loss = run.loss if loss is None else loss
        run.warmup = warm_up(warmup, "compile")
        run.settings = {
            "optimizer": optimizer,
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
            "seed": seed,
            "auto_scale_loss": bool(auto_scale_loss),
        }
        run.check_numerics = check_numerics
        if seed is not None and self.built:
            reseed(self, seed)
        run.trainer = Trainer(
            self,
            objective=objective,
            optimizer=run.optimizer,
            seed=seed,
            eager=eager,
            auto_scale_loss=bool(auto_scale_loss),
            steps_per_execution=steps_per_execution,
            unroll=unroll,
            join_batches=join_batches,
        )
        if before is not None:
            run.trainer.take_over(before)
        if device is not None:
            self.to_device(device)

    @property
    def compiled(self) -> bool:
        """Whether ``compile`` was called."""
        return self._run.value.settings is not None

    @property
    def optimizer(self):
        """The optimizer; its ``learning_rate`` can be read and set, also in hooks.

        It can be replaced, by one whose state begins anew.
        """
        trainer = self._run.value.trainer
        return None if trainer is None else trainer.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        self._require_idle("optimizer")
        old, run = self._trainer("optimizer"), self._run.value
        run.optimizer, run.variants = optimizers.get(optimizer), {}
        run.settings["optimizer"] = optimizer
        run.trainer = old.with_optimizer(run.optimizer)

    @property
    def loss(self):
        """The loss as given to ``compile``, or what a class of one's own keeps here.

        As in Keras, setting it does not change what the model is compiled for.
        """
        return self._run.value.loss

    @loss.setter
    def loss(self, loss: Any) -> None:
        self._run.value.loss = loss
        if self.compiled and self.own_compute_loss is None:
            warnings.warn(
                "model.loss was set, but the model trains with the loss it was "
                "compiled with: model.compile(..., loss=...)",
                stacklevel=3,  # past __setattr__
            )

    @property
    def loss_weights(self) -> Any:
        """Factor of each output's loss; set, they hold from the next chunk on.

        Raises:
            NotCompiledError: They are set before ``compile``.
            ArgumentError: They are not finite numbers, or too many.
        """
        settings = self._run.value.settings
        return None if settings is None else settings["loss_weights"]

    @loss_weights.setter
    def loss_weights(self, loss_weights: Any) -> None:
        trainer = self._trainer("loss_weights")
        trainer.objective.loss_weights = loss_weights
        self._run.value.settings["loss_weights"] = loss_weights

    @property
    def history(self) -> History | None:
        """The record of the last ``fit``."""
        return self._run.value.history

    @history.setter
    def history(self, history: History) -> None:
        self._run.value.history = history

    @property
    def run_eagerly(self) -> bool:
        """Whether it runs operation by operation, to debug with prints; can be set."""
        trainer = self._run.value.trainer
        return trainer is not None and trainer.eager

    @run_eagerly.setter
    def run_eagerly(self, value: bool) -> None:
        self._require_idle("run_eagerly")
        self._trainer("run_eagerly").eager = _is_eager(value)

    @property
    def jit_compile(self) -> bool:
        """The opposite of ``run_eagerly``."""
        return not self.run_eagerly

    @jit_compile.setter
    def jit_compile(self, value: bool | str) -> None:
        self.run_eagerly = _is_eager(value, "jit_compile")

    @property
    def metrics_names(self) -> list[str]:
        """Names of the values that ``evaluate`` returns; none before ``compile``.

        Keras lists the names of ``metrics``.
        """
        trainer = self._run.value.trainer
        return [] if trainer is None else trainer.objective.names

    @property
    def metrics(self) -> list[Any]:
        """Trackers of the loss, the metrics of ``compile``, those of layers; may be
        overridden.

        The metrics of ``compile`` are one, ``compile_metrics``, as in Keras: its
        ``metrics`` are those that were given, and ``result()`` is a dict.
        """
        run = self._run.value
        if run.trainer is None:
            return []
        objective = run.trainer.objective
        loss, *parts = run.loss_trackers(objective).values()
        given = [meter.metric for meter in objective.meters]
        own = [m for m in held_metrics(self) if not any(m is one for one in given)]
        compiled = self._compile_metrics
        return [loss, *([] if compiled is None else [compiled]), *parts, *own]

    @property
    def _compile_metrics(self) -> CompileMetrics | None:
        """Keras' name of the metrics of ``compile``."""
        run = self._run.value
        if run.trainer is None or not run.trainer.objective.has_metrics:
            return None
        if run.compile_metrics is None:
            run.compile_metrics = CompileMetrics(self)
        return run.compile_metrics

    @property
    def _loss_tracker(self) -> Any:
        """Keras' name of the first metric, for steps of one's own."""
        run = self._run.value
        return run.trainer and run.loss_trackers(run.trainer.objective)["loss"]

    @property
    def trace_counts(self) -> dict[str, int]:
        """How often each program was traced: ``{"train": 1, "evaluate": 1, …}``."""
        trainer = self._run.value.trainer
        return {} if trainer is None else dict(trainer.trace_counts)

    def _require_idle(self, op: str) -> None:
        """Raises a BusyError if the model is being trained, also in its hooks."""
        if (trainer := self._run.value.trainer) is not None:
            trainer.check_free(op, train=True)

    def _require_hook(self, op: str) -> None:
        """Raises a BusyError if the model is being trained, but for its hooks."""
        if (trainer := self._run.value.trainer) is not None:
            trainer.check_free(op)

    def _trainer(self, op: str) -> Trainer:
        trainer = self._run.value.trainer
        if trainer is None or self._run.value.settings is None:
            raise NotCompiledError(
                op,
                "the model must be compiled first",
                hint='model.compile(optimizer="adam", loss="cross_entropy")',
            )
        return trainer


def _refuse_own_apply(optimizer: Any) -> None:
    """Training computes an optimizer's ``update``; what is around it would be lost."""
    for name in ("apply", "stateless_apply"):
        if is_foreign(getattr(optimizer, name)):
            raise ArgumentError(
                "compile",
                f"fit would not call {type(optimizer).__name__}.{name}: it computes "
                "the optimizer's rule, which is a pure function",
                hint="Override transformation(self, learning_rate, count), derive from "
                "Optimizer and write update_step, or call it in a train_step.",
            )
