"""``sweep``: many variants of a model, trained as few compiled programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.models.preparing import guard_run
from exburn.tuning.checkpoint import (
    SweepCheckpoint,
    check_resumable,
    provenance_of_scores,
)
from exburn.tuning.optuna import StudySampler
from exburn.tuning.result import SweepResult
from exburn.tuning.run import SweepRun, build_model
from exburn.tuning.set_up import Lane, SetUp, SweepRequest, notes_of, set_up
from exburn.tuning.width_choice import WidthChoice


@api_boundary
def sweep(
    model: Model,
    x: Any = None,
    y: Any = None,
    *,
    over: Mapping[str, Any],
    epochs: int = 1,
    batch_size: int | None = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    monitor: str | None = None,
    mode: str = "auto",
    sampler: Any = None,
    halving: Any = None,
    scheduler: Any = None,
    folds: Any = None,
    groups: Any = None,
    order: str = "own",
    lanes: int | None = None,
    mesh: Any = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    callbacks: Any = None,
    verbose: int | str = "auto",
    shuffle: bool | str = True,
    class_weight: Mapping[Any, float] | None = None,
    sample_weight: Any = None,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | list[int] = 1,
) -> SweepResult:
    """Trains variants of a model side by side, as one compiled program.

    Each variant is a *lane*: it is what the model alone would be, compiled with the
    lane's seed and values, after the same ``fit`` (to rounding: 1e-5). The model itself
    stays as it is.

    Args:
        model: A compiled model.
        x, y, batch_size, validation_split, validation_data, shuffle, class_weight,
            sample_weight, steps_per_epoch, validation_steps, validation_batch_size,
            validation_freq: As of ``fit``.
        over: Path → values: ``seed``, ``learning_rate``, an option of the optimizer
            (``momentum``), of a layer (``drop/rate``) or of the loss
            (``loss/label_smoothing``), ``loss_weights/<output>``, ``batch_size``,
            ``optimizer``. Values are a list, or a domain such as ``log_uniform``.
            Numbers that a step computes with run side by side; for others there is a
            program for each value, one after the other, and that is said.
        epochs: Epochs of each lane, or of those that go furthest.
        monitor: The logged name that lanes are compared by: by default ``val_loss``,
            or ``loss`` without validation.
        mode: ``"min"``, ``"max"`` or ``"auto"``: which of its values are better.
        sampler: ``tuning.grid()``, ``tuning.random(n)``, or a study of Optuna, which is
            asked for ``lanes`` trials at once.
        halving, scheduler: ``Halving``, ``Hyperband`` or ``PBT``: which lanes go on.
        folds: Cross-validation: a number of folds, or a splitter of scikit-learn. Every
            trial is a lane in each of them, which is trained on the fold's rows alone.
        groups: One for each row, for a splitter that keeps them together.
        order: ``"own"``: a lane sees the rows in the order of its seed, as in ``fit``;
            ``"shared"``: all in that of the model's seed, which moves fewer bytes.
        lanes: How many lanes run at once: by default all that fit into memory, and on a
            CPU as many as are measured to be quickest. Others wait for their turn.
        mesh: Devices that divide the lanes: a number, a list, or ``"all"``.
        seed: Of what the sweep itself draws.
        checkpoint: A folder for the whole sweep's state, written after each epoch that
            ends at least 60 s after the last time, at each rung, and where Ctrl-C,
            SIGTERM or an error ends the sweep, also within an epoch. A sweep that is
            called again with the same folder goes on from there, to the same bits.
        callbacks: ``tuning.SweepCallback`` objects, or functions of the epoch's number
            and the records; and one ``EarlyStopping``, which ends each lane by itself,
            and may have it keep the weights, and the score, of its best epoch.
        verbose: Whether progress is printed.

    Returns:
        The result: records of all lanes, and their models.

    Raises:
        NotCompiledError: The model is not compiled.
        UnknownNameError: A path, or the monitor, is unknown.
        ArgumentError: A value can never work, or there is nothing to try.
        DataError: The data do not fit the model.
        LayoutError: There are no such devices, or they divide the model already.
        OutOfMemoryError: ``lanes`` at once need more memory than there is.
        CheckpointError: The folder, or the study, is that of a sweep with other data,
            another model or other arguments, or the folder is damaged.
        KeyboardInterrupt, and whatever else ends a sweep that has begun: with what its
            lanes have come to as the exception's ``result``.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> x, y = np.eye(8, dtype="float32"), np.arange(8) % 2
        >>> model = exburn.Sequential([exburn.Input((8,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> over = {"seed": range(2), "learning_rate": [0.1, 0.01]}
        >>> result = exburn.tuning.sweep(model, x, y, over=over, verbose=0)
        >>> len(result.records), result.best_model().count_params()
        (4, 18)
    """
    request = SweepRequest(
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
        over=over,
        epochs=epochs,
        monitor=monitor,
        mode=mode,
        sampler=sampler,
        halving=halving,
        scheduler=scheduler,
        folds=folds,
        groups=groups,
        order=order,
        lanes=lanes,
        mesh=mesh,
        seed=seed,
        checkpoint=checkpoint,
        callbacks=callbacks,
        verbose=verbose,
    )
    return _train(set_up(model, request))


def _train(ready: SetUp) -> SweepResult:
    """Trains the lanes of a sweep, in as many rounds as its sampler asks for."""
    data, space, request = ready.data, ready.space, ready.request
    saver = None
    if request.checkpoint is not None:
        check_resumable(data.dataset, space.asks)
        saver = SweepCheckpoint(request.checkpoint, ready)
    if isinstance(space.sampler, StudySampler):
        space.sampler.compare(provenance_of_scores(ready))
    width = WidthChoice(request.lanes, request.own_order)
    all_lanes: list[Lane] = []
    notes: dict[str, None] = {}

    def result() -> SweepResult:
        return SweepResult(
            [lane.record for lane in all_lanes],
            lambda number: build_model(all_lanes[number]),
            ready.monitor,
            ready.mode,
            list(notes),
        )

    with guard_run(
        ready.model, "sweep", data.dataset, data.batch_size, data.validation
    ):
        for trials in ready.rounds():
            run_lanes = ready.make_lanes(trials)
            own_notes = notes_of([lane.variant for lane in run_lanes])
            run = SweepRun(run_lanes, ready, width, own_notes)
            all_lanes += run_lanes
            try:
                run.run(saver)
            except BaseException as error:
                _hand_over(result(), error)
                raise
            finally:
                notes |= dict.fromkeys([*own_notes, *width.notes])
            space.tell(run.records)
    return result()


def _hand_over(result: SweepResult, error: BaseException) -> None:
    """Gives an error that ended a sweep what its lanes have come to."""
    error.result = result  # type: ignore[attr-defined]
    error.add_note(
        "What the lanes of the sweep have come to is this error's `result`; in a "
        "notebook: `import sys; sys.last_value.result`."
    )
