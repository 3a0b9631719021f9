"""compile, fit, evaluate and predict: Keras' signatures in front of the Trainer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from jax import default_device

from exburn import config, optimizers
from exburn.building import reseed
from exburn.callback import CallbackList, History
from exburn.callbacks import ProgressBar
from exburn.dataset import (
    ArrayDataset,
    StreamDataset,
    as_dataset,
    as_validation_dataset,
    split,
)
from exburn.errors import ArgumentError, DataError, NotCompiledError
from exburn.metrics import Mean
from exburn.models.arguments import (
    BATCH,
    check_count,
    check_enough,
    check_form,
    check_rows,
    check_verbose,
    first_batch,
    logs_as,
    positive,
    validation_epochs,
)
from exburn.models.averaging import Averaging
from exburn.models.batches import Batches
from exburn.models.freezing import Freezing
from exburn.models.inspection import Inspection, memory_errors
from exburn.models.keeping import Keeping
from exburn.models.options import (
    OptimizerOptions,
    device_of,
    set_options,
    warm_up,
    with_accuracy,
)
from exburn.models.own_steps import OwnSteps
from exburn.models.reporting import Reporting
from exburn.models.watching import Watching
from exburn.models.weighting import class_weights
from exburn.training.feed import count_steps
from exburn.training.objective import Objective
from exburn.training.resume import find, load_weights
from exburn.training.trainer import Trainer
from exburn.weights import Static

__all__ = ["Training"]


class _Run:
    """What a model holds for training: nothing of it is part of the module's state."""

    def __init__(self):
        self.settings: dict[str, Any] | None = None
        self.trainer: Trainer | None = None
        self.optimizer: Any = None
        self.history: History | None = None
        self.stop = {"training": False, "evaluating": False, "predicting": False}
        self.check_numerics = True
        self.loss_tracker = Mean(name="loss")
        self.variants: dict[Any, Any] = {}
        self.warmup: Any = None
        self.device: Any = None
        self.output_axes: Any = None

    def reset(self) -> None:
        """Forgets everything compiled; settings stay."""
        if self.trainer is not None:
            self.trainer.forget()


class Training(
    OwnSteps,
    Batches,
    Keeping,
    Freezing,
    Averaging,
    Inspection,
    OptimizerOptions,
    Reporting,
    Watching,
):
    """The part of a model that trains; mixed into ``Model``."""

    _run: Static
    _require_trainable: Any
    stop_training: bool

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls, *args, **kwargs)
        object.__setattr__(self, "_run", Static(_Run()))
        return self

    # ------------------------------------------------------------------ compile
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
    ) -> None:
        """Sets what the model is trained with. Nothing is compiled yet.

        Args:
            optimizer: A name, an ``exburn.optimizers`` object, or any optax
                transformation.
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
            nesterov: Nesterov momentum, for SGD.
            warmup: Epochs of a linear rise to the learning rate, or
                ``(epochs, start, target)``.
            accuracy: Whether accuracy is among the metrics.
            device: ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or a JAX device; JAX's default.

        Raises:
            UnknownNameError: An unknown optimizer, loss or metric.
            ArgumentError: An argument that can never work.
        """
        if steps_per_execution != "auto":
            positive("compile", "steps_per_execution", steps_per_execution)
        if jit_compile not in ("auto", True, False):
            raise ArgumentError(
                "compile",
                f"jit_compile must be 'auto', True or False, received {jit_compile!r}",
            )
        if seed is not None:
            check_count("compile", "seed", seed)
            if seed >= 2**32:
                raise ArgumentError(
                    "compile", f"seed must be below 2**32, received {seed}"
                )
            seed = int(seed)
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
        run = self._run.value
        run.optimizer, run.variants = chosen, {}
        run.warmup = warm_up(warmup, "compile")
        run.settings = {
            "optimizer": optimizer,
            "loss": loss,
            "loss_weights": loss_weights,
            "metrics": metrics,
            "weighted_metrics": weighted_metrics,
            "seed": seed,
        }
        run.check_numerics = check_numerics
        if seed is not None and self.built:
            reseed(self, seed)
        run.trainer = Trainer(
            self,
            objective=objective,
            optimizer=run.optimizer,
            seed=seed,
            steps_per_execution=steps_per_execution,
            eager=bool(run_eagerly) or jit_compile is False,
            auto_scale_loss=bool(auto_scale_loss),
        )
        if device is not None:
            self.to_device(device)

    @property
    def compiled(self) -> bool:
        """Whether ``compile`` was called."""
        return self._run.value.settings is not None

    @property
    def optimizer(self):
        """The optimizer; its ``learning_rate`` can be read and set at any time."""
        trainer = self._run.value.trainer
        return None if trainer is None else trainer.optimizer

    @property
    def loss(self):
        """The loss as given to ``compile``."""
        return (self._run.value.settings or {}).get("loss")

    @property
    def history(self) -> History | None:
        """The record of the last ``fit``."""
        return self._run.value.history

    @property
    def metrics_names(self) -> list[str]:
        """Names of the values that ``evaluate`` returns."""
        return self._trainer("metrics_names").objective.names

    @property
    def metrics(self) -> list[Any]:
        """The loss tracker and the metrics of ``compile``; may be overridden."""
        run = self._run.value
        if run.trainer is None:
            return []
        return [run.loss_tracker, *(m.metric for m in run.trainer.objective.meters)]

    @property
    def trace_counts(self) -> dict[str, int]:
        """How often each program was traced: ``{"train": 1, "evaluate": 1, …}``."""
        trainer = self._run.value.trainer
        return {} if trainer is None else dict(trainer.trace_counts)

    def _trainer(self, op: str) -> Trainer:
        trainer = self._run.value.trainer
        if trainer is None or self._run.value.settings is None:
            raise NotCompiledError(
                op,
                "the model must be compiled first",
                hint='model.compile(optimizer="adam", loss="cross_entropy")',
            )
        return trainer

    # ------------------------------------------------------------------ fit
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool | str = True,
        class_weight: Mapping | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | list[int] = 1,
        *,
        lr_schedule: Any = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate_gradients: int | None = None,
        nesterov: bool | None = None,
        warmup: Any = None,
        accuracy: bool = False,
        profile: bool = False,
        resume: str | os.PathLike[str] | None = None,
        resident: bool | None = None,
    ) -> History:
        """Trains for a number of epochs.

        Args:
            x: Arrays (nested in lists or dicts), a data frame, or a loader of batches.
            y: Targets; part of the batches when ``x`` is a loader.
            batch_size: Rows of a step; 32 by default.
            epochs: Epoch number to stop at.
            verbose: 0 silent, 1 progress bar, 2 a line per epoch.
            callbacks: Callbacks, or functions called with each epoch's logs.
            validation_split: Fraction of the rows, taken from the end, to validate on.
            validation_data: ``(x, y)``, ``(x, y, sample_weight)`` or a loader.
            shuffle: Whether rows are shuffled; ``"batch"`` shuffles whole batches.
            class_weight: ``{class: weight}``.
            sample_weight: Weight of each row.
            initial_epoch: Epoch number to begin with.
            steps_per_epoch: Steps of an epoch, for endless loaders.
            validation_steps: The same for validation.
            validation_batch_size: Rows of a validation step.
            validation_freq: Validate every so many epochs, or after the listed ones.
            lr_schedule, weight_decay, clip_norm, clip_value, accumulate_gradients,
                nesterov, warmup: As for ``compile``, in this fit alone.
            accuracy: Adds accuracy to the metrics, for good.
            profile: Records in ``history.profile`` what each epoch's time went to.
            resume: A checkpoint, or a folder of them, to go on from; ``"auto"`` for
                the newest intact one of the callbacks, if there is any. ``epochs``
                counts those before it, too.
            resident: Whether arrays stay on the device for the whole run; by default if
                they fit into a quarter of its free memory.

        Returns:
            The History of the epochs; ``history.plot()`` draws it.

        Raises:
            NotCompiledError: ``compile`` was not called.
            DataError, ShapeError, TargetError: The data do not fit the model.
            CheckpointError: No intact checkpoint, or one of another model.
        """
        trainer = self._trainer("fit")
        batch_size = int(positive("fit", "batch_size", batch_size, BATCH))
        check_count("fit", "epochs", epochs)
        check_count("fit", "initial_epoch", initial_epoch)
        steps_per_epoch = positive("fit", "steps_per_epoch", steps_per_epoch, None)
        validation_steps = positive("fit", "validation_steps", validation_steps, None)
        validation_batch_size = positive(
            "fit", "validation_batch_size", validation_batch_size, None
        )
        verbose = check_verbose("fit", verbose)
        if shuffle not in (True, False, "batch"):
            raise ArgumentError(
                "fit", f"shuffle must be True, False or 'batch', received {shuffle!r}"
            )
        if resident not in (None, True, False):
            raise ArgumentError(
                "fit", f"resident must be True, False or None, received {resident!r}"
            )
        validates = validation_epochs(validation_freq)
        epochs = min(epochs, config.max_epochs() or epochs)
        dataset = as_dataset(x, y, sample_weight)
        if resident and not isinstance(dataset, ArrayDataset):
            raise ArgumentError(
                "fit",
                "only arrays can stay on the device, received a loader of batches",
                hint="Leave out resident=True, or give arrays.",
            )
        validation = None
        if validation_data is not None:
            validation = as_validation_dataset(
                validation_data, op="fit (validation data)"
            )
        elif validation_split:
            dataset, validation = split(dataset, validation_split)
        if class_weight is not None:
            dataset = class_weights(dataset, class_weight)
        check_enough("steps_per_epoch", steps_per_epoch, dataset, batch_size)
        if (limit := config.max_steps_per_epoch()) is not None:
            known = count_steps(dataset, batch_size, steps_per_epoch)
            steps_per_epoch = limit if known is None else min(known, limit)
        if accuracy:
            self._add_accuracy()
        warmup = warm_up(warmup, "fit") or self._run.value.warmup
        user = CallbackList(callbacks)
        if validation is not None:
            with _named("in the validation data"):
                self._prepare("fit (validation data)", validation, like=dataset)
        self._prepare("fit", dataset, train=True)
        history = History()
        history.seed = trainer.seed
        bars = [ProgressBar(verbose)] if verbose else []
        callbacks = CallbackList(
            [*([warmup] if warmup else []), *user.callbacks, history, *bars],
            model=self,
            params={
                "epochs": epochs,
                "steps": count_steps(dataset, batch_size, steps_per_epoch),
                "batch_size": batch_size,
                "samples": getattr(dataset, "size", None),
                "verbose": verbose,
                "validation": validation is not None,
                "metrics": trainer.names,
            },
        )
        self._run.value.history = history
        options = self.options(
            lr_schedule=lr_schedule,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            clip_value=clip_value,
            accumulate_gradients=accumulate_gradients,
            nesterov=nesterov,
        )
        memory = memory_errors(self, "fit", dataset, batch_size)
        with self._on_device(), memory, options, _exits(callbacks):
            trainer.fit(
                dataset,
                batch_size=batch_size,
                epochs=epochs,
                initial_epoch=initial_epoch,
                shuffle=shuffle,
                steps=steps_per_epoch,
                validation=validation,
                validation_batch_size=validation_batch_size,
                validation_steps=validation_steps,
                validation_epochs=validates,
                callbacks=callbacks,
                owner=self,
                resume=find(resume, callbacks),
                resident=resident,
            )
        if profile:
            history.profile = trainer.timing.epochs
        return history

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Takes the weights of a checkpoint of a run; to go on with it, see ``fit``.

        Args:
            checkpoint: A folder of checkpoints (the newest intact one counts), or one.

        Raises:
            NotBuiltError: The model has no weights yet.
            CheckpointError: There is none, none is intact, or it is of another model.
        """
        self._require_built("load_checkpoint")
        load_weights(self, checkpoint)

    def _add_accuracy(self) -> None:
        run = self._run.value
        settings = run.settings
        metrics = with_accuracy(settings["metrics"])
        if metrics != settings["metrics"]:
            settings["metrics"] = metrics
            parts = ("loss", "loss_weights", "metrics", "weighted_metrics")
            run.trainer.aim(Objective(*(settings[part] for part in parts)))

    def _on_device(self) -> Any:
        """Where JAX puts new arrays in the block: the model's device."""
        device = self._run.value.device
        return contextlib.nullcontext() if device is None else default_device(device)

    def _prepare(
        self, op: str, dataset: Any, like: Any = None, train: bool = False
    ) -> Any:
        """Builds and checks the model for the data, before anything is compiled."""
        if train:
            self._require_trainable(op)
        run = self._run.value
        kind = "predict" if op == "predict" else "train" if train else "test"
        trainer = run.trainer if kind == "predict" else self._trainer(op)
        batch = first_batch(dataset, trainer.seed)
        if like is not None:
            check_form(op, batch, first_batch(like, trainer.seed))
        own = callable(getattr(self, f"{kind}_step", None))
        wanting = trainer.objective.wants_targets and kind != "predict" and not own
        if wanting and batch[1] is None:
            raise DataError(
                op,
                "the loss needs targets, but there is no y",
                hint="Pass y beside x, or a loader that yields (x, y).",
            )
        spec = trainer.prepare(
            batch,
            names=self._output_names_of,
            kind=kind,
        )
        if kind == "predict" and spec is not None:
            check_rows(op, batch[0], spec)
        if kind == "train" and not trainer.minimizes:
            raise ArgumentError(
                op,
                "there is nothing to minimize: compile() received no loss",
                hint='model.compile(optimizer, loss="cross_entropy")',
            )
        targets = kind != "predict"
        finite = targets and run.check_numerics

        def check(batch: tuple) -> None:
            trainer.check(batch, spec, op, finite=finite, targets=targets)

        if isinstance(dataset, StreamDataset):
            dataset.check = check
            dataset.check_first(batch)
        else:
            check(dataset.tree)
        return spec

    def _output_names_of(self, spec: Any) -> list[str] | None:
        graph = getattr(self, "graph", None)
        return None if graph is None else list(graph.output_names)

    # ------------------------------------------------------------------ evaluate
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Loss and metrics on data: a float, a list in order, or a dict.

        Raises:
            NotCompiledError: ``compile`` was not called.
            DataError, ShapeError, TargetError: The data do not fit the model.
        """
        trainer = self._trainer("evaluate")
        batch_size = int(positive("evaluate", "batch_size", batch_size, BATCH))
        steps = positive("evaluate", "steps", steps, None)
        verbose = check_verbose("evaluate", verbose)
        dataset = as_dataset(x, y, sample_weight, op="evaluate")
        user = CallbackList(callbacks)
        self._prepare("evaluate", dataset)
        bars = [ProgressBar(verbose)] if verbose else []
        listed = CallbackList(
            [*user.callbacks, *bars],
            model=self,
            params=self._run_params(dataset, batch_size, steps, verbose),
        )
        memory = memory_errors(self, "evaluate", dataset, batch_size)
        with self._on_device(), memory, _exits(listed):
            logs = trainer.evaluate(
                dataset,
                batch_size=batch_size,
                steps=steps,
                callbacks=listed,
                owner=self,
            )
        return logs_as(logs, return_dict)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Outputs for every row, as NumPy arrays in the structure of the outputs.

        Works without ``compile``.

        Raises:
            DataError, ShapeError: The data do not fit the model.
        """
        batch_size = int(positive("predict", "batch_size", batch_size, BATCH))
        steps = positive("predict", "steps", steps, None)
        verbose = check_verbose("predict", verbose)
        dataset = as_dataset(x, op="predict")
        if isinstance(dataset, ArrayDataset) and dataset.tree[1] is not None:
            dataset = ArrayDataset(dataset.tree[0], op="predict")
        run = self._run.value
        if run.trainer is None:
            run.trainer = Trainer(self)
        self._prepare("predict", dataset)
        user = CallbackList(callbacks)
        bars = [ProgressBar(verbose)] if verbose else []
        listed = CallbackList(
            [*user.callbacks, *bars],
            model=self,
            params=self._run_params(dataset, batch_size, steps, verbose),
        )
        memory = memory_errors(self, "predict", dataset, batch_size)
        with self._on_device(), memory, _exits(listed):
            return run.trainer.predict(
                dataset,
                batch_size=batch_size,
                steps=steps,
                callbacks=listed,
                owner=self,
            )

    def _run_params(self, dataset, batch_size, steps, verbose) -> dict[str, Any]:
        return {
            "epochs": 1,
            "steps": count_steps(dataset, batch_size, steps),
            "batch_size": batch_size,
            "samples": getattr(dataset, "size", None),
            "verbose": verbose,
            "validation": False,
            "metrics": self._run.value.trainer.objective.names,
        }


def _stop(kind: str):
    def get(self) -> bool:
        return self._run.value.stop[kind]

    def put(self, value: bool) -> None:
        self._run.value.stop[kind] = bool(value)

    return property(get, put, doc=f"Set to True in a callback to end {kind}.")


for _kind in ("training", "evaluating", "predicting"):
    setattr(Training, f"stop_{_kind}", _stop(_kind))


class _exits:
    """Tells callbacks that the run is over, whatever ended it."""

    def __init__(self, callbacks: CallbackList):
        self.callbacks = callbacks

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.callbacks.on_exit(error)


@contextlib.contextmanager
def _named(what: str):
    """Errors of the block say where they come from."""
    try:
        yield
    except Exception as error:
        error.add_note(what)
        raise
