"""The state of a whole sweep in a folder, from which it goes on to the same bits."""

from __future__ import annotations

import math
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import ArrayDataset
from exburn.errors import (
    ArgumentError,
    CheckpointError,
    FileFormatError,
    MissingFileError,
)
from exburn.models.saving import warmup_config
from exburn.models.session import require_trainer
from exburn.runtime.donation import is_consumed
from exburn.runtime.files.atomic import system_error, write_atomically
from exburn.saving.json_text import damage_error, is_count
from exburn.saving.seal import read_document, seal_document
from exburn.saving.shards import TensorFile, write_tensors
from exburn.training.checkpoint.provenance import (
    Provenance,
    differ_error,
    provenance_of,
)
from exburn.training.objective.readings import Readings
from exburn.tuning import lanes
from exburn.tuning.groups import Group
from exburn.tuning.records import LaneRecord
from exburn.tuning.run import SweepRun
from exburn.tuning.set_up import Lane, SetUp

_MANIFEST = "sweep.json"
_FORMAT = "exburn-sweep-state-1"
_ARRAYS = "exburn-sweep-arrays-1"
_ARRAYS_FILE = re.compile(r"sweep-\d{6,}-[0-9a-f]{8}\.safetensors")
_MOST_BYTES, _MOST_VALUES = 1 << 30, 100_000_000  # thousands of lanes and epochs
_SECONDS = 60.0  # between two that are written within a rung


class SweepCheckpoint:
    """Writes a sweep's state into a folder, and reads it again.

    There is one manifest, which is replaced as a whole when the arrays that it names
    are on the disk: a sweep that is killed at any moment leaves an intact one. Both
    files have digests. Groups that an exception interrupts within an epoch go on after
    the steps that they have.

    Args:
        seconds: The least time between two checkpoints within a rung; 60 by default.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        ready: SetUp,
        seconds: float | None = None,
    ):
        self._folder, self._ready = Path(folder), ready
        self._provenance: Provenance | None = None
        self._seconds = _SECONDS if seconds is None else seconds
        if self._folder.exists() and not self._folder.is_dir():
            raise ArgumentError("sweep", f"checkpoint={folder!r} is no folder")
        try:  # before anything is trained that could not be kept
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise system_error("sweep", self._folder, error) from error
        self._last = time.perf_counter()

    def is_due(self) -> bool:
        """Whether so much time has passed that the next epoch is worth keeping."""
        return time.perf_counter() - self._last >= self._seconds

    def provenance(self, run: SweepRun) -> Provenance:
        """What the result of the sweep depends on."""
        if self._provenance is None:
            self._provenance = provenance_of_sweep(run, self._ready)
        return self._provenance

    def close(self) -> None:
        """Ends what is done beside the sweep."""
        if self._provenance is not None:
            self._provenance.close()

    def save(self, run: SweepRun) -> None:
        """Writes the state of a sweep."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise system_error("sweep", self._folder, error) from error
        name = f"sweep-{run.done:06d}-{secrets.token_hex(4)}.safetensors"
        path = self._folder / name
        write_tensors(path, dict(_arrays(run)), {}, format=_ARRAYS, op="sweep")
        state = {
            "provenance": self.provenance(run).entries(),
            "epochs": run.done,
            "decided": run.decided,
            "arrays": name,
            "records": [record.get_config() for record in run.records],
            "groups": [_describe_group(run, group) for group in run.groups],
            "lanes": [
                {
                    "kept": lane.weights is not None,
                    "opt_state": lane.opt_state is not None,
                    "step": lane.step,
                    "variant": run.variants.index(lane.variant),
                }
                for lane in run.lanes
            ],
        }
        text = seal_document(_FORMAT, state)
        path = self._folder / _MANIFEST
        write_atomically(path, lambda file: file.write(text), op="sweep")
        for old in self._folder.glob("sweep-*.safetensors*"):
            if not old.name.startswith(name):  # whose parts begin with its name
                old.unlink()
        self._last = time.perf_counter()

    def save_after(self, error: BaseException, run: SweepRun) -> None:
        """Writes the state of a sweep that an exception has ended, if it is whole.

        What a program has consumed without returning anything is not: then the
        checkpoint before stays.
        """
        if not run.groups or any(is_consumed(g.state.step) for g in run.groups):
            return
        try:
            self.save(run)
        except Exception as failure:  # the reason why the sweep ended goes first
            error.add_note(f"The sweep's checkpoint was not written: {failure}")

    def restore(self, run: SweepRun) -> bool:
        """Puts a sweep where it was; returns whether there is a checkpoint."""
        path = self._folder / _MANIFEST
        if not path.exists():
            self.provenance(run).begin()
            return False
        limits = {"most_bytes": _MOST_BYTES, "most": _MOST_VALUES}
        try:
            state = read_document(path, _FORMAT, "sweep", **limits)
            saved = saved_provenance(state, path)
        except FileFormatError as error:
            raise self._damage_error(error) from error
        if differences := self.provenance(run).differences_from(saved):
            raise differ_error(
                "sweep",
                "the folder holds the checkpoint of another sweep",
                differences,
                self._folder,
                hint="Give each sweep a folder of its own, or delete this one.",
            )
        try:
            check_state(state, run, path)
            with TensorFile(self._folder / state["arrays"], op="sweep") as file:
                self._restore_lanes(run, state, SweepArrays(file))
        except (FileFormatError, MissingFileError) as error:
            raise self._damage_error(error) from error
        run.done, run.decided = state["epochs"], state["decided"]
        return True

    def _restore_lanes(
        self, run: SweepRun, state: Mapping[str, Any], arrays: SweepArrays
    ) -> None:
        """Gives lanes and groups what the checkpoint has of them."""
        for lane, record, lane_state in zip(
            run.lanes, state["records"], state["lanes"], strict=True
        ):
            _restore_record(lane.record, record)
            lane.variant = run.variants[lane_state["variant"]]
            lane.step = lane_state["step"]
        _restore_kept(run.lanes, state["lanes"], arrays)
        run.decide_parking(
            [(run.variants[g["variant"]], len(g["members"])) for g in state["groups"]]
        )
        for at, facts in enumerate(state["groups"]):
            run.add(_restore_group(run, facts, f"group/{at}", arrays))

    def _damage_error(self, cause: Exception) -> CheckpointError:
        return CheckpointError(
            "sweep",
            f"the checkpoint in {os.fspath(self._folder)!r} is damaged",
            {"cause": cause},
            hint="Delete the folder: the sweep begins anew.",
        )


def check_resumable(dataset: Any, asks: bool) -> None:
    """Raises if a sweep could not go on from a checkpoint."""
    if asks:
        raise ArgumentError(
            "sweep",
            "a checkpoint needs trials that are known before: a study keeps its own",
            hint="Leave checkpoint= out, or take sampler=tuning.random(64).",
        )
    if not isinstance(dataset, ArrayDataset):
        raise ArgumentError(
            "sweep", "a sweep over a loader of batches cannot be taken up in its middle"
        )


def provenance_of_sweep(run: SweepRun, ready: SetUp) -> Provenance:
    """What the result of a sweep depends on."""
    trials = run.begun
    paths = dict.fromkeys(path for trial in trials for path in trial)
    options = {
        **_options_of(ready),
        **{f"over.{p}": [t.get(p, "its own") for t in trials] for p in paths},
        "lanes": len(trials),
        "folds": [lane.rows for lane in run.lanes if lane.rows is not None],
        "sweep's seed": ready.request.seed,
    }
    preparer = require_trainer(ready.model, "sweep").preparer
    return provenance_of(preparer, *ready.data.sources, options, begins=True)


def provenance_of_scores(ready: SetUp) -> Provenance:
    """The inputs of a sweep's scores, whatever its trials and their seeds are."""
    preparer = require_trainer(ready.model, "sweep").preparer
    return provenance_of(preparer, *ready.data.sources, _options_of(ready))


def _options_of(ready: SetUp) -> dict[str, Any]:
    request = ready.request
    return {
        **ready.data.options(),
        "warmup": warmup_config(ready.model._training_session.warmup),
        "epochs": request.epochs,
        "scheduler": ready.scheduler,
        "monitor": [ready.monitor, ready.mode],
        "order": request.order,
        "validation_data.freq": [*filter(request.validates, range(request.epochs))],
    }


def _describe_group(run: SweepRun, group: Group) -> dict[str, Any]:
    """What of a group is no array."""
    readings = group.readings
    return {
        "variant": run.variants.index(group.variant),
        "members": group.members,
        "done": group.done,
        "totals": _has_totals(group),
        "names": None if readings is None else readings.names,
        "others": None if readings is None else [*readings.others],
    }


def _has_totals(group: Group) -> bool:
    """Whether the totals of an epoch under way are in the states."""
    return bool(group.done) and group.state.metrics is not None


def _arrays(run: SweepRun) -> Iterator[tuple[str, np.ndarray]]:
    for at, group in enumerate(run.groups):
        state = group.state
        state = state if _has_totals(group) else state.replace(metrics=None)
        for i, leaf in enumerate(jax.tree.leaves(state)):
            yield f"group/{at}/{i}", _as_bytes(leaf)
        if (readings := group.readings) is not None:
            yield f"group/{at}/logs", np.asarray(readings.numbers)
            for name, value in readings.others.items():
                yield f"group/{at}/logs/{name}", np.asarray(value)
    for number, lane in enumerate(run.lanes):
        if lane.weights is None:
            continue
        for i, leaf in enumerate(jax.tree.leaves((lane.weights, lane.opt_state))):
            yield f"lane/{number}/{i}", _as_bytes(leaf)


def _restore_group(
    run: SweepRun, facts: dict[str, Any], place: str, arrays: SweepArrays
) -> Group:
    """A group as ``_describe_group`` and ``_arrays`` tell."""
    group = run.make_group(run.variants[facts["variant"]], facts["members"], None)
    if facts["totals"]:
        group.begin_epoch([False] * group.width)  # for their structure
    leaves, treedef = jax.tree.flatten(group.state)
    values = [_read_like(arrays, f"{place}/{i}", leaf) for i, leaf in enumerate(leaves)]
    group.state = group.variant.placement.state(treedef.unflatten(values))
    group.done = facts["done"]
    if facts["names"] is not None:
        width, names = group.width, facts["names"]
        numbers = arrays.read_rows(f"{place}/logs", width, len(names))
        others = {
            name: arrays.read_rows(f"{place}/logs/{name}", width)
            for name in facts["others"]
        }
        group.readings = Readings(numbers, others, tuple(names))
    return group


def _restore_record(record: LaneRecord, config: dict[str, Any]) -> None:
    now = LaneRecord.from_config(config)
    record.history, record.epochs = now.history, now.epochs
    record.status, record.score = now.status, now.score
    # Values of other kinds than JSON's are those of the trial that was begun with.
    plain = LaneRecord(record.trial).get_config()["trial"]
    for path, value in now.trial.items():
        if plain.get(path) != value:
            record.trial[path] = value


def _restore_kept(
    lanes: Sequence[Lane], states: Sequence[dict[str, Any]], arrays: SweepArrays
) -> None:
    """Gives lanes that ended their weights, in the form of their variants' states."""
    for number, (lane, lane_state) in enumerate(zip(lanes, states, strict=True)):
        if not lane_state["kept"]:
            continue
        state = lane.variant.states.initial([lane.record.trial])
        like: Any = jax.tree.map(
            lambda v: v[0], (state.params, state.frozen, state.others)
        )
        opt_state = None
        if lane_state["opt_state"]:
            opt_state = jax.tree.map(lambda v: v[0], state.opt_state)
        leaves, treedef = jax.tree.flatten((like, opt_state))
        values = [
            np.asarray(_read_like(arrays, f"lane/{number}/{i}", leaf))
            for i, leaf in enumerate(leaves)
        ]
        lane.weights, lane.opt_state = treedef.unflatten(values)


def _as_bytes(leaf: Any) -> np.ndarray:
    """The bytes of an array, of any dtype."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.frombuffer(np.ascontiguousarray(np.asarray(leaf)).tobytes(), np.uint8)


def _read_like(arrays: SweepArrays, name: str, like: Any) -> Any:
    """An array of the shape and dtype of another one."""
    array: Any = arrays.read_like(name, like)
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(like))
    weak = isinstance(like, jax.Array) and like.weak_type and array.ndim
    return lanes.on_device(array.copy(), bool(weak))


def saved_provenance(state: Mapping[str, Any], path: Any) -> dict[str, str]:
    """What the result of a sweep depends on, as a checkpoint says it."""
    saved = state.get("provenance")
    if not isinstance(saved, dict) or not _are_names([*saved.values()]):
        raise damage_error("sweep", path, "it does not say what the sweep depends on")
    return saved


def check_state(state: Mapping[str, Any], run: SweepRun, path: Any) -> None:
    """Raises if what a checkpoint says cannot be of this sweep, or leads elsewhere."""
    epochs, lanes = run.epochs, len(run.lanes)
    variants = len(run.variants)

    def need(holds: bool, what: str) -> None:
        if not holds:
            reason = "a checkpoint does not have this in its place"
            raise damage_error("sweep", path, reason, place=what)

    need(is_count(state.get("epochs"), epochs), "epochs")
    need(is_count(state.get("decided"), epochs), "decided")
    name = state.get("arrays")
    need(isinstance(name, str) and _ARRAYS_FILE.fullmatch(name) is not None, "arrays")
    for part in ("records", "lanes", "groups"):
        need(isinstance(state.get(part), list), part)
    need(len(state["records"]) == len(state["lanes"]) == lanes, "lanes")
    for record in state["records"]:
        need(LaneRecord.from_config(record).epochs <= epochs, "records")
    for lane in state["lanes"]:
        need(isinstance(lane, dict), "lanes")
        flags = (lane.get("kept"), lane.get("opt_state"))
        need(all(isinstance(flag, bool) for flag in flags), "lanes")
        need(is_count(lane.get("step")), "step")
        need(is_count(lane.get("variant"), variants - 1), "variant")
    for group in state["groups"]:
        need(isinstance(group, dict), "groups")
        variant, members = group.get("variant"), group.get("members")
        need(is_count(variant, variants - 1), "variant")
        need(isinstance(members, list) and len(members) > 0, "members")
        need(all(is_count(number, lanes - 1) for number in members), "members")
        own = {state["lanes"][number]["variant"] for number in members}
        need(own == {variant}, "variant")
        need(is_count(group.get("done")), "done")
        need(isinstance(group.get("totals"), bool), "totals")
        names = [group.get("names"), group.get("others")]
        none = names == [None, None]
        need(none or all(_are_names(listed) for listed in names), "names")


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


class SweepArrays:
    """The arrays of a checkpoint, of any dtype, as bytes."""

    def __init__(self, file: TensorFile):
        self._file = file
        if file.format != _ARRAYS or not file.sealed:
            raise damage_error("sweep", file.path, "it holds no sweep's arrays")

    def read(self, name: str) -> np.ndarray:
        """The array of a name."""
        if name not in self._file.entries:
            raise damage_error("sweep", self._file.path, f"there is no array {name!r}")
        return self._file.read_one(name)

    def read_rows(self, name: str, rows: int, columns: int | None = None) -> np.ndarray:
        """The array of a name, which has numbers of each lane."""
        data = self.read(name)
        shape = (rows,) if columns is None else (rows, columns)
        if data.shape[: len(shape)] != shape or (
            columns is not None and data.ndim != 2
        ):
            reason = f"the array {name!r} has another shape than it needs"
            raise damage_error("sweep", self._file.path, reason, shape=data.shape)
        return data

    def read_like(self, name: str, like: Any) -> np.ndarray:
        """The array of a name, of the shape and dtype of another one."""
        if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            like = jax.random.key_data(like)
        data, dtype = self.read(name), np.dtype(like.dtype)
        if data.nbytes != math.prod(like.shape) * dtype.itemsize:
            reason = f"the array {name!r} has another size than it needs"
            raise damage_error("sweep", self._file.path, reason)
        return np.frombuffer(data.tobytes(), dtype).reshape(like.shape)
