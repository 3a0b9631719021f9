"""A measurement in a process of its own, and the file that results go to."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = [
    "environment_of",
    "options",
    "outcome_of",
    "read",
    "result_of",
    "side_of",
    "tell",
    "versions",
    "write",
]

PACKAGES = ("jax", "flax", "optax", "keras", "torch", "numpy")
_DEVICE = "import jax; print(jax.devices()[0].device_kind, len(jax.devices()))"


def options(
    doc: str | None, peers: Iterable[str], works: Iterable[str] = ()
) -> argparse.ArgumentParser:
    """What every comparison can be told: whom to measure at what, and the file.

    ``--child WORK PEER`` is for `result_of`: one measurement, in this process.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    if works:
        parser.add_argument("--work", default=",".join(works))
    parser.add_argument("--peers", default=",".join(peers))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2)
    return parser


def result_of(
    script: str, *words: str, env: dict[str, str] | None = None, timeout: float = 600
) -> Any:
    """What ``script --child WORK PEER …`` printed as its result; None if it failed.

    Args:
        script: The script, run by this interpreter.
        words: The two words after ``--child``, and further options.
        env: Variables to set for the process.
        timeout: Seconds after which it is ended, and what it started with it.
    """
    environment = environment_of(**(env or {}))
    result, failure = outcome_of([script, "--child", *words], environment, timeout)
    if failure:
        print(f"{' '.join(words)}: {failure}", flush=True)
    return result


def outcome_of(
    words: Iterable[str],
    environment: dict[str, str],
    timeout: float,
    python: str = sys.executable,
) -> tuple[Any, str]:
    """What a script printed as its result, and why there is none."""
    with subprocess.Popen(
        [python, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # With the processes that it started: they would keep the device.
            os.killpg(process.pid, signal.SIGKILL)
            return None, f"took more than {timeout:.0f} s"
    lines = [s for s in out.splitlines() if s.startswith("RESULT ")]
    if lines:
        return json.loads(lines[-1][7:]), ""
    return None, errors[-2000:] or f"exit {process.returncode}"


def side_of(script: str, side: str, words: Iterable[str], args: Any) -> dict[str, Any]:
    """The result of a side by ``script --child SIDE …``, or why it ``failed``.

    Args:
        script: The script.
        side: ``exburn`` is run by this interpreter and finds this checkout. Others
            are run by ``args.peer_python``, and must not see its folder `datasets`.
        words: Further options.
        args: With ``limit``, in seconds, and ``peer_python``.
    """
    root = str(Path(__file__).parents[1])
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    paths = [p for p in paths if os.path.realpath(p) != root]
    paths = [root, *paths] if side == "exburn" else paths
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    python = sys.executable if side == "exburn" else args.peer_python
    command = [script, "--child", side, *words]
    result, failure = outcome_of(command, env, args.limit, python)
    return {"failed": failure} if failure else result


def tell(out: Path | None, line: dict[str, Any]) -> None:
    """Prints a line of JSON, and adds it to a file."""
    print(json.dumps(line), flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def environment_of(**more: str) -> dict[str, str]:
    """The environment of a child: it finds the package in this checkout."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(p for p in paths if p)
    return os.environ | {"PYTHONPATH": path} | more


def versions() -> dict[str, str]:
    """Of the packages, the commit and the device, as they are noted with results."""
    names = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            names[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    root = Path(__file__).parent
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True
    )
    if commit.returncode == 0:
        names["commit"] = commit.stdout.decode().strip()
    # In a process of its own: a parent that holds the device leaves no memory to it.
    # Nor does it take the memory of one that measures meanwhile.
    asked = subprocess.run(
        [sys.executable, "-c", _DEVICE],
        capture_output=True,
        env=environment_of(XLA_PYTHON_CLIENT_PREALLOCATE="false"),
    )
    names["device"] = asked.stdout.decode().strip() or "unknown"
    return names


def read(file: Path | None) -> dict[str, Any]:
    """The results in a file that ``write`` wrote; none if there is no such file."""
    if file is None or not file.exists():
        return {}
    return json.loads(file.read_text())["results"]


_versions: dict[str, str] = {}


def write(file: Path, results: Any) -> None:
    """Results and versions as JSON, whole or not at all."""
    if not _versions:
        _versions.update(versions())
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"versions": _versions, "results": results}, indent=1))
    new.replace(file)
