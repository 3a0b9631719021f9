"""The state of a whole sweep in a folder, from which it goes on to the same bits."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, CheckpointError
from exburn.saving.atomic import write_atomically
from exburn.tuning import lanes
from exburn.tuning.groups import Group
from exburn.tuning.records import LaneRecord
from exburn.tuning.run import Lane, SweepRun

_MANIFEST = "sweep.json"
_SECONDS = 60.0  # between two that are written within a rung


class SweepCheckpoint:
    """Writes a sweep's state into a folder, and reads it again.

    There is one manifest, which is replaced as a whole when the arrays that it names
    are on the disk: a sweep that is killed at any moment leaves an intact one.

    Args:
        folder: The folder; it is made if there is none.
        seconds: The least time between two checkpoints within a rung; 60 by default.

    Raises:
        ArgumentError: The path is that of a file.
    """

    def __init__(self, folder: str | os.PathLike[str], seconds: float | None = None):
        self._folder = Path(folder)
        self._seconds = _SECONDS if seconds is None else seconds
        if self._folder.exists() and not self._folder.is_dir():
            raise ArgumentError("sweep", f"checkpoint={folder!r} is no folder")
        self._last = time.perf_counter()

    def is_due(self) -> bool:
        """Whether so much time has passed that the next epoch is worth keeping."""
        return time.perf_counter() - self._last >= self._seconds

    def save(self, run: SweepRun, epochs: int) -> None:
        """Writes the state of a sweep whose lanes have so many epochs behind them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez(buffer, **dict(_arrays(run)))  # type: ignore[arg-type]
        data = buffer.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        name = f"sweep-{epochs:06d}-{digest[:8]}.npz"
        write_atomically(self._folder / name, lambda file: file.write(data), op="sweep")
        told = {
            "sweep": _identity(run),
            "epochs": epochs,
            "arrays": name,
            "sha256": digest,
            "records": [record.get_config() for record in run.records],
            "groups": [[_variant_number(run, g), g.members] for g in run.groups],
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
        text = json.dumps(told).encode()
        path = self._folder / _MANIFEST
        write_atomically(path, lambda file: file.write(text), op="sweep")
        for old in self._folder.glob("sweep-*.npz"):
            if old.name != name:
                old.unlink()
        self._last = time.perf_counter()

    def restore(self, run: SweepRun) -> int | None:
        """Puts a sweep where it was; returns the epochs done, ``None`` if none are.

        Raises:
            CheckpointError: It is of another sweep, or not intact.
        """
        path = self._folder / _MANIFEST
        if not path.exists():
            return None
        told = json.loads(path.read_bytes())
        if (now := _identity(run)) != told["sweep"]:
            other = [key for key in now if now[key] != told["sweep"].get(key)]
            raise CheckpointError(
                "sweep",
                f"the folder {str(self._folder)!r} has another sweep",
                {"other": ", ".join(other)},
                hint="Give each sweep a folder of its own, or delete this one.",
            )
        data = (self._folder / told["arrays"]).read_bytes()
        if hashlib.sha256(data).hexdigest() != told["sha256"]:
            raise CheckpointError(
                "sweep", f"{told['arrays']} is not what was written, byte for byte"
            )
        arrays = np.load(io.BytesIO(data), allow_pickle=False)
        for lane, record, kept in zip(
            run.lanes, told["records"], told["lanes"], strict=True
        ):
            _restore_record(lane.record, record)
            lane.variant = run.variants[kept["variant"]]
            lane.step = kept["step"]
        _restore_kept(run.lanes, told["lanes"], arrays)
        run.decide_parking(
            [(run.variants[number], len(m)) for number, m in told["groups"]]
        )
        for at, (number, members) in enumerate(told["groups"]):
            group = run.make_group(run.variants[number], members, None)
            leaves, treedef = jax.tree.flatten(group.state.replace(metrics=None))
            found = [
                _from_bytes(arrays[f"group/{at}/{i}"], leaf)
                for i, leaf in enumerate(leaves)
            ]
            state = treedef.unflatten(found)
            group.state = group.variant.placement.state(state)
            run.add(group)
        return told["epochs"]


def check_resumable(dataset: Any, asks: bool) -> None:
    """Raises if a sweep could not go on from a checkpoint.

    Raises:
        ArgumentError: Its data are read from a loader, or a study asks for trials.
    """
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


def _identity(run: SweepRun) -> dict[str, Any]:
    """What a sweep must have in common with one that goes on from it."""
    data = run.lanes[0].variant.data
    dataset: Any = data.dataset
    return {
        "trials": [LaneRecord(trial).get_config()["trial"] for trial in run.begun],
        "folds": [r.fold for r in run.records],
        "epochs": run.epochs,
        "rungs": [[r.epochs, r.lanes] for r in run.rungs],
        "monitor": [run.monitor, run.mode],
        "rows": [dataset.size, data.batch_size, str(data.shuffle)],
        "weights": _digest(run.lanes[0].variant.holder.split.read()),
    }


def _digest(tree: Any) -> str:
    """A digest of weights, in the order of their names."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        found.update(_as_bytes(leaf).tobytes())
    return found.hexdigest()[:16]


def _variant_number(run: SweepRun, group: Group) -> int:
    return run.variants.index(group.variant)


def _arrays(run: SweepRun) -> Iterator[tuple[str, np.ndarray]]:
    for at, group in enumerate(run.groups):
        for i, leaf in enumerate(jax.tree.leaves(group.state.replace(metrics=None))):
            yield f"group/{at}/{i}", _as_bytes(leaf)
    for number, lane in enumerate(run.lanes):
        if lane.weights is None:
            continue
        for i, leaf in enumerate(jax.tree.leaves((lane.weights, lane.opt_state))):
            yield f"lane/{number}/{i}", _as_bytes(leaf)


def _restore_record(record: LaneRecord, told: dict[str, Any]) -> None:
    now = LaneRecord.from_config(told)
    record.history, record.epochs = now.history, now.epochs
    record.status, record.score = now.status, now.score
    # Values of other kinds than JSON's are those of the trial that was begun with.
    plain = LaneRecord(record.trial).get_config()["trial"]
    for path, value in now.trial.items():
        if plain.get(path) != value:
            record.trial[path] = value


def _restore_kept(
    lanes: Sequence[Lane], told: Sequence[dict[str, Any]], arrays: Any
) -> None:
    """Gives lanes that ended their weights, in the form of their variants' states."""
    for number, (lane, kept) in enumerate(zip(lanes, told, strict=True)):
        if not kept["kept"]:
            continue
        state = lane.variant.initial_state([lane.record.trial])
        like: Any = jax.tree.map(
            lambda v: v[0], (state.params, state.frozen, state.others)
        )
        opt_state = None
        if kept["opt_state"]:
            opt_state = jax.tree.map(lambda v: v[0], state.opt_state)
        leaves, treedef = jax.tree.flatten((like, opt_state))
        found = [
            np.asarray(_from_bytes(arrays[f"lane/{number}/{i}"], leaf))
            for i, leaf in enumerate(leaves)
        ]
        lane.weights, lane.opt_state = treedef.unflatten(found)


def _as_bytes(leaf: Any) -> np.ndarray:
    """The bytes of an array, of any dtype."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.frombuffer(np.ascontiguousarray(np.asarray(leaf)).tobytes(), np.uint8)


def _from_bytes(data: np.ndarray, like: Any) -> Any:
    """An array of the shape and dtype of another one."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        words = jax.random.key_data(like)
        made: Any = np.frombuffer(data.tobytes(), words.dtype).reshape(words.shape)
        return jax.random.wrap_key_data(made, impl=jax.random.key_impl(like))
    made = np.frombuffer(data.tobytes(), like.dtype).reshape(like.shape)
    weak = isinstance(like, jax.Array) and like.weak_type and made.ndim
    return lanes.on_device(made.copy(), bool(weak))
