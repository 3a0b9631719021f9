"""What a sweep is given, checked and made ready; nothing is compiled yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exburn.callbacks import EarlyStopping
from exburn.callbacks.monitor import MonitorCallback
from exburn.core.checks import check_choice, check_count
from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, CallbackError, LayoutError, unknown_name
from exburn.models import Model
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.models.training_settings import require_trainer
from exburn.training.requests import DataRequest, FitData
from exburn.tuning.callbacks import SweepCallback, make_callbacks
from exburn.tuning.folds import fold_masks
from exburn.tuning.groups import Rows
from exburn.tuning.hyperparameters import Place, find
from exburn.tuning.placement import LanesOnDevices, placement_of
from exburn.tuning.records import LaneRecord, Trial
from exburn.tuning.run import Lane
from exburn.tuning.schedulers import PBT, OfFolds
from exburn.tuning.space import Space
from exburn.tuning.variants import Variant, make_variants

_ROUND = 16  # trials that a sampler is asked for at once, where nobody says


@dataclasses.dataclass
class SetUp:
    """A sweep that could begin.

    Attributes:
        model: The model.
        data: What is trained on.
        rows: Those of each fold, if there are folds.
        monitor, mode: What is compared, and which way it is better.
        space, places: What is varied, and where that is in the model.
        placement: Where lanes lie, if several devices divide them.
        epochs: Epochs of the lanes that go furthest.
        scheduler: What decides which do.
        lanes: How many run at once, if somebody said.
        own_order: Whether each lane has the order of its own seed.
        validates: Whether an epoch is followed by a validation.
        callbacks: What is told of it.
        stopping: What ends each lane by itself, if something does.
        seed: Of what is drawn.
        known: The variants of earlier rounds, which have their programs.
    """

    model: Model
    data: FitData
    rows: list[Rows] | None
    monitor: str
    mode: str
    space: Space
    places: dict[str, Place]
    placement: LanesOnDevices | None
    epochs: int
    scheduler: Any
    lanes: int | None
    own_order: bool
    validates: Callable[[int], bool]
    callbacks: list[SweepCallback]
    stopping: EarlyStopping | None
    seed: int
    known: list[Variant] = dataclasses.field(default_factory=list)

    def rounds(self) -> Iterator[list[Trial]]:
        """The trials, in as many rounds as a sampler wants to be told between."""
        if not self.space.asks:
            yield self._checked(self.space.trials())
            return
        while trials := self.space.ask(self.lanes or _ROUND):
            yield self._checked(trials)

    def _checked(self, trials: list[Trial]) -> list[Trial]:
        for path, place in self.places.items():
            values = {repr(t[path]): t[path] for t in trials if path in t}
            for value in values.values():
                place.check(self.model, value)
        return trials

    def make_lanes(self, trials: Sequence[Trial]) -> list[Lane]:
        """A lane for each trial, or for each trial in each fold."""
        variants = make_variants(
            self.model,
            self.data,
            self.places,
            trials,
            self.epochs,
            self.placement,
            self.known,
        )
        found = []
        for trial, variant in zip(trials, variants, strict=True):
            for fold, rows in enumerate(self.rows or [None]):
                number = None if self.rows is None else fold
                record = LaneRecord(dict(trial), fold=number)
                found.append(Lane(record, variant, rows))
        return found


def set_up(
    model: Model,
    x: Any,
    y: Any,
    *,
    over: Mapping[str, Any],
    epochs: int,
    batch_size: int | None,
    validation_split: float,
    validation_data: Any,
    monitor: str | None,
    mode: str,
    sampler: Any,
    halving: Any,
    scheduler: Any,
    folds: Any,
    groups: Any,
    order: str,
    lanes: int | None,
    mesh: Any,
    seed: int,
    checkpoint: Any,
    callbacks: Any,
    verbose: Any,
    shuffle: bool | str,
    class_weight: Mapping[Any, float] | None,
    sample_weight: Any,
    steps_per_epoch: int | None,
    validation_steps: int | None,
    validation_batch_size: int | None,
    validation_freq: int | list[int],
) -> SetUp:
    """Checks what ``sweep`` is given; builds the model, and prepares it for the data.

    Args:
        model: The model.
        **others: As of ``sweep``.
    """
    require_trainer(model, "sweep").holder.check_free("sweep")
    epochs = check_count("sweep", "epochs", epochs)
    check_choice("sweep", "order", order, ("own", "shared"))
    if lanes is not None:
        check_count("sweep", "lanes", lanes)
    if halving is not None and scheduler is not None:
        raise ArgumentError("sweep", "give halving= or scheduler=, not both")
    decides = halving or scheduler
    request = DataRequest(
        op="sweep",
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
    )
    told, stopping = make_callbacks(callbacks, verbose)
    placement = _placement(model, mesh)
    if folds is not None and (validation_data is not None or validation_split):
        raise ArgumentError(
            "sweep",
            "folds hold out rows themselves: leave validation_data and "
            "validation_split out",
        )
    data = read_fit_data(model, request)
    if groups is not None and folds is None:
        raise ArgumentError(
            "sweep", "groups are kept together in folds: pass folds=, a splitter"
        )
    rows = None if folds is None else _rows_of_folds(folds, data, groups)
    if rows is not None and decides is not None:
        if isinstance(decides, PBT):
            raise ArgumentError(
                "sweep", "folds of a trial would go on from different lanes with PBT"
            )
        decides = OfFolds(decides, len(rows))
    prepare_for_fit(model, data)
    monitor, mode = _monitor(model, data, monitor, mode, rows is not None)
    _check_stopping(stopping, model, decides, checkpoint)
    space = Space.of(over, sampler, seed, mode)
    return SetUp(
        model=model,
        data=data,
        rows=rows,
        monitor=monitor,
        mode=mode,
        space=space,
        places={path: find(model, path) for path in space.domains},
        placement=placement,
        epochs=epochs,
        scheduler=decides,
        lanes=lanes,
        own_order=order == "own",
        validates=request.validates,
        callbacks=told,
        stopping=stopping,
        seed=seed,
    )


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


def _check_stopping(
    stopping: EarlyStopping | None, model: Model, decides: Any, checkpoint: Any
) -> None:
    """Raises if lanes cannot be stopped early by themselves.

    Raises:
        ArgumentError: Something else needs them to go on.
    """
    if stopping is None:
        return
    optimizer: Any = model.optimizer
    averages = stopping.restore_best_weights and optimizer.keeps_average
    reasons = {
        "PBT, whose lanes go on from each other": isinstance(decides, PBT),
        "folds, whose lanes end together": isinstance(decides, OfFolds),
        "checkpoint=": checkpoint is not None,
        "restore_best_weights of averaged weights": averages,
        "every=": stopping.every is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ArgumentError("sweep", f"EarlyStopping does not go with {reason}")


def _rows_of_folds(folds: Any, data: FitData, groups: Any) -> list[Rows]:
    """Rows that each fold is trained on, and those that it is validated on."""
    if not isinstance(data.dataset, ArrayDataset):
        raise ArgumentError(
            "sweep", "folds need arrays, whose rows can be chosen, not a loader"
        )
    masks = fold_masks(folds, data.dataset.size, data.dataset.tree[1], groups)
    return [
        (np.flatnonzero(train), np.flatnonzero(held_out))
        for train, held_out in zip(*masks, strict=True)
    ]


def notes_of(variants: Sequence[Variant]) -> list[str]:
    """What runs in turn, and why."""
    found: dict[str, None] = {}
    distinct = dict.fromkeys(variants)
    for variant in distinct:
        for path, why in variant.constant.items():
            found[f"{path}: a program for each value, for {why}"] = None
    if len(distinct) > 1:
        found[f"{len(distinct)} programs run one after the other"] = None
    return list(found)
