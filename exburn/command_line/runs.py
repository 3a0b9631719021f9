"""Lists, compares and removes the runs that fit(run=…) has recorded.

  exburn runs                    those in the folder runs
  exburn runs list experiments
  exburn runs compare runs/a runs/b
  exburn runs rm runs/a --yes

A run that goes on is never removed.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

from exburn.command_line.output import add_json, show
from exburn.errors import ArgumentError, MissingFileError

_MOST = 60  # characters of a metric's name
_MOST_FOLDERS = 1000  # that are looked into for runs, to name them


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.set_defaults(action="list", folder=Path("runs"))
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION")
    listing = actions.add_parser("list", help="list the runs in a folder")
    listing.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs"), metavar="FOLDER"
    )
    comparing = actions.add_parser("compare", help="show runs side by side")
    comparing.add_argument("first", type=Path, metavar="RUN")
    comparing.add_argument("others", type=Path, nargs="+", metavar="RUN")
    removing = actions.add_parser("rm", help="remove runs, with their checkpoints")
    removing.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    removing.add_argument("--yes", action="store_true", help="do it, do not only tell")
    for one in (listing, comparing, removing):
        add_json(one, default=argparse.SUPPRESS)  # `runs --json list` counts, too


def run(options: argparse.Namespace) -> int:
    """Does what the action says.

    Returns:
        1 if runs are to be removed, and ``--yes`` is missing, or one cannot be read.
    """
    if options.action == "compare":
        return _compare(options)
    return _remove(options) if options.action == "rm" else _list(options)


def _list(options: argparse.Namespace) -> int:
    from exburn.core.printing import page_text
    from exburn.runs.reading import read_all

    folder = options.folder
    _check_folder(folder)
    read, errors = read_all(folder)
    records = [run.to_dict() for run in read]
    lost = [
        {"path": str(path), "error": error.reason} for path, error in errors.items()
    ]
    text = [page_text(_table(records), 110).rstrip()] if records else []
    if not records and not lost:
        text = [f"there are no runs in {str(folder)!r}"]
    text += [f"{one['path']}: {one['error']}" for one in lost]
    show(options, {"runs": records, "unreadable": lost}, "\n".join(text))
    return 1 if lost else 0


def _check_folder(folder: Path) -> None:
    """Raises unless a path is that of a folder that may hold runs."""
    from exburn.runs.directory import is_run

    if folder.is_dir() and not is_run(folder):
        return
    if folder.is_dir():
        raise ArgumentError(
            "runs",
            f"{str(folder)!r} is a run, not a folder of runs",
            hint=f"exburn info {folder}, or exburn runs list {folder.resolve().parent}",
        )
    if folder.exists():
        raise ArgumentError("runs", f"{str(folder)!r} is a file, not a folder")
    places = _folders_of_runs(Path())
    raise MissingFileError(
        "runs",
        f"there is no folder {str(folder)!r}",
        {"folders with runs here": ", ".join(map(str, places)) or "none"},
        hint=f"exburn runs list {places[0]}"
        if places
        else f"fit(run={str(folder / 'first')!r}) records a run there.",
    )


def _folders_of_runs(place: Path) -> list[Path]:
    """The folders in a folder that hold runs."""
    from exburn.runs.directory import is_run

    folders = [p for p in sorted(place.iterdir()) if not p.name.startswith(".")]
    folders = [p for p in folders if p.is_dir() and os.access(p, os.R_OK | os.X_OK)]
    return [p for p in folders[:_MOST_FOLDERS] if any(map(is_run, p.iterdir()))]


def _table(runs: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from exburn.visualization.curves import number_text

    table = Table()
    for name in ("run", "state", "created", "epochs", "time", "last"):
        table.add_column(
            name, justify="right" if name in ("epochs", "time") else "left"
        )
    for run in runs:
        planned = run["epochs_planned"]
        values = list(run["last"].items())[:4]
        table.add_row(
            run["name"],
            run["state"],
            str(run["created"] or "")[:16].replace("T", " "),
            f"{run['epochs']}/{planned}" if planned else str(run["epochs"]),
            f"{run['seconds']:.0f} s",
            ", ".join(f"{name[:_MOST]} {number_text(value)}" for name, value in values),
        )
    return table


def _compare(options: argparse.Namespace) -> int:
    from exburn.runs import compare

    comparison = compare(options.first, *options.others)
    show(options, comparison.to_dict(), comparison)
    return 0


def _remove(options: argparse.Namespace) -> int:
    from exburn.runs import read

    runs = [read(path) for path in options.runs]
    if going := [run for run in runs if run.state == "running"]:
        raise ArgumentError(
            "runs", "a run that goes on is not removed", {"run": going[0].path}
        )
    if options.yes:
        for run in runs:
            shutil.rmtree(run.path)
    said = "removed" if options.yes else "would be removed, with --yes"
    facts = {"removed": options.yes, "runs": [run.path for run in runs]}
    show(options, facts, "\n".join(f"{run.path}: {said}" for run in runs))
    return 0 if options.yes else 1
