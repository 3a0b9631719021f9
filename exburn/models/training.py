"""compile, fit, evaluate and predict: Keras' signatures in front of the Trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from exburn import context, optimizers
from exburn.callback import CallbackList, History
from exburn.callbacks import ProgressBar
from exburn.dataset import ArrayDataset, StreamDataset, as_dataset
from exburn.dataset import as_validation_dataset, split
from exburn.errors import ArgumentError, DataError, NotBuiltError, NotCompiledError
from exburn.building import materialize, reseed
from exburn.traversal import iter_weights, module_paths
from exburn.metrics import Mean
from exburn.models.weighting import class_weights
from exburn.symbol import describe
from exburn.training.module import SplitModule
from exburn.training.objective import Objective
from exburn.training.trainer import Trainer
from exburn.weights import Static

__all__ = ["Training"]

_BATCH = 32


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

    def reset(self) -> None:
        """Forgets everything compiled; settings stay."""
        if self.trainer is not None:
            self.trainer.forget()


class Training:
    """The part of a model that trains; mixed into ``Model``."""

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
    ) -> None:
        """Sets what the model is trained with. Nothing is compiled yet.

        Args:
            optimizer: A name, an ``exburn.optimizers`` object, or any optax
                transformation.
            loss: A name, a ``Loss``, any function of ``(y_true, y_pred)``, or a list or
                dict of these by output.
            loss_weights: Factor of each output's loss.
            metrics: Names, ``Metric`` objects or functions; by output in a dict or list.
            weighted_metrics: The same, weighted by ``sample_weight``.
            run_eagerly: Operation by operation, to debug with prints.
            steps_per_execution: Steps in one compiled chunk; ``"auto"`` chooses.
            jit_compile: False is ``run_eagerly=True``.
            auto_scale_loss: Scales the loss of float16 training automatically.
            seed: Seed of the weights nobody has changed yet, of shuffling, dropout …
            check_numerics: Whether data are checked for NaN and infinity.

        Raises:
            UnknownNameError: An unknown optimizer, loss or metric.
            ArgumentError: An argument that can never work.
        """
        del auto_scale_loss  # float16 policies scale by themselves
        if steps_per_execution != "auto":
            _positive("compile", "steps_per_execution", steps_per_execution)
        if jit_compile not in ("auto", True, False):
            raise ArgumentError(
                "compile",
                f"jit_compile must be 'auto', True or False, received {jit_compile!r}",
            )
        if seed is not None:
            _count("compile", "seed", seed)
            if seed >= 2**32:
                raise ArgumentError(
                    "compile", f"seed must be below 2**32, received {seed}"
                )
            seed = int(seed)
        objective = Objective(loss, loss_weights, metrics, weighted_metrics)
        run = self._run.value
        run.optimizer = optimizers.get(optimizer)
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
        )

    @property
    def compiled(self) -> bool:
        """Whether ``compile`` was called."""
        return self._run.value.settings is not None

    @property
    def optimizer(self):
        """The optimizer; its ``learning_rate`` can be read and set at any time."""
        return self._run.value.optimizer

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
        """The loss tracker and the metrics of ``compile``; override it with your own."""
        run = self._run.value
        if run.trainer is None:
            return []
        return [run.loss_tracker, *(m.metric for m in run.trainer.objective.meters)]

    @property
    def trace_counts(self) -> dict[str, int]:
        """How often each program was traced: ``{"train": 1, "evaluate": 1, …}``."""
        trainer = self._run.value.trainer
        return {} if trainer is None else dict(trainer.trace_counts)

    # ------------------------------------------------------------------ own steps
    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training: bool = True
    ):
        """The loss of ``compile`` for a batch; override it to train on another one.

        Args:
            x, y, sample_weight: The batch.
            y_pred: The outputs.
            training: Whether this is a training step.

        Returns:
            A scalar. Losses of layers and regularizers are added by the caller.
        """
        objective = self._trainer("compute_loss").objective
        specs = jax.tree.map(
            lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype), (y_pred, y, sample_weight)
        )
        names = self._output_names_of(specs[0])
        objective.build(*specs, names, self._probability_outputs())
        pass_ = context.current()
        leaves = jax.tree.leaves(y_pred)
        masks = [None if pass_ is None else pass_.mask_of(leaf) for leaf in leaves]
        return objective.loss(y, y_pred, sample_weight, masks, None)[0]

    @property
    def own_compute_loss(self):
        """The ``compute_loss`` of a subclass that overrides it, else ``None``."""
        own = type(self).compute_loss is not Training.compute_loss
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
        copy = split.bind({**spare, **arrays})
        pass_ = context.Context(training=training, key=outer and outer.key)
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

        Returns:
            The History of the epochs; ``history.plot()`` draws it.

        Raises:
            NotCompiledError: ``compile`` was not called.
            DataError, ShapeError, TargetError: The data do not fit the model.
        """
        trainer = self._trainer("fit")
        batch_size = _positive("fit", "batch_size", batch_size, _BATCH)
        _count("fit", "epochs", epochs)
        _count("fit", "initial_epoch", initial_epoch)
        steps_per_epoch = _positive("fit", "steps_per_epoch", steps_per_epoch, None)
        validation_steps = _positive("fit", "validation_steps", validation_steps, None)
        validation_batch_size = _positive(
            "fit", "validation_batch_size", validation_batch_size, None
        )
        verbose = _verbose("fit", verbose)
        if shuffle not in (True, False, "batch"):
            raise ArgumentError(
                "fit", f"shuffle must be True, False or 'batch', received {shuffle!r}"
            )
        validates = _validates(validation_freq)
        dataset = as_dataset(x, y, sample_weight)
        validation = None
        if validation_data is not None:
            validation = as_validation_dataset(
                validation_data, op="fit (validation data)"
            )
        elif validation_split:
            dataset, validation = split(dataset, validation_split)
        if class_weight is not None:
            dataset = class_weights(dataset, class_weight)
        _enough("steps_per_epoch", steps_per_epoch, dataset, batch_size)
        user = CallbackList(callbacks)
        if validation is not None:
            with _named("in the validation data"):
                self._prepare("fit (validation data)", validation, like=dataset)
        self._prepare("fit", dataset, train=True)
        history = History()
        history.seed = trainer.seed
        bars = [ProgressBar(verbose)] if verbose else []
        callbacks = CallbackList(
            [*user.callbacks, history, *bars],
            model=self,
            params={
                "epochs": epochs,
                "steps": _steps(dataset, batch_size, steps_per_epoch),
                "batch_size": batch_size,
                "samples": getattr(dataset, "size", None),
                "verbose": verbose,
                "validation": validation is not None,
                "metrics": trainer.names,
            },
        )
        self._run.value.history = history
        with _exits(callbacks):
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
            )
        return history

    def _prepare(
        self, op: str, dataset: Any, like: Any = None, train: bool = False
    ) -> Any:
        """Builds and checks the model for the data, before anything is compiled."""
        run = self._run.value
        kind = "predict" if op == "predict" else "train" if train else "test"
        trainer = run.trainer if kind == "predict" else self._trainer(op)
        batch = _first(dataset, trainer.seed)
        if like is not None:
            _same_form(op, batch, _first(like, trainer.seed))
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
            softmax=self._probability_outputs,
            kind=kind,
        )
        if kind == "predict" and spec is not None:
            _check_rows(op, batch[0], spec)
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
        batch_size = _positive("evaluate", "batch_size", batch_size, _BATCH)
        steps = _positive("evaluate", "steps", steps, None)
        verbose = _verbose("evaluate", verbose)
        dataset = as_dataset(x, y, sample_weight, op="evaluate")
        user = CallbackList(callbacks)
        self._prepare("evaluate", dataset)
        bars = [ProgressBar(verbose)] if verbose else []
        listed = CallbackList(
            [*user.callbacks, *bars],
            model=self,
            params=self._run_params(dataset, batch_size, steps, verbose),
        )
        with _exits(listed):
            logs = trainer.evaluate(
                dataset, batch_size=batch_size, steps=steps, callbacks=listed, owner=self
            )
        return _logs(logs, return_dict)

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
        batch_size = _positive("predict", "batch_size", batch_size, _BATCH)
        steps = _positive("predict", "steps", steps, None)
        verbose = _verbose("predict", verbose)
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
        with _exits(listed):
            return run.trainer.predict(
                dataset, batch_size=batch_size, steps=steps, callbacks=listed, owner=self
            )

    def _run_params(self, dataset, batch_size, steps, verbose) -> dict[str, Any]:
        return {
            "epochs": 1,
            "steps": _steps(dataset, batch_size, steps),
            "batch_size": batch_size,
            "samples": getattr(dataset, "size", None),
            "verbose": verbose,
            "validation": False,
            "metrics": self._run.value.trainer.objective.names,
        }

    # ------------------------------------------------------------------ one batch
    def train_on_batch(
        self, x, y=None, sample_weight=None, class_weight=None, return_dict=False
    ):
        """One update on one batch; returns the running loss and metrics.

        They accumulate over calls until ``reset_metrics()``, as in Keras.
        """
        return self._on_batch(
            "train_on_batch", x, y, sample_weight, class_weight, return_dict, train=True
        )

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        """Running loss and metrics after one more batch, without an update."""
        return self._on_batch(
            "test_on_batch", x, y, sample_weight, None, return_dict, train=False
        )

    def _on_batch(self, op, x, y, sample_weight, class_weight, return_dict, *, train):
        trainer = self._trainer(op)
        dataset = as_dataset(x, y, sample_weight, op=op)
        if not isinstance(dataset, ArrayDataset):
            raise _not_a_batch(op)
        if class_weight is not None:
            dataset = class_weights(dataset, class_weight)
        self._prepare(op, dataset, train=train)
        return _logs(trainer.run_batch(dataset.tree, train=train), return_dict)

    def predict_on_batch(self, x):
        """Outputs for one batch."""
        batch = as_dataset(x, op="predict_on_batch")
        if not isinstance(batch, ArrayDataset):
            raise _not_a_batch("predict_on_batch")
        return self.predict(batch, batch_size=batch.size, verbose=0)

    def reset_metrics(self) -> None:
        """Starts the running values of the ``*_on_batch`` methods afresh."""
        if self._run.value.trainer is not None:
            self._run.value.trainer.reset_totals()

    # ------------------------------------------------------------------ weights
    def save_weights(self, filepath: Any, overwrite: bool = True) -> None:
        """Writes the weights to one safetensors file, atomically.

        Raises:
            NotBuiltError: The model has no weights yet.
            ArgumentError: The file exists and ``overwrite`` is false.
        """
        from exburn.saving import save_weights

        self._require_built("save_weights")
        save_weights(self, filepath, overwrite=overwrite)

    def load_weights(self, filepath: Any, skip_mismatch: bool = False) -> None:
        """Reads the weights that ``save_weights`` wrote; all or nothing.

        Raises:
            FileFormatError: The file is damaged or of another model.
        """
        from exburn.saving import load_weights

        self._require_built("load_weights")
        load_weights(self, filepath, skip_mismatch=skip_mismatch)

    def _require_built(self, op: str) -> None:
        if not self.built:
            raise NotBuiltError(
                op,
                "the model has no weights before it is built",
                hint="Give it an Input(shape), or call it on data first.",
            )
        materialize(self)

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Any = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Any = None,
    ) -> None:
        """Prints the layers, their shapes and parameters, and the totals."""
        from exburn.summary import summary

        summary(
            self,
            line_length=line_length,
            positions=positions,
            print_fn=print_fn,
            expand_nested=expand_nested,
            show_trainable=show_trainable,
            layer_range=layer_range,
        )


def _not_a_batch(op: str) -> DataError:
    return DataError(
        op,
        "one batch of arrays is needed, received a loader",
        hint="Pass one of its batches: next(iter(loader)).",
    )


def _array(value: Any) -> Any:
    return value.get_value() if hasattr(value, "get_value") else value


def _stop(kind: str):
    def get(self) -> bool:
        return self._run.value.stop[kind]

    def put(self, value: bool) -> None:
        self._run.value.stop[kind] = bool(value)

    return property(get, put, doc=f"Set to True in a callback to end {kind}.")


for _kind in ("training", "evaluating", "predicting"):
    setattr(Training, f"stop_{_kind}", _stop(_kind))


class _exits:  # noqa: N801 - reads as a statement
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


def _first(dataset: ArrayDataset | StreamDataset, seed: int) -> tuple:
    """A batch of the data: for shapes only."""
    if isinstance(dataset, StreamDataset):
        return dataset.peek(0, seed)
    size = min(dataset.size, _BATCH)
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((size, *v.shape[1:]), v.dtype), dataset.tree
    )


def _check_rows(op: str, x: Any, outputs: Any) -> None:
    """Rows can only be told apart if each output has as many as the inputs."""
    rows = jax.tree.leaves(x)[0].shape[0]
    for spec in jax.tree.leaves(outputs):
        if spec.shape[:1] != (rows,):
            raise DataError(
                op,
                f"an output must have one row for each of the {rows} rows of the input, "
                f"received {describe(spec)}",
                hint="Keep the batch axis first, or call the model itself: model(x).",
            )


def _same_form(op: str, batch: tuple, other: tuple) -> None:
    """Validation data have the structure and shapes of the training data."""
    for name, a, b in zip(("x", "y"), batch, other, strict=False):
        shapes = [[tuple(v.shape[1:]) for v in jax.tree.leaves(t)] for t in (a, b)]
        if len(shapes[0]) != len(shapes[1]):
            raise DataError(
                op,
                f"{name} has {len(shapes[0])} arrays, training has {len(shapes[1])}",
                hint="Pass validation_data in the structure of the training data.",
            )
        for mine, theirs in zip(*shapes, strict=True):
            if len(mine) != len(theirs):
                raise DataError(
                    op,
                    f"{name} has rows of shape {mine}, training has {theirs}",
                    hint="Prepare validation data as the training data.",
                )


def _steps(dataset: Any, batch_size: int, steps: int | None) -> int | None:
    if steps is not None:
        return steps
    if isinstance(dataset, StreamDataset):
        return dataset.batches
    return -(-dataset.size // batch_size)


def _enough(name: str, steps: int | None, dataset: Any, batch_size: int) -> None:
    """Arrays are not repeated within an epoch."""
    if steps is None or isinstance(dataset, StreamDataset):
        return
    there = -(-dataset.size // batch_size)
    if steps > there:
        raise ArgumentError(
            "fit",
            f"{name} must be at most {there}, the batches in the arrays, received {steps}",
            {"rows": dataset.size, "batch_size": batch_size},
            hint="Leave it out, or train for more epochs.",
        )


def _positive(op: str, name: str, value: Any, default: Any = None) -> Any:
    if value is None:
        return default
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ArgumentError(op, f"{name} must be an integer ≥ 1, received {value!r}")
    return int(value)


def _count(op: str, name: str, value: Any) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 0:
        raise ArgumentError(op, f"{name} must be an integer ≥ 0, received {value!r}")


def _verbose(op: str, verbose: Any) -> Any:
    if verbose in ("auto", 0, 1, 2, True, False):
        return verbose
    raise ArgumentError(
        op, f"verbose must be 0, 1, 2 or 'auto', received {verbose!r}"
    )


def _validates(freq: Any):
    if isinstance(freq, int | np.integer) and not isinstance(freq, bool):
        _positive("fit", "validation_freq", freq)
        return lambda epoch: (epoch + 1) % freq == 0
    if isinstance(freq, list | tuple | set):
        for epoch in freq:
            _positive("fit", f"validation_freq={freq!r}: every epoch", epoch)
        wanted = set(freq)
        return lambda epoch: epoch + 1 in wanted
    raise ArgumentError(
        "fit",
        "validation_freq must be an integer or a list of epochs, counted from 1, "
        f"received {freq!r}",
    )


def _logs(logs: dict[str, Any], return_dict: bool) -> Any:
    if return_dict:
        return logs
    values = list(logs.values())
    return values[0] if len(values) == 1 else values
