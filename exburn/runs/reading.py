"""Runs as they are on the disk, while they go on as well as afterwards."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exburn.callbacks.contract.figures import best_point, draw_logs
from exburn.errors import (
    ArgumentError,
    ExBurnError,
    LoadError,
    MissingFileError,
    printable,
)
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.runs.directory import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    EVENTS,
    METRICS,
    PREDICTIONS,
    absent,
    is_held,
    is_run,
    read_description,
)
from exburn.runs.json_lines import number_of, read_lines
from exburn.saving.checkpoint.directory import Checkpoint, CheckpointDirectory
from exburn.visualization import page
from exburn.visualization.curves import Point

# Events that end a run, and what the run is then.
_ENDS = {
    "end": "finished",
    "failed": "failed",
    "interrupted": "interrupted",
    "terminated": "terminated",
}
_METRIC_TYPES = {
    "kind": str,
    "epoch": int,
    "step": int,
    "logs": dict,
    "device_bytes": int,
    "host_bytes": int,
}
_EVENT_TYPES = {
    "event": str,
    "time": int | float,
    "epochs": int,
    "epoch": int,
    "values": dict,
}
_MOST_SHOWN = 2000  # characters of the text that stands for a run
_FEW = 3  # epochs from which on they make a curve by themselves


@guard_methods
@dataclasses.dataclass(frozen=True)
class Run:
    """The contents of a run's folder.

    Attributes:
        path: The folder.
        state: ``"running"``, ``"finished"``, ``"failed"``, ``"interrupted"`` (Ctrl-C),
            ``"terminated"`` (SIGTERM), or ``"killed"``: it ended without a word.
        config: What the training was asked for.
        environment: Where it ran.
        epochs: A record for each finished epoch: ``epoch`` (from 0), ``step``,
            ``seconds`` since the beginning, ``logs``, and what else is known.
        chunks: Records within epochs, about one a second.
        events: What happened, each with its ``time`` and its ``event``.
        damaged: Lines of the files that are none.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers, runs
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> model = Sequential([Input((2,)), layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((8, 2)), np.ones((8, 1))
        >>> _ = model.fit(x, y, epochs=2, run=folder, verbose=0)
        >>> run = runs.read(folder)
        >>> run.state, [epoch["epoch"] for epoch in run.epochs]
        ('finished', [0, 1])
    """

    path: Path
    state: str
    config: dict[str, Any]
    environment: dict[str, Any]
    epochs: list[dict[str, Any]]
    chunks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    damaged: int

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def planned(self) -> int | None:
        """The epochs that it was asked for, at last."""
        asked = [e.get("epochs") for e in self.events if e.get("event") == "begin"]
        return asked[-1] if asked else self.part("fit").get("epochs")

    def part(self, name: str) -> dict[str, Any]:
        """A part of the configuration, empty where it is absent.

        Example:
            >>> Run(Path("a"), "killed", {}, {}, [], [], [], 0).part("fit")
            {}
        """
        return self.config.get(name) or {}

    @property
    def seconds(self) -> float:
        """Its time so far; of a resumed run the time since it was resumed."""
        ended = [e for e in self.events[-1:] if e.get("event") in _ENDS]
        last = [*self.epochs[-1:], *self.chunks[-1:], *ended]
        durations = (number_of(record.get("seconds")) or 0.0 for record in last)
        return max(
            (seconds for seconds in durations if math.isfinite(seconds)), default=0.0
        )

    @property
    def metrics(self) -> list[str]:
        """Names of the logged numbers, without ``val_``, in the order of logging."""
        return list(dict.fromkeys(name.removeprefix("val_") for name in self.last))

    def curve(self, name: str) -> list[Point]:
        """A logged name over the epochs, whose ends are 1, 2, 3 …; of few epochs the
        means within them, too."""
        points = [
            (record["epoch"] + 1.0, value)
            for record in self.epochs
            if (value := number_of(_logs(record).get(name))) is not None
        ]
        if len(points) >= _FEW or name.startswith("val_"):
            return points
        records = (*self.epochs, *self.chunks)
        steps = self.part("fit").get("steps") or 0
        if not steps:
            steps = max((record.get("step") or 0 for record in records), default=0)
        within = [
            (record["epoch"] + record["step"] / max(steps, record["step"], 1), value)
            for record in self.chunks
            if (value := number_of(_logs(record).get(name))) is not None
        ]
        return sorted({x: y for x, y in (*within, *points)}.items())

    def series(self, name: str) -> list[Point]:
        """A figure of the epochs' records, such as ``samples_per_second``."""
        return [
            (record["epoch"] + 1.0, value)
            for record in self.epochs
            if (value := number_of(record.get(name))) is not None
        ]

    @property
    def last(self) -> dict[str, float]:
        """The last value of each logged number, also where not all epochs log it."""
        values: dict[str, float] = {}
        for record in self.epochs or self.chunks:
            for name, value in _logs(record).items():
                if (number := number_of(value)) is not None:
                    values[name] = number
        return values

    @property
    def best(self) -> dict[str, tuple[float, int]]:
        """The best value and its epoch, from 1, of names whose direction is known."""
        values = {}
        for name in self.last:
            points = [(x, y) for x, y in self.curve(name) if x == int(x)]
            if (best := best_point(name, points)) is not None:
                values[name] = (best[1], int(best[0]))
        return values

    @property
    def predictions(self) -> dict[str, Any] | None:
        """A classifier's predictions at the end: right, wrong, a matrix, examples.

        Raises:
            ModelFormatError: The file is damaged.
        """
        path = self.path / PREDICTIONS
        return read_description(path) if path.is_file() else None

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that are listed, oldest first."""
        return CheckpointDirectory(self.path / CHECKPOINTS).checkpoints()

    def __repr__(self) -> str:
        of = f" of {self.planned}" if self.planned else ""
        logs = "".join(f", {name} {value:.4g}" for name, value in self.last.items())
        text = f"{self.name}: {self.state}, {len(self.epochs)}{of} epochs{logs}"
        return printable(f"<Run {text[:_MOST_SHOWN]}>")

    def _repr_html_(self) -> str:
        names = [n for name in self.metrics for n in (name, f"val_{name}")]
        curves = {name: self.curve(name) for name in names if name in self.last}
        of = f" of {self.planned}" if self.planned else ""
        facts = self.state, f"{len(self.epochs)}{of} epochs"
        return page.fragment(page.title(self.name, *facts), draw_logs(curves))

    def to_dict(self) -> dict[str, Any]:
        """The facts that a listing shows, as JSON values.

        Example:
            >>> Run(Path("a"), "killed", {}, {}, [], [], [], 0).to_dict()["state"]
            'killed'
        """
        return {
            "name": self.name,
            "path": str(self.path),
            "id": self.config.get("id"),
            "state": self.state,
            "created": self.config.get("created"),
            "model": self.part("model").get("name"),
            "epochs": len(self.epochs),
            "epochs_planned": self.planned,
            "seconds": self.seconds,
            "last": self.last,
            "best": {name: list(pair) for name, pair in self.best.items()},
        }


@api_boundary
def read(path: Any) -> Run:
    """Reads a run, also one that goes on.

    Args:
        path: Its folder.

    Raises:
        MissingFileError: There is no run.
        ModelFormatError: A description in it is damaged, or a file is absent.
        LoadError: The system refuses.

    Example:
        >>> read("no/such/folder")
        Traceback (most recent call last):
        exburn.errors.MissingFileError: runs: there is no run in 'no/such/folder'
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError("runs", f"the path of a run is needed, received {path!r}")
    folder = Path(path)
    if not is_run(folder):
        details = {}
        for place, there in (("in", folder), ("beside", folder.parent)):
            runs = [str(run) for run in runs_in(there)]
            if runs and not details:
                more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
                details[f"runs {place} it"] = ", ".join(runs[:5]) + more
        raise MissingFileError(
            "runs", f"there is no run in {os.fspath(path)!r}", details or None
        )
    folder = folder.resolve()
    config = read_description(folder / CONFIG)
    environment = read_description(folder / ENVIRONMENT)
    try:
        alive = is_held(
            folder
        )  # before the lines: its last ones come before it lets go
    except OSError as error:
        reason = "the run cannot be read"
        raise LoadError("runs", reason, {"run": folder, "cause": error}) from error
    lines, damaged = _lines(folder / METRICS, _METRIC_TYPES)
    events, more = _lines(folder / EVENTS, _EVENT_TYPES)
    epochs, chunks, void = _valid(lines)
    state = _state(events, alive)
    return Run(
        folder,
        state,
        config,
        environment,
        epochs,
        chunks,
        events,
        damaged + more + void,
    )


def _lines(path: Path, types: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    try:
        return read_lines(path, types)
    except MissingFileError as error:
        raise absent(path, error) from error


@api_boundary
def find(folder: Any = "runs") -> list[Run]:
    """The runs in a folder and in the folders of it, oldest first.

    Args:
        folder: The folder; it need not exist.

    Example:
        >>> find("no such folder")
        []
    """
    return read_all(folder)[0]


def read_all(folder: Any) -> tuple[list[Run], dict[Path, ExBurnError]]:
    """The runs that `find` finds, and the errors of those that cannot be read.

    Example:
        >>> read_all("no such folder")
        ([], {})
    """
    records, errors = [], {}
    for path in runs_in(Path(folder)):
        try:
            records.append(read(path))
        except ExBurnError as error:
            errors[path] = error
    return sorted(records, key=lambda run: run.config.get("created") or ""), errors


def runs_in(folder: Path) -> list[Path]:
    """The folders of runs in a folder, and in the folders of it."""
    if not folder.is_dir():
        return []
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    folders = [path for path in inner if is_run(path)]
    for path in inner:
        if path not in folders and not path.name.startswith("."):
            folders += sorted(p for p in path.iterdir() if p.is_dir() and is_run(p))
    return folders


def _valid(lines: list[dict[str, Any]]) -> tuple[list[dict], list[dict], int]:
    """The records that count: a run that began again at an epoch has voided others."""
    epochs: dict[int, dict[str, Any]] = {}
    chunks: list[dict[str, Any]] = []
    void = 0
    for line in lines:
        epoch, kind = line.get("epoch"), line.get("kind")
        if epoch is None or (kind == "chunk" and line.get("step") is None):
            void += 1
        elif kind == "start":
            epochs = {number: e for number, e in epochs.items() if number < epoch}
            chunks = [c for c in chunks if c["epoch"] < epoch]
        elif kind == "epoch":
            epochs[epoch] = line
        elif kind == "chunk":
            chunks.append(line)
    return [epochs[number] for number in sorted(epochs)], chunks, void


def _state(events: list[dict[str, Any]], alive: bool) -> str:
    if alive:
        return "running"
    for event in reversed(events):
        kind = event.get("event")
        if kind in _ENDS:
            return _ENDS[kind]
        if kind == "begin":
            break
    return "killed"


def _logs(record: Mapping[str, Any]) -> dict[str, Any]:
    logs = record.get("logs")
    return logs if isinstance(logs, dict) else {}
