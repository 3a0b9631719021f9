"""A run's beginning: what was asked for, and the callbacks that record it."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.runs.directory import CHECKPOINTS, RunDirectory, check_place, is_run
from exburn.runs.environment import describe_environment
from exburn.runs.predictions import Classifier, RunPredictions
from exburn.runs.recorder import RunCheckpoint, RunRecorder
from exburn.runtime.sharding import processes
from exburn.saving.checkpoint import CheckpointDirectory

_MOST_JSON = 1_000_000  # characters of an architecture


def begin_run(
    path: Any,
    model: Any,
    asked: Mapping[str, Any],
    *,
    resume: Any = None,
    together: bool = False,
    rows: tuple[Any, str] | None = None,
    classifier: Callable[[], Classifier | None] | None = None,
) -> tuple[Path, list[Callback]]:
    """The folder of a run, and the callbacks that write into it.

    Args:
        path: The folder. A run that is there is gone on with if ``resume`` says so;
            else the new one gets the next number: ``mnist``, ``mnist-2`` …
        model: The model, built and compiled.
        asked: What ``fit`` was asked for, JSON-able.
        resume: As ``fit`` was told.
        together: Whether several processes train the model.
        rows: Data for which the model predicts in the end, and what they are.
        classifier: Tells how the outputs of the model tell a class, if they do.

    Raises:
        ArgumentError: Something else is in the place, or another process writes there.
        SaveError: The system refuses.
    """

    def begin() -> RunDirectory:
        place = check_place(path)
        goes_on = is_run(place) and _goes_on(resume, place)
        if goes_on and CheckpointDirectory(place / CHECKPOINTS).checkpoints():
            return RunDirectory.go_on(place)
        config = describe_run(place.name, model, asked)
        environment = describe_environment()
        if not goes_on:
            return RunDirectory.create(place, config, environment)
        directory = RunDirectory.go_on(place)
        directory.describe(config, environment)
        return directory

    if together:
        # A function on process 0 alone; the others learn of its error, too.
        directories: list[RunDirectory] = []
        processes.on_main(lambda: directories.append(begin()), "a run's folder")
        directory = directories[0] if directories else None
        chosen = processes.broadcast(None if directory is None else str(directory.path))
        place = Path(chosen)
    else:
        directory = begin()
        place = directory.path
    checkpoint = RunCheckpoint(place)
    callbacks: list[Callback] = [checkpoint, RunRecorder(directory, checkpoint)]
    if rows is not None and classifier is not None and directory is not None:
        callbacks.append(RunPredictions(directory, *rows, classifier))
    return place, callbacks


def _goes_on(resume: Any, place: Path) -> bool:
    """Tells whether ``resume`` means the run in this folder."""
    if resume is None or resume == "auto":
        return resume is not None
    try:
        there = Path(resume).expanduser().resolve()
    except (TypeError, OSError, ValueError):
        return False  # it is refused where it is read
    return there == place.resolve() or place.resolve() in there.parents


def describe_run(name: str, model: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of ``config.json``.

    Args:
        name: The run's name.
        model: The model.
        asked: What ``fit`` was asked for.
    """
    now = datetime.datetime.now().astimezone()
    return {
        "id": uuid.uuid4().hex,
        "name": name,
        "created": now.isoformat(timespec="seconds"),
        "model": _describe_model(model),
        "compile": _describe_compile(model),
        "fit": dict(asked),
    }


def _describe_model(model: Any) -> dict[str, Any]:
    def summarize() -> str:
        lines: list[str] = []
        model.summary(print_fn=lambda text, **_: lines.append(text))
        return "\n".join(lines)

    def describe() -> Any:
        text = model.to_json()
        return json.loads(text) if len(text) <= _MOST_JSON else None

    return {
        "name": model.name,
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": model.count_params(),
        "summary": _attempt(summarize),
        "architecture": _attempt(describe),
    }


def _describe_compile(model: Any) -> Any:
    def describe() -> Any:
        described = model.get_compile_config()
        json.dumps(described)
        return described

    optimizer = type(model.optimizer).__name__
    named = {"optimizer": optimizer, "loss": str(getattr(model, "loss", None))}
    return _attempt(describe) or named


def _attempt(describe: Callable[[], Any]) -> Any:
    """A description, or ``None``: not all that is trained can be described."""
    try:
        return describe()
    except Exception:  # a lambda, or whatever a class of the user's raises
        return None
