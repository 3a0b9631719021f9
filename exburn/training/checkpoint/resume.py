"""Taking a run up again where a checkpoint left it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax

from exburn.callbacks import StateCheckpoint
from exburn.callbacks.contract import CallbackList
from exburn.errors import ArgumentError, CheckpointError, warn
from exburn.module.traversal import iter_weights
from exburn.module.variable import assign
from exburn.runtime.sharding import processes
from exburn.saving.checkpoint import Checkpoint, Saved, saved_at
from exburn.saving.checkpoint.arrays import weights_of
from exburn.saving.checkpoint.values import decode, equal
from exburn.training.checkpoint.provenance import (
    PARTS,
    Provenance,
    differ_error,
    part_of,
)
from exburn.training.checkpoint.run_points import flatten, layouts_of, unflatten
from exburn.training.feed.base import Feed, StreamFeed
from exburn.training.prepare import Preparer
from exburn.training.state import TrainState

_STATE, _PARAMS, _SLOTS = "state/", "state/params/", "state/opt_state/"
_PARTS = "ended stop plan logs callbacks data seed savers provenance".split()


class Resume:
    """A run as a checkpoint holds it.

    Attributes:
        epoch, batch: Where it goes on.
        within: Whether that is within an epoch, whose beginning is over.
        stop: Whether a callback had already stopped the run.
        logs: What the last finished epoch logged.
        earlier: Epochs of the runs before it.
        first: Number of its first epoch, if that matters to the order of the rows.
    """

    def __init__(self, saved: Saved):
        self.saved, run = saved, saved.run
        if run.get("weights_only"):
            raise CheckpointError(
                "fit",
                "the checkpoint holds weights alone, from which no run can go on",
                {"checkpoint": self.where},
                hint="model.load_checkpoint(path) takes them; save_weights_only=False "
                "saves whole runs.",
            )
        self.epoch, self.batch = saved.checkpoint.epoch, saved.checkpoint.batch
        missing = [name for name in _PARTS if name not in run]
        if missing:
            raise CheckpointError(
                "fit",
                "the checkpoint does not hold a run",
                {"checkpoint": self.where, "missing": ", ".join(missing)},
                hint="Only checkpoints that fit() has saved can be resumed from.",
            )
        self.within = not run["ended"]
        self.stop, self.plan = run["stop"], run["plan"]
        begun = self.epoch + self.within
        self.earlier: int = run.get("epochs", begun) - begun
        self.first: int = run["data"].get("first", 0)
        self.logs: dict[str, Any] = decode(run["logs"], saved.arrays)
        self._callbacks: dict[str, Any] = decode(run["callbacks"], saved.arrays)
        self._state: TrainState | None = None

    @property
    def run_id(self) -> str:
        return self.saved.checkpoint.run

    @property
    def where(self) -> Path:
        return self.saved.checkpoint.path

    def compare(self, provenance: Provenance, may_differ: Collection[str]) -> None:
        """Raises if the result would depend on something else than in the saved run."""
        saved = self.saved.run["provenance"]
        if differences := provenance.differences_from(saved, may_differ):
            names = dict.fromkeys(part_of(d.partition(":")[0]) for d in differences)
            hint = "Train it as it was, or begin anew, in another folder"
            if names.keys() <= set(PARTS):  # else something can never differ
                hint = hint.replace(", or", ";") + (
                    f"; or go on with what has changed: fit(may_differ={[*names]})"
                )
            raise differ_error(
                "fit",
                "the run that is to be resumed was trained otherwise",
                differences,
                self.where,
                hint + ".",
            )

    def check(self, feed: Feed) -> None:
        """Within an epoch, the next batches must be those that were to follow."""
        saved, facts = self.saved.run["data"], feed.facts
        if self.within and facts != saved:
            raise CheckpointError(
                "fit",
                "the checkpoint lies within an epoch of other batches",
                {"saved": saved, "now": facts, "checkpoint": self.where},
                hint="Pass the same data, batch_size, shuffle and steps_per_epoch, or "
                "resume from a checkpoint between two epochs.",
            )

    def go_on(self, feed: Feed, validation_feed: Feed | None) -> None:
        """Brings sources that go on through the epochs to where they were."""
        for name, source in (("source", feed), ("validation", validation_feed)):
            if isinstance(source, StreamFeed):
                source.go_to(self.saved.run[name])

    def restore(
        self,
        preparer: Preparer,
        callbacks: CallbackList,
        may_differ: Collection[str] = (),
    ) -> None:
        """Gives module, optimizer and callbacks what was saved; all of it or nothing.

        Args:
            may_differ: As of ``compare``: with another optimizer its rate holds.
        """
        saved = self.saved
        names = [*saved.arrays, *saved.left]
        trained = {k.removeprefix(_PARAMS) for k in names if _PARAMS in k}
        if preparer.freeze_as(trained):  # a callback of the saved run may have done so
            warn(
                f"fit: layers are frozen as in the run that is resumed; {len(trained)} "
                f"weights are trained. A callback had changed that, or the model is "
                "frozen otherwise now: then start without resuming.",
            )
        target: TrainState = preparer.initial_state()
        optimizer = preparer.holder.optimizer
        target = target.replace(
            opt_state=optimizer.as_stored(
                optimizer.as_initial(target.opt_state),
                target.params,
                [k.removeprefix(_SLOTS) for k in names if k.startswith(_SLOTS)],
            )
        )
        arrays: dict[str, Any] = {
            k: v for k, v in saved.arrays.items() if k.startswith(_STATE)
        } | {
            name: jax.ShapeDtypeStruct(tuple(shape), jax.numpy.dtype(dtype))
            for name, (dtype, shape) in saved.left.items()
        }
        if not self.within:  # the next epoch begins with fresh totals
            totals = {k: v for k, v in flatten(target).items() if _is_total(k)}
            arrays = {k: v for k, v in arrays.items() if not _is_total(k)} | totals
        self._compare(flatten(target), arrays)
        if saved.left:  # each process reads what its devices are to hold
            arrays |= saved.read_left(layouts_of(target))
        state = unflatten(target, arrays)
        if "optimizer" in may_differ and optimizer.schedule is None:
            rate = {"learning_rate": optimizer.learning_rate}
            new = optimizer.with_hyperparameters(state.opt_state, **rate)
            state = state.replace(opt_state=new)
        present = callbacks.state_dict()
        for name in self.saved.run["savers"]:  # what saves is up to the new run
            if name not in present:
                self._callbacks.pop(name, None)
        callbacks.load_state_dict(self._callbacks)
        preparer.holder.adopt(state)
        preparer.holder.reseed(self.saved.run["seed"])
        preparer.holder.epochs = self.earlier + self.epoch + self.within
        self._state = state

    def state_for_hooks(self, state: TrainState) -> TrainState:
        """What hooks see before the restored state takes the place of the module's.

        It is in the same dictionaries: in others its arrays would seem to be somebody
        else's, too, and would be copied.
        """
        own = self._state
        assert own is not None
        return state.replace(params=own.params, frozen=own.frozen, others=own.others)

    def state(self, callbacks: CallbackList) -> TrainState:
        """The restored state, whatever hooks have made of it in the meantime.

        Callbacks that changed their own state as the run, or the epoch, began get it
        back, too: in the saved run that had already happened.
        """
        assert self._state is not None
        now = callbacks.state_dict()
        changed = {
            name: state
            for name, state in self._callbacks.items()
            if not equal(now.get(name, {}), state)
        }
        callbacks.load_state_dict(changed)
        return self._state

    def _compare(self, target: dict[str, Any], arrays: dict[str, Any]) -> None:
        missing = [name for name in target if name not in arrays]
        extra = [name for name in arrays if name not in target]
        other = [
            f"{name}: {a.dtype}{list(a.shape)} saved, {t.dtype}{list(t.shape)} here"
            for name, t in target.items()
            if (a := arrays.get(name)) is not None
            and (a.dtype, a.shape) != (t.dtype, t.shape)
        ]
        if missing or extra or other:
            raise CheckpointError(
                "fit",
                "the checkpoint belongs to another model, optimizer or set of metrics",
                {
                    "checkpoint": self.where,
                    "not in the checkpoint": ", ".join(missing) or "none",
                    "only in the checkpoint": ", ".join(extra) or "none",
                    "different": "; ".join(other) or "none",
                },
                hint="Build and compile the model as in the run that was saved.",
            )


def find(resume: Any, callbacks: CallbackList, together: bool = False) -> Resume | None:
    """The run to take up: as ``fit`` was told, or as a callback wants it.

    Args:
        together: Whether several processes take it up: the one that process 0 finds.
    """
    if not together:
        return _find(resume, callbacks)
    run = _find(resume, callbacks, _STATE) if processes.is_main() else None
    where = processes.broadcast(None if run is None else str(run.where))
    if run is None and where is not None:
        run = Resume(_at(where, leave=_STATE))
    return run


def _find(
    resume: Any, callbacks: CallbackList, leave: str | None = None
) -> Resume | None:
    recorders = [
        c
        for c in callbacks.callbacks
        if isinstance(c, StateCheckpoint) and c.writer and not c.weights_only
    ]
    if resume is None:
        recorders = [c for c in recorders if c.restores]
    elif resume != "auto":
        return Resume(_at(resume, leave=leave))
    elif not recorders:
        raise ArgumentError(
            "fit",
            'resume="auto" needs a callback that saves the whole run',
            hint='callbacks=[ModelCheckpoint("checkpoints/")]',
        )
    steps = {}
    for recorder in recorders:
        assert recorder.writer is not None
        listed = recorder.writer.directory.checkpoints()
        steps[recorder] = listed[-1].step if listed else -1
    for recorder in sorted(recorders, key=lambda c: -steps[c]):
        assert recorder.writer is not None
        directory = recorder.writer.directory
        saved = directory.latest(leave)
        if saved is not None:
            recorder.writer.damaged = directory.newer_than(saved.checkpoint)
            return Resume(saved)
    return None


def load_weights(model: Any, place: Any) -> None:
    """Gives a built model the weights of a checkpoint; all of them or none."""
    saved = _at(
        place.path if isinstance(place, Checkpoint) else place, "load_checkpoint"
    )
    weights = weights_of(saved.arrays)
    own = {name: weight for name, weight, _ in iter_weights(model)}
    wrong = [
        n for n, w in own.items() if n not in weights or weights[n].shape != w.shape
    ]
    if wrong:
        raise CheckpointError(
            "load_checkpoint",
            "the checkpoint belongs to another model",
            {"missing or of another shape": ", ".join(wrong)},
        )
    for name, weight in own.items():
        assign(weight, weights[name])


def _at(place: Any, op: str = "fit", leave: str | None = None) -> Saved:
    if not isinstance(place, str | os.PathLike):
        raise ArgumentError(
            op,
            f"a folder of checkpoints, or one of them, is needed, received {place!r}",
        )
    saved = saved_at(place, leave)
    if saved is None:  # the folder of a run has them in one of its own
        saved = saved_at(Path(place, "checkpoints"), leave)
    if saved is None:
        raise CheckpointError(
            op,
            "there is no checkpoint to resume from",
            {"received": repr(place), "folder": Path(place).resolve()},
            hint='fit(resume="auto") begins afresh where there is none.',
        )
    return saved


def _is_total(name: str) -> bool:
    return name.startswith("state/metrics/")
