"""The loop of a sweep: epochs of all lanes, rungs, and what is left of each lane."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from exburn.callbacks.contract import History
from exburn.errors import ArgumentError, DataError, warn
from exburn.models import Model
from exburn.models.fit_data import prepare_for_fit
from exburn.models.saving import set_training_state
from exburn.models.session import require_trainer
from exburn.runtime.donation import is_consumed
from exburn.runtime.signals import Termination, defer_signals
from exburn.training.numbers import is_number
from exburn.training.objective.readings import Readings
from exburn.training.state import TrainState
from exburn.tuning import lanes
from exburn.tuning.early_stops import EarlyStops
from exburn.tuning.groups import Group, cut, read_lanes
from exburn.tuning.records import LaneRecord, best_of
from exburn.tuning.schedulers import PBT, Rung, lane_epochs
from exburn.tuning.set_up import Lane, SetUp
from exburn.tuning.variants import Variant
from exburn.tuning.width_choice import WidthChoice

if TYPE_CHECKING:
    from exburn.tuning.checkpoint import SweepCheckpoint


class SweepRun:
    """A sweep under way.

    Args:
        run_lanes: The lanes.
        ready: What the sweep was given.
        width: Says how many lanes run at once.
        notes: What is said of it before it begins.

    Attributes:
        lanes: The lanes.
        epochs: How long the longest of them train.
        monitor, mode: What is compared, and which way it is better.
        rungs: The stretches between two decisions.
        groups: The lanes that run, by the programs that they run in.
        variants: The models that programs are made of.
        begun: The trial that each lane began with.
        done: Epochs that all lanes that run have behind them.
        decided: Rungs after which it is decided who goes on.
    """

    def __init__(
        self,
        run_lanes: Sequence[Lane],
        ready: SetUp,
        width: WidthChoice,
        notes: Sequence[str] = (),
    ):
        self.lanes, self.epochs = list(run_lanes), ready.request.epochs
        self.monitor, self.mode = ready.monitor, ready.mode
        self._ready, self._width, self._notes = ready, width, list(notes)
        self._stops = False
        self._parks = False  # whether groups that do not run are in host memory
        self.groups: list[Group] = []
        self.done = self.decided = 0
        self.variants = list(dict.fromkeys(lane.variant for lane in self.lanes))
        self.begun = [dict(record.trial) for record in self.records]
        self.rungs = rungs_of(ready, len(self.lanes))
        self._early: EarlyStops | None = None
        if ready.stopping is not None:
            self._early = EarlyStops(ready.stopping, ready.model, self.monitor)

    # ------------------------------------------------------------------ for callbacks
    @property
    def records(self) -> list[LaneRecord]:
        """What each lane has logged, in the order of the trials."""
        return [lane.record for lane in self.lanes]

    def best(self) -> LaneRecord:
        """The lane of the best score so far."""
        return best_of(self.records, self.mode)

    @property
    def notes(self) -> list[str]:
        """What runs in turn, and why; how many lanes run at once."""
        widths = [group.width for group in self.groups]
        notes = [*self._notes, *self._width.notes]
        if len(widths) > 1:
            text = f"{len(widths)} groups of at most {max(widths)} lanes"
            notes.append(f"{text} run one after the other")
        if self._parks:
            notes.append("groups wait in host memory: the device cannot hold them all")
        return notes

    def stop(self) -> None:
        """Ends the sweep after this epoch."""
        self._stops = True

    def describe(self) -> list[str]:
        """What is to be done, in lines."""
        work = lane_epochs(self.rungs)
        line = f"{len(self.lanes)} lanes, {work:,} epochs of a lane in all"
        if len(self.rungs) > 1:
            steps = " → ".join(f"{r.lanes} to {r.epochs}" for r in self.rungs)
            line += f"; lanes to epoch: {steps}"
        return [line, *self.notes]

    # ------------------------------------------------------------------ the loop
    def run(self, checkpoint: SweepCheckpoint | None = None) -> None:
        """Trains all lanes to their ends.

        Args:
            checkpoint: A folder to go on from, and to write into: also where an
                exception ends the sweep.
        """
        for callback in self._ready.callbacks:
            callback.run = self
        if checkpoint is None or not checkpoint.restore(self):
            self._regroup({number: number for number in self._running()})
        self._tell("on_sweep_begin")
        try:
            with Termination(checkpoint is not None) as self._termination:
                self._run_rungs(checkpoint)
            self._end()
            if checkpoint is not None:
                checkpoint.save(self)
        except BaseException as error:
            with defer_signals():  # what the lanes have come to is not lost
                if checkpoint is not None:
                    checkpoint.save_after(error, self)
                self._end()
            raise
        finally:
            if checkpoint is not None:
                checkpoint.close()
            self._close()
        self._tell("on_sweep_end")

    def _run_rungs(self, checkpoint: SweepCheckpoint | None) -> None:
        """Trains to the end of each rung, and decides who goes on."""
        for number, rung in enumerate(self.rungs):
            if self.done < rung.epochs:
                self._train_until(rung, checkpoint)
            if self._is_over:
                return
            if number >= self.decided and rung is not self.rungs[-1]:
                with _undoing(self):
                    self._decide(rung)
                    self.decided = number + 1
                if checkpoint is not None:
                    checkpoint.save(self)

    def _end(self) -> None:
        """Says how each lane ended, and keeps what it has come to."""
        for lane in self.lanes:
            if lane.record.status == "running":
                ended = lane.record.epochs >= self.epochs
                lane.record.status = "finished" if ended else "stopped"
        self._keep(range(len(self.lanes)), whole=True)
        if self._early is not None:
            self._early.score(self.records)
        self.groups = []

    def _train_until(self, rung: Rung, checkpoint: SweepCheckpoint | None) -> None:
        """Trains to the end of a rung."""
        while self.done < rung.epochs and not self._is_over:
            epoch = self.done
            self._epoch(epoch, must_validate=epoch + 1 == rung.epochs)
            self._tell("on_epoch_end", epoch)
            if checkpoint is not None and checkpoint.is_due():
                checkpoint.save(self)

    def _leave_if_told(self) -> None:
        """Ends the process if it was told to, at a place that can be gone on from."""
        if self._termination.requested:
            self._termination.leave()

    @property
    def _is_over(self) -> bool:
        return self._stops or not self._running()

    def _running(self) -> list[int]:
        return [i for i, r in enumerate(self.records) if r.status == "running"]

    def _epoch(self, epoch: int, must_validate: bool) -> None:
        """Trains all groups for an epoch; reads what they log when all are begun."""
        read, last = [], epoch + 1 == self.epochs
        validates = self._ready.request.validates(epoch) or (
            must_validate and self.monitor.startswith("val_")
        )
        for group in self.groups:
            frozen = [self.records[i].status == "nan" for i in group.members]
            with self._on_device(group):
                logs = group.train(
                    epoch, frozen, last=last, after_chunk=self._leave_if_told
                )
                held_out = group.validate() if validates else None
            if (ended := group.feed.feed.ended) is not None:
                warn(f"{ended}: the sweep ends here")
                self.stop()
            if logs is not None:  # else no data came any more
                read.append((group, logs, held_out))
        for group in self.groups:
            group.compile_ahead(self._widths_after(epoch, group))
        logged = [
            (group, _values_of(group, logs), _values_of(group, held_out))
            for group, logs, held_out in read
        ]
        with defer_signals():  # all lanes have an epoch behind them, or none has
            for group, means, tested in logged:
                self._note(group, means, tested)
                group.end_epoch()
            self.done = epoch + 1
        if self._early is not None:
            self._stop_early(self._early, epoch)

    def _stop_early(self, early: EarlyStops, epoch: int) -> None:
        """Keeps the best weights of lanes, and ends those that improve no more."""
        best, over = early.look(epoch, self.records)
        self._keep(best, whole=False)
        early.kept |= {*best}
        if not over:
            return
        self._keep(over, whole=True)
        for number in over:
            self.records[number].status = "finished"
        early.score(self.records)
        going = [i for i in self._running() if self._takes_part(i)]
        self._regroup({i: i for i in going})

    def _widths_after(self, epoch: int, group: Group) -> list[int]:
        """Widths of the programs that the lanes which go on will need.

        Known where there is one group, of which schedulers leave so many lanes.
        """
        variant = group.variant
        alone = len(self.groups) == len(self.variants) == 1
        if not alone or group.width == 1 or self._width.fills_up(variant):
            return []
        if variant.preparer.passes.times_convolutions:
            return []
        following = [rung.lanes for rung in self.rungs if rung.epochs > epoch + 1]
        parts = [
            part
            for lanes in following
            for part in cut(lanes, min(lanes, group.width), variant.placement.devices)
        ]
        return sorted({len(part) for part in parts} - {1, group.width}, reverse=True)

    @contextlib.contextmanager
    def _on_device(self, group: Group) -> Iterator[None]:
        """In the block a group's states are on the device."""
        group.unpark()
        yield
        if self._parks:
            group.park()

    def _note(
        self,
        group: Group,
        means: list[dict[str, Any]],
        tested: list[dict[str, Any]],
    ) -> None:
        """Notes what the lanes of a group have logged, and which turned NaN."""
        for at, number in enumerate(group.members):
            record = self.records[number]
            if number in group.members[:at] or record.status != "running":
                continue
            values = means[at]
            if tested:
                values |= {f"val_{name}": v for name, v in tested[at].items()}
            record.log(values, self.monitor)
            if self._early is not None:
                self._early.logs[number] = values
            if not math.isfinite(values.get("loss", 0.0)):
                record.status, record.score = "nan", math.nan

    def _decide(self, rung: Any) -> None:
        """Asks the scheduler which lanes go on, and from where."""
        going = [i for i in range(len(self.lanes)) if self._takes_part(i)]
        scores = np.array([self.records[i].score for i in going])
        scheduler = self._ready.scheduler
        if isinstance(scheduler, PBT):
            self._exploit(scheduler, rung, going, scores)
            return
        places = scheduler.keep(scores, self.mode, rung, np.asarray(going))
        left = {going[int(at)] for at in places}
        stopped = [i for i in self._running() if i not in left]
        self._keep([i for i in going if i not in left], whole=False)
        for number in stopped:
            self.records[number].status = "stopped"
        self._tell("on_rung_end", rung.epochs, stopped)
        self._ready.space.tell(self.records)
        self._regroup({i: i for i in going if i in left and i in self._running()})

    def _exploit(
        self, scheduler: PBT, rung: Any, going: list[int], scores: np.ndarray
    ) -> None:
        """Has lanes go on from the states of others, with values near theirs."""
        trials = [self.records[i].trial for i in going]
        rng = np.random.default_rng([self._ready.request.seed, rung.epochs])
        space = self._ready.space
        chosen, new = scheduler.exploit(scores, trials, rng, self.mode, space)
        pairs = zip(going, chosen, strict=True)
        sources = {number: going[int(at)] for number, at in pairs}
        before = {number: self.lanes[number].variant for number in going}
        for number, trial in zip(going, new, strict=True):
            if (source := sources[number]) == number:
                continue
            lane, record = self.lanes[number], self.records[number]
            lane.variant, record.trial = before[source], dict(trial)
            record.score, record.status = self.records[source].score, "running"
        self._tell("on_rung_end", rung.epochs, [])
        space.tell(self.records)
        self._regroup(sources)
        for group in self.groups:
            with self._on_device(group):
                group.set_values()

    def _takes_part(self, number: int) -> bool:
        """Whether a lane is in a group: it runs, or has turned NaN since."""
        return any(number in group.members for group in self.groups)

    # ------------------------------------------------------------------ groups
    def _regroup(self, sources: dict[int, int]) -> None:
        """Puts lanes into groups.

        Args:
            sources: The number of each lane, and of that whose state it goes on from.
        """
        old: list[Group] = self.groups
        alike: dict[tuple, list[int]] = {}
        for number in sources:
            lane = self.lanes[number]
            alike.setdefault((lane.variant, *_sizes(lane)), []).append(number)
        parts = [
            (variant, part)
            for (variant, *_), own in alike.items()
            for part in self._parts(variant, own)
        ]
        _check_readings(parts)
        self.decide_parking([(variant, len(part)) for variant, part in parts])
        groups: list[Group] = []
        for variant, part in parts:
            state = _state_of([sources[i] for i in part], old) if old else None
            group = self.make_group(variant, part, state)
            position = old[0].feed.feed.position(begin=False) if old else None
            if position is not None and not variant.data.is_read_once:
                feed: Any = group.feed.feed  # of a loader: all have read as much
                feed.go_to(position)
            groups.append(self._park(group))
        self.groups = groups

    def decide_parking(self, groups: Sequence[tuple[Variant, int]]) -> None:
        """Decides whether groups of so many lanes wait in host memory."""
        self._parks = self._width.must_park(groups)

    def add(self, group: Group) -> None:
        """Adds a group to those that run."""
        self.groups.append(self._park(group))

    def _park(self, group: Group) -> Group:
        if self._parks:
            group.park()
        return group

    def _parts(self, variant: Variant, numbers: list[int]) -> list[list[int]]:
        """The lanes of each group, some of which may come several times."""
        own = [self.lanes[i] for i in numbers]
        rows = [lane.rows for lane in own if lane.rows is not None]
        trials = [lane.record.trial for lane in own]
        left = self.epochs - max(lane.record.epochs for lane in own)
        width = self._width(variant, trials, rows or None, left)
        exactly = width > 1 and self._width.fills_up(variant)
        parts = cut(len(numbers), width, variant.placement.devices, exactly)
        return [[numbers[at] for at in part] for part in parts]

    def make_group(self, variant: Variant, members: list[int], state: Any) -> Group:
        """A group of lanes; they begin anew without a state."""
        own = [self.lanes[i] for i in members]
        rows = [lane.rows for lane in own if lane.rows is not None]
        return Group(
            variant,
            members,
            [lane.record.trial for lane in own],
            state=state,
            rows=rows or None,
            own_order=self._ready.request.own_order,
        )

    def _close(self) -> None:
        for variant in self.variants:
            variant.close()
        self.groups = []

    def _keep(self, numbers: Any, whole: bool) -> None:
        """Keeps the weights of lanes that end here, on the host.

        Args:
            numbers: Those of the lanes.
            whole: Whether the optimizers' states are kept, too.
        """
        chosen = set(numbers)
        for group in self.groups:
            if not chosen.intersection(group.members):
                continue
            if is_consumed(group.state.step):  # by a program that failed
                continue
            state = group.state.replace(metrics=None)
            if not whole:
                state = state.replace(opt_state=None)
            host = jax.device_get(state)
            for at, number in enumerate(group.members):
                if number not in chosen or number in group.members[:at]:
                    continue
                lane = self.lanes[number]
                best = self._early is not None and number in self._early.kept
                lane.keep(lanes.lane(host, at), weights=not (whole and best))

    def _tell(self, hook: str, *args: Any) -> None:
        for callback in self._ready.callbacks:
            getattr(callback, hook)(*args)


@contextlib.contextmanager
def _undoing(run: SweepRun) -> Iterator[None]:
    """Takes back what the block has decided if it raises."""
    groups, decided = run.groups, run.decided
    before = [
        (copy.copy(lane), dataclasses.replace(lane.record, trial={**trial}))
        for lane, trial in ((lane, lane.record.trial) for lane in run.lanes)
    ]
    try:
        yield
    except BaseException:
        with defer_signals():
            run.groups, run.decided = groups, decided
            for lane, (fields, record) in zip(run.lanes, before, strict=True):
                vars(lane.record).update(vars(record))
                vars(lane).update(vars(fields))
        raise


def _values_of(group: Group, logs: Readings | None) -> list[dict[str, Any]]:
    """What each lane of a group has logged; empty where nothing was."""
    return [] if logs is None else read_lanes(logs, group.variant.preparer.names)


def _sizes(lane: Lane) -> tuple[int, ...]:
    """What lanes of one group have in common: numbers of rows, if these are exact.

    The seed, where a loader orders its batches by it.
    """
    data, exact = lane.variant.data, lane.variant.preparer.exact_rows
    if data.shuffle and getattr(data.dataset, "shuffles", False):
        return (lane.variant.seed(lane.record.trial),)
    if lane.rows is None or not (exact(True) or exact(False)):
        return ()
    return tuple(map(len, lane.rows))


def _check_readings(groups: Sequence[tuple[Variant, list[int]]]) -> None:
    """Raises if several groups would read data that are there once."""
    if len(groups) > 1 and any(variant.data.is_read_once for variant, _ in groups):
        raise DataError(
            "sweep",
            "a generator gives its batches once, and these lanes run in several groups",
            {"groups": len(groups)},
            hint="Pass arrays, a DataLoader or a tf.data.Dataset, or vary what runs in "
            "one program: sweep.plan(…).notes says what does not.",
        )


def rungs_of(ready: SetUp, lanes: int) -> list[Rung]:
    """The stretches of a sweep of so many lanes between two decisions."""
    if ready.scheduler is None:
        return [Rung(ready.request.epochs, lanes)]
    return ready.scheduler.plan(lanes, ready.request.epochs)


def _state_of(members: Sequence[int], groups: Sequence[Group]) -> TrainState:
    """The states of lanes of several groups, in the order of the members."""
    states, places, order = [], [], []
    for group in groups:
        own = [n for n in dict.fromkeys(members) if n in group.members]
        if own:
            states.append(group.state.replace(metrics=None))
            places.append([group.members.index(n) for n in own])
            order += own
    return lanes.join(states, places, [order.index(number) for number in members])


def build_model(lane: Lane) -> Model:
    """The model of a lane, compiled like the sweep's, with all that the lane has."""
    variant, trial = lane.variant, lane.record.trial
    model = variant.make_alone(trial)
    prepare_for_fit(model, dataclasses.replace(variant.data))
    for path, value in trial.items():
        if path not in variant.fixed and path not in variant.widths:
            variant.places[path].set(model, value)
    holder = require_trainer(model, "sweep").holder
    if lane.weights is None:
        raise ArgumentError(
            "SweepResult", "the sweep was ended before this lane had any weights"
        )
    params, frozen, others = variant.narrow(trial, lane.weights)
    others = {name: v for name, v in others.items() if not is_number(name)}
    opt_state = None
    if lane.opt_state is not None:
        opt_state = jax.device_put(variant.narrow(trial, lane.opt_state))
        optimizer = holder.optimizer
        if optimizer.keeps_average:  # as at the end of a fit
            params = optimizer.final_params(opt_state, params)
    holder.split.write(*map(jax.device_put, (params, frozen, others)))
    state = {
        "seed": variant.seed(trial),
        "step": lane.step,
        "epochs": variant.holder.epochs + lane.record.epochs,
        "opt_state": opt_state,
    }
    set_training_state(model, state)
    if opt_state is not None:
        holder.refit_state()
    history = History()
    history.set_model(model)
    history.on_train_begin()
    history.history = {name: [*values] for name, values in lane.record.history.items()}
    history.epoch = list(range(lane.record.epochs))
    history.seed = state["seed"]
    model.history = history
    return model
