"""``sweep``: many variants of a model, trained as few compiled programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from exburn.callbacks.monitor import MonitorCallback
from exburn.core.checks import check_choice, check_count
from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, CallbackError, LayoutError, unknown_name
from exburn.models import Model
from exburn.models.arguments import validation_epochs
from exburn.models.fit_data import (
    FitData,
    check_step_counts,
    prepare_for_fit,
    read_fit_data,
)
from exburn.models.preparing import guard_run
from exburn.models.training_settings import require_trainer
from exburn.tuning.callbacks import make_callbacks
from exburn.tuning.folds import fold_masks
from exburn.tuning.groups import Rows
from exburn.tuning.hyperparameters import Place, find
from exburn.tuning.placement import LanesOnDevices, placement_of
from exburn.tuning.records import LaneRecord, Trial
from exburn.tuning.run import Lane, SweepRun
from exburn.tuning.space import Space
from exburn.tuning.variants import Variant, make_variants
from exburn.tuning.width_choice import WidthChoice

if TYPE_CHECKING:
    from exburn.tuning.result import SweepResult

_ROUND = 16  # trials that a sampler is asked for at once, where nobody says


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
    order: str = "own",
    lanes: int | None = None,
    mesh: Any = None,
    seed: int = 0,
    callbacks: Any = None,
    verbose: int | str = "auto",
    shuffle: bool | str = True,
    class_weight: Mapping | None = None,
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
        order: ``"own"``: a lane sees the rows in the order of its seed, as in ``fit``;
            ``"shared"``: all in that of the model's seed, which moves fewer bytes.
        lanes: How many lanes run at once: by default all that fit into memory, and on a
            CPU as many as are measured to be quickest. Others wait for their turn.
        mesh: Devices that divide the lanes: a number, a list, or ``"all"``.
        seed: Of what the sweep itself draws.
        callbacks: ``tuning.SweepCallback`` objects, or functions of the epoch's number
            and the records.
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

    Example:
        >>> import exburn
        >>> x, y = np.eye(8, dtype="float32"), np.arange(8) % 2
        >>> model = exburn.Sequential([exburn.Input((8,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> over = {"seed": range(2), "learning_rate": [0.1, 0.01]}
        >>> result = exburn.tuning.sweep(model, x, y, over=over, verbose=0)
        >>> len(result.records), result.best_model().count_params()
        (4, 18)
    """
    require_trainer(model, "sweep").holder.check_free("sweep")
    epochs = check_count("sweep", "epochs", epochs)
    check_choice("sweep", "order", order, ("own", "shared"))
    if lanes is not None:
        check_count("sweep", "lanes", lanes)
    if halving is not None and scheduler is not None:
        raise ArgumentError("sweep", "give halving= or scheduler=, not both")
    counts = steps_per_epoch, validation_steps, validation_batch_size
    counts = check_step_counts("sweep", *counts)
    validates = validation_epochs(validation_freq)
    told = make_callbacks(callbacks, verbose)
    placement = _placement(model, mesh)
    if folds is not None and (validation_data is not None or validation_split):
        raise ArgumentError(
            "sweep",
            "folds hold out rows themselves: leave validation_data and "
            "validation_split out",
        )
    data = read_fit_data(
        model,
        x,
        y,
        sample_weight,
        batch_size=batch_size,
        validation_split=validation_split,
        validation_data=validation_data,
        shuffle=shuffle,
        class_weight=class_weight,
        steps_per_epoch=counts[0],
        validation_steps=counts[1],
        validation_batch_size=counts[2],
        op="sweep",
    )
    rows = None if folds is None else _rows_of_folds(folds, data)
    prepare_for_fit(model, data)
    monitor, mode = _monitor(model, data, monitor, mode, rows is not None)
    space = Space.of(over, sampler, seed, mode)
    places = {path: find(model, path) for path in space.domains}
    width = WidthChoice(lanes, order == "own")
    all_lanes: list[Lane] = []
    with guard_run(model, "sweep", data.dataset, data.batch_size, data.validation):
        for trials in _rounds(space, lanes):
            _check_values(model, places, trials)
            variants = make_variants(model, data, places, trials, epochs, placement)
            run = SweepRun(
                _make_lanes(trials, variants, rows),
                epochs=epochs,
                monitor=monitor,
                mode=mode,
                validates=validates,
                width=width,
                own_order=order == "own",
                scheduler=halving or scheduler,
                callbacks=told,
                space=space,
                notes=_notes(variants),
            )
            run.run()
            all_lanes += run.lanes
            space.tell(run.records)
    return _result(all_lanes, monitor, mode)


def _placement(model: Model, mesh: Any) -> LanesOnDevices | None:
    """Where lanes lie, if several devices divide them."""
    if (own := model._run.value.distribution_in_force) is not None:
        raise LayoutError(
            "sweep",
            "the model is compiled for a mesh, which divides each batch",
            {"distribution": own},
            hint="Compile it without mesh=, and pass sweep(mesh=…): lanes are divided.",
        )
    return placement_of(mesh)


def _rounds(space: Space, lanes: int | None) -> Any:
    """The trials, in as many rounds as a sampler wants to be told between."""
    if not space.asks:
        trials = space.trials()
        if not trials:
            raise ArgumentError("sweep", "there is no trial: no condition ever holds")
        yield trials
        return
    while trials := space.ask(lanes or _ROUND):
        yield trials


def _check_values(
    model: Model, places: Mapping[str, Place], trials: Sequence[Trial]
) -> None:
    for path, place in places.items():
        values = {repr(t[path]): t[path] for t in trials if path in t}
        for value in values.values():
            place.check(model, value)


def _monitor(
    model: Model, data: FitData, monitor: str | None, mode: str, folded: bool
) -> tuple[str, str]:
    """What is compared, and which way it is better.

    Raises:
        UnknownNameError: It will not be logged.
        ArgumentError: Its name does not tell which way.
    """
    names = list(require_trainer(model, "sweep").preparer.names)
    validated = data.validation is not None or folded
    known = [*names, *(f"val_{name}" for name in names if validated)]
    if monitor is None:
        monitor = "val_loss" if validated else "loss"
    if monitor not in known:
        hint = ""
        if monitor.startswith("val_") and not validated:
            hint = "Pass validation_split, validation_data or folds."
        raise unknown_name("monitor", monitor, known, op="sweep", hint=hint)
    try:
        watch = MonitorCallback(monitor, mode)
        watch.set_model(model)
        return monitor, "max" if watch._rises() else "min"
    except CallbackError as error:
        raise ArgumentError(
            "sweep", error.reason, hint="Pass mode='min' or mode='max'."
        ) from None


def _rows_of_folds(folds: Any, data: FitData) -> list[Rows]:
    """Rows that each fold is trained on, and those that it is validated on."""
    if not isinstance(data.dataset, ArrayDataset):
        raise ArgumentError(
            "sweep", "folds need arrays, whose rows can be chosen, not a loader"
        )
    masks = fold_masks(folds, data.dataset.size, data.dataset.tree[1])
    return [
        (np.flatnonzero(train), np.flatnonzero(held_out))
        for train, held_out in zip(*masks, strict=True)
    ]


def _make_lanes(
    trials: Sequence[Trial], variants: Sequence[Variant], rows: list[Rows] | None
) -> list[Lane]:
    """A lane for each trial, or for each trial in each fold."""
    found = []
    for trial, variant in zip(trials, variants, strict=True):
        for fold in [None] if rows is None else range(len(rows)):
            record = LaneRecord(dict(trial), fold=fold)
            own = None if rows is None or fold is None else rows[fold]
            found.append(Lane(record, variant, own))
    return found


def _notes(variants: Sequence[Variant]) -> list[str]:
    """What runs in turn, and why."""
    found: dict[str, None] = {}
    distinct = dict.fromkeys(variants)
    for variant in distinct:
        for path, why in variant.constant.items():
            found[f"{path}: a program for each value, for {why}"] = None
    if len(distinct) > 1:
        found[f"{len(distinct)} programs run one after the other"] = None
    return list(found)


def _result(all_lanes: Sequence[Lane], monitor: str, mode: str) -> Any:
    from exburn.tuning.result import SweepResult
    from exburn.tuning.run import build_model

    return SweepResult(
        [lane.record for lane in all_lanes],
        lambda number: build_model(all_lanes[number]),
        monitor,
        mode,
    )
