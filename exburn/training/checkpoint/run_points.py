"""Where a run can be taken up again, and what has to be saved there."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from exburn.callbacks.contract import CallbackList
from exburn.runtime.placement import is_bound
from exburn.runtime.sharding.arrays import put
from exburn.runtime.signals import Termination
from exburn.saving.checkpoint import CheckpointWriter
from exburn.saving.checkpoint.arrays import WEIGHTS
from exburn.saving.checkpoint.snapshot import Snapshot
from exburn.saving.checkpoint.values import encode
from exburn.training.agreement import Agreement
from exburn.training.checkpoint.provenance import Provenance
from exburn.training.feed.base import Feed
from exburn.training.numbers import is_number
from exburn.training.objective.readings import Readings
from exburn.training.prepare import Preparer
from exburn.training.state import TrainState


@dataclasses.dataclass
class RunPoint:
    """A place of a run from which it can go on exactly.

    Attributes:
        epoch, batch: The epoch, counted from 0, and how many of its batches are done.
        step: Batches done since ``compile``.
        ended: The epoch, its validation and its hooks are over; the next one follows.
        terminating: The process was told to end and does so after this.
    """

    epoch: int
    batch: int
    step: int
    ended: bool
    terminating: bool
    _read: Callable[[], dict[str, Any]]
    _requests: list[tuple[CheckpointWriter, float | None, bool]] = dataclasses.field(
        default_factory=list
    )

    @property
    def logs(self) -> dict[str, Any]:
        """The epoch's logs, or, within an epoch, the means so far."""
        return self._read()

    def save(
        self,
        writer: CheckpointWriter,
        *,
        score: float | None = None,
        weights_only: bool = False,
    ) -> None:
        """Has the run saved, once every callback has seen this point.

        Args:
            score: What ``writer`` finds the best checkpoint by.
            weights_only: Leaves out all but the weights: no run can go on from that.
        """
        self._requests.append((writer, score, weights_only))


class Checkpointing:
    """Offers the points of a run to its callbacks, and saves where they ask for it.

    Args:
        provenance: What the result of the run depends on; ``None`` if nothing is saved.
    """

    def __init__(
        self,
        preparer: Preparer,
        callbacks: CallbackList,
        owner: Any,
        feed: Feed,
        validation_feed: Feed | None,
        resume: Any = None,  # an exburn.training.checkpoint.resume.Resume
        provenance: Provenance | None = None,
    ):
        self._provenance = provenance
        self.preparer, self.callbacks, self.owner = preparer, callbacks, owner
        self.feed, self.validation_feed = feed, validation_feed
        run_id = uuid.uuid4().hex if resume is None else resume.run_id
        self.active = callbacks.listens("on_checkpoint")
        self.termination = Termination(self.active)
        self.agreement = Agreement(preparer.holder, owner, "fit", self.termination)
        self.run_id = self.agreement.first(run_id)
        # Batches before this fit, or this epoch.
        self._before: int = preparer.holder.step
        self._snapshot = Snapshot()
        self._busy: list[CheckpointWriter] = []  # those that may read the snapshot
        self._logs: dict[str, Any] = {} if resume is None else resume.logs

    def __enter__(self) -> Checkpointing:
        self.termination.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        try:
            if exception[0] is None:
                self.agreement.settle()
        finally:
            self.termination.__exit__(*exception)

    def begin_epoch(self, done: int) -> None:
        """Notes that an epoch begins, or goes on after some of its batches."""
        self._before -= done

    def after_chunk(self, epoch: int, batch: int, readings: Readings) -> None:
        """A point within an epoch."""
        if self.active:
            read = functools.partial(self.preparer.read_logs, readings)
            self._offer(epoch, batch, read, ended=False)

    def after_epoch(self, epoch: int, batch: int, logs: dict[str, Any]) -> None:
        """A point between two epochs; ``batch`` batches were done in the last one."""
        self._before += batch
        self._logs = dict(logs)
        if self.active:
            self._offer(epoch, 0, lambda: logs, ended=True)

    def in_validation(self, epoch: int, batch: int, logs: dict[str, Any]) -> None:
        """Ends the process if it was told to during the epoch's validation."""
        if self.agreement.ends:
            self._offer(epoch, batch, lambda: logs, ended=False, validating=True)

    def _offer(
        self, epoch: int, batch: int, read, *, ended: bool, validating: bool = False
    ) -> None:
        step, last = self._before + batch, self.agreement.ends
        point = RunPoint(epoch, batch, step, ended, last, read)
        # Whole states are saved from the trainer's arrays, the rest from the module's.
        light = not last and self.callbacks.light_in("on_checkpoint")
        self.preparer.holder.call_hook(self.callbacks.on_checkpoint, point, light=light)
        if point._requests:
            self._save(point, validating)
        if last:
            self.termination.leave()

    def _save(self, point: RunPoint, validating: bool) -> None:
        for writer in self._busy:
            writer.wait()
        self._busy = []
        extra: dict[str, np.ndarray] = {}
        run = self._describe(point, validating, extra)
        assert (state := self.preparer.holder.state) is not None
        arrays = flatten(state)
        place = {
            "step": point.step,
            "epoch": point.epoch + point.ended,
            "batch": point.batch,
            "run_id": self.run_id,
        }
        beside = [w for w, _, _ in point._requests if w.background]
        if beside and not point.terminating:
            arrays = self._snapshot.take(arrays)
            self._busy = beside
        weights = {k: v for k, v in arrays.items() if k.startswith(WEIGHTS)}
        about = {"versions": run["versions"], "weights_only": True}
        for writer, score, weights_only in point._requests:
            saved = (weights, about) if weights_only else ({**arrays, **extra}, run)
            writer.save(*saved, wait=point.terminating, score=score, **place)

    def _describe(self, point: RunPoint, validating: bool, arrays: dict) -> dict:
        """Everything that is no array of the state; arrays in it go to ``arrays``."""
        feed, validation_feed, provenance = (
            self.feed,
            self.validation_feed,
            self._provenance,
        )
        assert provenance is not None  # there is one where something is saved
        states = {
            name: state
            for name, state in self.callbacks.state_dict().items()
            if state is not None
        }
        return {
            "versions": {"jax": jax.__version__, "numpy": np.__version__},
            "ended": point.ended,
            "seed": self.preparer.holder.seed,
            "epochs": self.preparer.holder.epochs,
            "stop": bool(self.owner.stop_training),
            "logs": encode(self._logs, arrays, "logs"),
            "plan": {"length": feed.length, "group": feed.group},
            "data": feed.facts,
            "source": feed.position(begin=not point.ended),
            "validation": None
            if validation_feed is None
            else validation_feed.position(begin=validating),
            "callbacks": encode(states, arrays, "callbacks"),
            "savers": self.callbacks.names("on_checkpoint"),
            "provenance": provenance.entries(),
        }


def flatten(state: TrainState) -> dict[str, Any]:
    """The arrays of a state by name; random keys as their data.

    Numbers are left out: those that a run goes on with are its layers' own.
    """
    return {_name(p): _plain(leaf) for p, leaf in _leaves(state) if not _is_number(p)}


def layouts_of(state: TrainState) -> dict[str, Any]:
    """Layouts of the arrays of a state that devices divide, by their names."""
    return {
        _name(path): leaf.sharding
        for path, leaf in _leaves(state)
        if isinstance(leaf, jax.Array)
        and not leaf.sharding.is_fully_replicated
        and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    }


def _leaves(state: TrainState) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(state)[0]


def _name(path: Any) -> str:
    return "state/" + jax.tree_util.keystr(path, simple=True, separator="/")


def _is_number(path: Any) -> bool:
    return is_number(str(getattr(path[-1], "key", "")))


def _plain(leaf: Any) -> Any:
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    return leaf


def unflatten(like: TrainState, arrays: Mapping[str, np.ndarray]) -> TrainState:
    """The inverse of ``flatten``, on the devices and with the structure of ``like``."""
    placed = []
    for path, leaf in _leaves(like):
        if _is_number(path):
            placed.append(leaf)
            continue
        name = _name(path)
        array, bound = arrays[name], is_bound(leaf)
        value = put(array, leaf.sharding) if bound else jax.device_put(array)
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            impl = jax.random.key_impl(leaf)
            value = jax.random.wrap_key_data(value, impl=impl)
        placed.append(value)
    return jax.tree.structure(like).unflatten(placed)
