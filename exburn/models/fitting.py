"""``fit``: Keras' signature, and ExBurn's options, in front of the Trainer."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from exburn.callbacks import ProgressBar
from exburn.callbacks.contract import Callback, CallbackList, History
from exburn.core.printing import print_text
from exburn.data import ArrayDataset
from exburn.models.compiling import objective_of
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.models.network import Network
from exburn.models.options import (
    options_after,
    warm_up,
    warm_up_from_here,
    with_accuracy,
)
from exburn.models.output_kinds import output_kinds
from exburn.models.packing import packed_request
from exburn.models.preparing import (
    exits,
    guard_run,
    spans_processes,
    tokens_of_step,
)
from exburn.models.private_training import (
    EpsilonLog,
    PrivateFit,
    check_private_fit,
    privacy_spent,
)
from exburn.models.saving import warmup_config
from exburn.models.session import require_trainer
from exburn.module.building import require_built
from exburn.runs.predictions import Classifier
from exburn.runtime.sharding import processes
from exburn.runtime.signals import defer_signals
from exburn.training.checkpoint.resume import find, load_weights
from exburn.training.epochs import Epochs
from exburn.training.requests import FitData, FitRequest


def fit(
    self: Network,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: int | str = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool | str = True,
    class_weight: Mapping[Any, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | list[int] = 1,
    *,
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
    profile: bool = False,
    resume: str | os.PathLike[str] | None = None,
    resident: bool | None = None,
    run: str | os.PathLike[str] | None = None,
    may_differ: str | Sequence[str] = (),
    batch_tokens: int | None = None,
    length: int | None = None,
    train_on: str | None = None,
    reference: Network | None = None,
) -> History:
    """Trains for a number of epochs.

    Args:
        x: Arrays (nested in lists or dicts), a data frame, or a loader of batches. With
            ``batch_tokens``, chats or texts as of ``exburn.text.DocumentReader``, which
            the model's tokenizer cuts, or documents of ``exburn.text.pack``. With a
            loss of preferences, such as ``losses.DPO``, pairs of answers, or single
            answers with labels.
        y: Targets; part of the batches when ``x`` is a loader.
        batch_size: Rows of a step; 32 by default, and with ``steps_per_epoch`` as
            many as make one epoch of all rows.
        epochs: Epoch number to stop at.
        verbose: 0 silent, 1 progress bar, 2 a line per epoch, ``"table"`` a table.
        callbacks: Callbacks, or functions called with each epoch's logs.
        validation_split: Fraction of the rows, taken from the end, to validate on.
        validation_data: ``(x, y)``, ``(x, y, sample_weight)`` or a loader.
        shuffle: Whether rows are shuffled; ``"batch"`` shuffles whole batches.
        class_weight: ``{class: weight}``.
        sample_weight: Weight of each row.
        initial_epoch: Epoch number to begin with.
        steps_per_epoch: Steps of an epoch, for endless loaders; the next epoch goes
            on in the data where it stopped.
        validation_steps: Steps of a validation. Each begins with the first row, but
            for generators, which go on. Without a size of batches, arrays are
            gone through in so many.
        validation_batch_size: Rows of a validation step.
        validation_freq: Validate every so many epochs, or after the listed ones.
        learning_rate, lr_schedule, weight_decay, clip_norm, clip_value,
            accumulate_gradients, nesterov, warmup: As for ``compile``, in this fit
            alone. A schedule and a warm-up count from where this fit begins, and
            with ``initial_epoch`` the epochs before it, too; those of ``compile``
            count from the first update.
        accuracy: Adds accuracy to the metrics, for good.
        device: Moves the model there, for good: see ``to_device``.
        profile: Records in ``history.profile`` what each epoch's time went to.
        resume: A checkpoint, a folder of them, or a run, to go on from; ``"auto"`` for
            the newest intact one of the callbacks, if there is any. ``epochs``
            counts those before it, too.
        resident: Whether arrays stay on the device for the whole run; by default if
            they fit into a quarter of its free memory.
        run: A folder that records the training: settings, logs, events, checkpoints,
            a report. Where a run is already, the new one is numbered
            (``history.run``), unless ``resume="auto"`` goes on with it.
        may_differ: Parts that need not be as in the run that is resumed, such as
            ``["x", "y", "batch_size"]``: any other difference is an error.
        batch_tokens: Tokens of a batch of chats or documents, in the place of
            ``batch_size``: they are packed into rows, in which they do not see each
            other. The loss is then one by tokens, unless ``compile`` says otherwise.
        length: Tokens of such a row; by default 2,048, or as many as the longest
            document has, within the model's context.
        train_on: What of chats is counted: ``"answers"``, ``"all"`` or ``"last"``.
        reference: The model that is the reference of ``losses.DPO``, ``IPO`` or
            ``KTO``: what it says of the answers is computed once, before training, so
            the model itself may be given, as it is then. By default the reference is
            the model without its adapter, at every step.

    Returns:
        The History of the epochs; ``history.plot()`` draws it.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError, ShapeError, TargetError: The data do not fit the model.
        CheckpointError: No intact checkpoint, or one of a run whose result depends on
            other data, another model or other settings.
    """
    require_trainer(self, "fit").holder.check_free("fit", train=True)
    request = FitRequest(
        x=x,
        y=y,
        sample_weight=sample_weight,
        class_weight=class_weight,
        validation_split=validation_split,
        validation_data=validation_data,
        validation_freq=validation_freq,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        validation_batch_size=validation_batch_size,
        validation_steps=validation_steps,
        shuffle=shuffle,
        initial_epoch=initial_epoch,
        resident=resident,
        epochs=epochs,
        verbose=verbose,
        callbacks=callbacks,
        learning_rate=learning_rate,
        lr_schedule=lr_schedule,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        clip_value=clip_value,
        accumulate_gradients=accumulate_gradients,
        nesterov=nesterov,
        warmup=warmup,
        accuracy=accuracy,
        device=device,
        profile=profile,
        resume=resume,
        run=run,
        may_differ=may_differ,
        batch_tokens=batch_tokens,
        length=length,
        train_on=train_on,
        reference=reference,
    )
    with begin_fit(self, request) as training:
        deque(training.events(), maxlen=0)  # runs them
    return cast(History, self.history)


@contextlib.contextmanager
def begin_fit(
    model: Any, request: FitRequest, loop: Callback | None = None
) -> Iterator[Epochs]:
    """The run of a ``fit``, whose epochs the block runs.

    Args:
        loop: A callback that hears all after the others and the history.
    """
    trainer = require_trainer(model, "fit")
    holder = trainer.holder
    holder.check_free("fit", train=True)
    if request.run is not None:
        from exburn.runs.directory import check_place

        check_place(request.run)  # before anything is compiled
    if request.device is not None:
        model.to_device(request.device)
    request = packed_request(model, request)
    data = read_fit_data(model, request)
    if request.accuracy:
        _add_accuracy(model)
    own_warmup = warm_up(request.warmup, "fit")
    warmup = own_warmup or model._training_session.warmup
    user = CallbackList(request.callbacks)
    prepare_for_fit(model, data)
    check_private_fit(model, request, data)
    history = model.history = History()
    history.seed = holder.seed
    callbacks = _callbacks_of_fit(model, request, data, warmup, user, history, loop)
    # Epochs before the first one are of the same training: its schedule goes on.
    batches = request.initial_epoch * (data.known_steps or 0)
    with (
        defer_signals(),
        holder.training("fit"),
        guard_run(model, "fit", data.dataset, data.batch_size, data.validation),
        options_after(model, batches, **request.options),
        warm_up_from_here(holder, batches) if own_warmup else contextlib.nullcontext(),
        exits(callbacks),
    ):
        if request.run is not None:
            history.run = _record(model, callbacks, request, data)
        resume = find(request.resume, callbacks, spans_processes(model))
        private = PrivateFit(model, request, data, resume)
        try:
            epochs = trainer.begin_fit(
                request,
                data,
                callbacks=callbacks,
                owner=model,
                resume=resume,
                options=_options_of(request, data, warmup) | private.options,
            )
            private.begin()
            try:
                yield epochs
            except BaseException:
                trainer.end_fit(epochs.feed, failed=True)
                raise
            trainer.end_fit(epochs.feed)
        finally:
            private.end()
    history.privacy = privacy_spent(model)
    history.data_waits = trainer.timing.waits
    if request.profile:
        history.profile = trainer.timing.epochs


def _callbacks_of_fit(
    model: Network,
    request: FitRequest,
    data: FitData,
    warmup: Callback | None,
    user: CallbackList,
    history: History,
    loop: Callback | None,
) -> CallbackList:
    """The user's callbacks, and those of ``fit`` itself around them."""
    preparer = require_trainer(model, "fit").preparer
    shows = any(callback.shows_progress for callback in user.callbacks)
    bars = [ProgressBar(request.verbose)] if request.verbose and not shows else []
    both = data.dataset, data.validation
    arrays = all(isinstance(one, ArrayDataset | None) for one in both)
    for bar in bars:
        bar.quick = arrays
        # No code of the user's runs between epochs.
        bar.alone = arrays and not (user.callbacks or loop or preparer.eager)
    first, last = [warmup] if warmup else [], [loop] if loop else []
    if model._training_session.privacy is not None:
        first.append(EpsilonLog())
    callbacks = CallbackList(
        [*first, *user.callbacks, history, *bars, *last],
        model=model,
        params={
            "epochs": request.epochs,
            "steps": data.known_steps,
            "batch_size": data.batch_size,
            "samples": getattr(data.dataset, "size", None),
            "verbose": request.verbose,
            "validation": data.validation is not None,
            "metrics": preparer.names,
            **_own_choices(model),
            **tokens_of_step(data.dataset),
            **({} if request.packing is None else {"packing": request.packing}),
        },
    )
    callbacks.set_together(spans_processes(model))
    return callbacks


def _own_choices(model: Any) -> dict[str, Any]:
    """What a history tells of the loss where it is not as Keras has it."""
    objective = model._training_session.objective
    if not objective.by_tokens:
        return {}
    name = getattr(objective.losses, "name", None)
    return {"accumulate": "tokens", **({"loss": name} if name else {})}


def _options_of(request: FitRequest, data: FitData, warmup: Any) -> dict[str, Any]:
    """The settings that a fit's result depends on, beside the data and the model."""
    options = data.options() | {"warmup": warmup_config(warmup)}
    if data.validation is not None:
        options["validation_data.freq"] = request.validation_freq
    return options


def _record(
    model: Network, callbacks: CallbackList, request: FitRequest, data: FitData
) -> Path:
    """Begins a run's folder, and adds the callbacks that write into it."""
    from exburn.runs.beginning import begin_run

    assert request.run is not None
    params, together = callbacks.params, spans_processes(model)
    names = "epochs", "steps", "batch_size", "samples", "validation"
    own = {"shuffle": request.shuffle, "initial_epoch": request.initial_epoch}
    own |= request.options
    asked = {
        **{name: params[name] for name in names},
        **{name: value for name, value in own.items() if value is not None},
        "seed": model.history.seed,
        "callbacks": [type(callback).__name__ for callback in callbacks.callbacks],
    }
    path, recorders = begin_run(
        request.run,
        model,
        asked,
        resume=request.resume,
        together=together,
        rows=None if together else _rows_to_predict(data),
        classifier=lambda: _classifier(model),
    )
    for recorder in recorders:
        recorder.together = together
        callbacks.append(recorder)
    numbered = str(path) != os.path.abspath(os.path.expanduser(request.run))
    if numbered and params["verbose"] and processes.is_main():
        print_text(f"Run: {path}")
    return path


def _rows_to_predict(data: FitData) -> tuple[Any, str] | None:
    """The rows for which a classifier predicts in the end: none of a loader's own.

    To read a loader once more could change what its next epoch gives. A data set of
    files, which names its classes, reads them anew.
    """
    for rows, part in zip(
        reversed(data.sources), ("validation", "training"), strict=True
    ):
        if rows is None:
            continue
        named = getattr(rows, "class_names", None) is not None
        return (rows, part) if named or isinstance(rows, ArrayDataset) else None
    return None


def _classifier(model: Network) -> Classifier | None:
    """How a model's one output tells a class, if it does."""
    kinds = output_kinds(model)
    if len(kinds) != 1 or len(kinds[0].shape) != 2:
        return None
    kind, width = kinds[0], kinds[0].shape[1]
    if kind.family == "sigmoid" and width == 1:
        return Classifier(binary=True, logits=kind.logits)
    if kind.family == "softmax" and width > 1:
        return Classifier(binary=False, logits=kind.logits)
    return None


def load_checkpoint(self: Network, checkpoint: Any) -> None:
    """Takes the weights of a checkpoint of a run; to go on with it, see ``fit``.

    Args:
        checkpoint: A folder of checkpoints (the newest intact one counts), or one.

    Raises:
        NotBuiltError: The model has no weights yet.
        CheckpointError: There is none, none is intact, or it is of another model.
    """
    require_built(self, "load_checkpoint")
    load_weights(self, checkpoint)


def _add_accuracy(model: Network) -> None:
    run = model._training_session
    settings = run.settings
    metrics = with_accuracy(settings["metrics"])
    if metrics != settings["metrics"]:
        settings["metrics"] = metrics
        run.preparer.aim(objective_of(settings))
