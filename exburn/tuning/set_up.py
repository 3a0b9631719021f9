"""The arguments of a sweep, and what is made of them before anything is compiled."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exburn.callbacks import EarlyStopping
from exburn.callbacks.contract.monitor import MonitorCallback
from exburn.core.checks import check_choice, check_count, check_optional
from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, CallbackError, LayoutError, unknown_name
from exburn.models import Model
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.models.session import require_trainer
from exburn.training.requests import DataRequest, FitData
from exburn.training.state import TrainState
from exburn.tuning.callbacks import SweepCallback, make_callbacks
from exburn.tuning.folds import fold_masks
from exburn.tuning.groups import Rows
from exburn.tuning.hyperparameters import HyperparameterPlace, find
from exburn.tuning.placement import LanesOnDevices, placement_of
from exburn.tuning.records import LaneRecord, Trial
from exburn.tuning.schedulers import PBT, OfFolds
from exburn.tuning.space import Space
from exburn.tuning.variants import Variant, make_variants

_ROUND = 16  # trials that a sampler is asked for at once, where nobody says


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepRequest(DataRequest):
    """The arguments of ``sweep``."""

    op: str = dataclasses.field(default="sweep", init=False)
    over: Mapping[str, Any]
    epochs: int = 1
    monitor: str | None = None
    mode: str = "auto"
    sampler: Any = None
    halving: Any = None
    scheduler: Any = None
    folds: Any = None
    groups: Any = None
    order: str = "own"
    lanes: int | None = None
    mesh: Any = None
    seed: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    callbacks: Any = None
    verbose: int | str = "auto"

    def __post_init__(self) -> None:
        epochs = check_count("sweep", "epochs", self.epochs)
        object.__setattr__(self, "epochs", epochs)
        order = check_choice("sweep", "order", self.order, ("own", "shared"))
        object.__setattr__(self, "order", order)
        check_optional(check_count, "sweep", "lanes", self.lanes)
        if self.halving is not None and self.scheduler is not None:
            raise ArgumentError("sweep", "give halving= or scheduler=, not both")
        super().__post_init__()
        if self.folds is None:
            if self.groups is not None:
                raise ArgumentError(
                    "sweep",
                    "groups are kept together in folds: pass folds=, a splitter",
                )
        elif self.validation_data is not None or self.validation_split:
            raise ArgumentError(
                "sweep",
                "folds hold out rows themselves: leave validation_data and "
                "validation_split out",
            )

    @property
    def own_order(self) -> bool:
        """Whether each lane has the order of its own seed."""
        return self.order == "own"


@dataclasses.dataclass
class Lane:
    """One lane of a sweep.

    Attributes:
        weights: Its weights where it ended, on the host: parameters, frozen ones and
            others, by name.
        opt_state: Its optimizer's state there; ``None`` where the lane was stopped
            or turned NaN.
    """

    record: LaneRecord
    variant: Variant
    rows: Rows | None = None
    weights: tuple | None = None
    opt_state: Any = None
    step: int = 0

    def keep(self, state: TrainState, *, weights: bool) -> None:
        """Keeps a state on the host; that of a lane which turned NaN has no slots."""
        if weights:
            self.weights = state.params, state.frozen, state.others
        self.step = int(state.step)
        self.opt_state = None if self.record.status == "nan" else state.opt_state


@dataclasses.dataclass
class SetUp:
    """A sweep that could begin.

    Attributes:
        rows: Those of each fold, if there are folds.
        monitor, mode: The value that is compared, and which way it is better.
        space, places: The values that are tried, and where they are in the model.
        stopping: What ends each lane by itself, if something does.
        variants: Those of earlier rounds, which have their programs.
    """

    model: Model
    request: SweepRequest
    data: FitData
    rows: list[Rows] | None
    monitor: str
    mode: str
    space: Space
    places: dict[str, HyperparameterPlace]
    placement: LanesOnDevices | None
    scheduler: Any
    callbacks: list[SweepCallback]
    stopping: EarlyStopping | None
    variants: list[Variant] = dataclasses.field(default_factory=list)

    def rounds(self) -> Iterator[list[Trial]]:
        """The trials, in as many rounds as a sampler wants to be told between."""
        if not self.space.asks:
            yield self._check(self.space.trials())
            return
        while trials := self.space.ask(self.request.lanes or _ROUND):
            yield self._check(trials)

    def _check(self, trials: list[Trial]) -> list[Trial]:
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
            self.request.epochs,
            self.placement,
            self.variants,
        )
        lanes = []
        for trial, variant in zip(trials, variants, strict=True):
            for fold, rows in enumerate(self.rows or [None]):
                number = None if self.rows is None else fold
                record = LaneRecord(dict(trial), fold=number)
                lanes.append(Lane(record, variant, rows))
        return lanes


def set_up(model: Model, request: SweepRequest) -> SetUp:
    """Builds the model, and prepares it for the data of a sweep."""
    require_trainer(model, "sweep").holder.check_free("sweep")
    callbacks, stopping = make_callbacks(request.callbacks, request.verbose)
    placement = _placement(model, request.mesh)
    data = read_fit_data(model, request)
    scheduler, rows = request.halving or request.scheduler, None
    if request.folds is not None:
        rows = _rows_of_folds(request.folds, data, request.groups)
        if isinstance(scheduler, PBT):
            raise ArgumentError(
                "sweep", "folds of a trial would go on from different lanes with PBT"
            )
        if scheduler is not None:
            scheduler = OfFolds(scheduler, len(rows))
    prepare_for_fit(model, data)
    monitor, mode = _monitor(model, request, validates=data.validation is not None)
    _check_stopping(stopping, model, scheduler, request.checkpoint)
    space = Space.of(request.over, request.sampler, request.seed, mode)
    return SetUp(
        model=model,
        request=request,
        data=data,
        rows=rows,
        monitor=monitor,
        mode=mode,
        space=space,
        places={path: find(model, path) for path in space.domains},
        placement=placement,
        scheduler=scheduler,
        callbacks=callbacks,
        stopping=stopping,
    )


def _placement(model: Model, mesh: Any) -> LanesOnDevices | None:
    """Where lanes lie, if several devices divide them."""
    if (own := model._training_session.distribution_in_force) is not None:
        raise LayoutError(
            "sweep",
            "the model is compiled for a mesh, which divides each batch",
            {"distribution": own},
            hint="Compile it without mesh=, and pass sweep(mesh=…): lanes are divided.",
        )
    return placement_of(mesh)


def _monitor(
    model: Model, request: SweepRequest, *, validates: bool
) -> tuple[str, str]:
    """The value that is compared, and which way it is better."""
    validates = validates or request.folds is not None
    names = list(require_trainer(model, "sweep").preparer.names)
    names += [f"val_{name}" for name in names if validates]
    monitor = request.monitor
    if monitor is None:
        monitor = "val_loss" if validates else "loss"
    if monitor not in names:
        hint = ""
        if monitor.startswith("val_") and not validates:
            hint = "Pass validation_split, validation_data or folds."
        raise unknown_name("monitor", monitor, names, op="sweep", hint=hint)
    try:
        watch = MonitorCallback(monitor, request.mode)
        watch.set_model(model)
        return monitor, "max" if watch._rises() else "min"
    except CallbackError as error:
        raise ArgumentError(
            "sweep", error.reason, hint="Pass mode='min' or mode='max'."
        ) from None


def _check_stopping(
    stopping: EarlyStopping | None, model: Model, scheduler: Any, checkpoint: Any
) -> None:
    """Raises if lanes cannot be stopped early by themselves."""
    if stopping is None:
        return
    optimizer: Any = model.optimizer
    averages = stopping.restore_best_weights and optimizer.keeps_average
    reasons = {
        "PBT, whose lanes go on from each other": isinstance(scheduler, PBT),
        "folds, whose lanes end together": isinstance(scheduler, OfFolds),
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
    """Sentences on what runs in turn, and why."""
    distinct = dict.fromkeys(variants)
    notes = dict.fromkeys(
        f"{path}: a program for each value, for {why}"
        for variant in distinct
        for path, why in variant.constant.items()
    )
    if len(distinct) > 1:
        notes[f"{len(distinct)} programs run one after the other"] = None
    return list(notes)
