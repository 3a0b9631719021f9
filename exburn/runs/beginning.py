"""A run's beginning: what was asked for, and the callbacks that record it."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from exburn.callbacks.contract import Callback
from exburn.runs.directory import CHECKPOINTS, RunDirectory, check_place, is_run
from exburn.runs.predictions import Classifier, RunPredictions
from exburn.runs.recorder import RunCheckpoint, RunRecorder
from exburn.runtime.device import device_info
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
        together: Whether several processes train the model.
        rows: Data for which the model predicts in the end, and what they are.
        classifier: Tells how the outputs of the model tell a class, if they do.
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
    """The contents of ``config.json``."""
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


_PACKAGES = "exburn jax jaxlib flax optax orbax-checkpoint numpy safetensors".split()
# Variables that change what programs are; never all of them: others hold secrets.
_VARIABLES = re.compile(r"(JAX|XLA|EXBURN|NCCL)_\w+|CUDA_VISIBLE_DEVICES|TF_GPU_\w+")
_SECRET = re.compile(r"(?i)(key|token|secret|password|passwd|credential)")
_HIDDEN = "(hidden)"


def describe_environment() -> dict[str, Any]:
    """The contents of ``environment.json``."""
    info = device_info()
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "device": info["name"],
        "devices": [str(device.device_kind) for device in jax.local_devices()],
        "device_memory_bytes": info["memory_bytes"],
        "processes": jax.process_count(),
        "command": hide_secrets(sys.argv),
        "folder": os.environ.get("PWD"),
        "git": _commit(),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
        },
    }


def hide_secrets(words: list[str]) -> list[str]:
    """A command line without what follows words such as ``--api-key``.

    Example:
        >>> hide_secrets(["train.py", "--api-key", "abc", "--token=x", "--size", "3"])
        ['train.py', '--api-key', '(hidden)', '--token=(hidden)', '--size', '3']
    """
    shown: list[str] = []
    hides = False
    for number, word in enumerate(words):
        name, equals, _ = word.partition("=")
        secret = bool(number) and name.startswith("-") and bool(_SECRET.search(name))
        if hides and not word.startswith("-"):
            shown.append(_HIDDEN)
        else:
            shown.append(f"{name}={_HIDDEN}" if secret and equals else word)
        hides = secret and not equals
    return shown


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> dict[str, Any] | None:
    """The commit of the folder that the process runs in, if it is git's."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "--no-optional-locks", *words],
                capture_output=True,
                text=True,
                timeout=2,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": changed is None or bool(changed)}
