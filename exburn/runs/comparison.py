"""Runs side by side: what was asked for differently, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from exburn.core.printing import page_text
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.runs.reading import Run, read
from exburn.visualization.curves import number_text

# What differs between any two runs, and tells nothing.
_OWN = {"id", "created", "name", "summary"}
_LONG = {"architecture"}
_MOST_TEXT = 60


@guard_methods
@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of `compare`; printing it shows tables.

    Attributes:
        runs: The runs, in the order that they were given in.
        differences: What was asked for, or where it ran, by name: a value of each run,
            ``None`` where it has none.
        last: The last values of each logged name, one of each run or ``None``.
        best: The best values, with their epochs from 1, likewise.

    Example:
        >>> Comparison((), {"learning_rate": [0.1, 0.01]}, {}, {}).differences
        {'learning_rate': [0.1, 0.01]}
    """

    runs: tuple[Run, ...]
    differences: dict[str, list[Any]]
    last: dict[str, list[float | None]]
    best: dict[str, list[tuple[float, int] | None]]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "runs": [run.to_dict() for run in self.runs],
            "differences": self.differences,
            "last": self.last,
            "best": self.best,
        }

    def __str__(self) -> str:
        from rich.table import Table

        pages = []
        for title, rows in (
            ("Results", self._results()),
            ("Differences", self._different()),
        ):
            table = Table(title=title, title_justify="left")
            table.add_column(overflow="fold")
            for run in self.runs:
                table.add_column(run.name, justify="right", overflow="fold")
            for name, values in rows.items():
                table.add_row(_short(name), *values)
            text = page_text(table, 44 + 28 * len(self.runs))
            pages.append("\n".join(line.rstrip() for line in text.splitlines()))
        return "\n\n".join(pages)

    __repr__ = __str__

    def _results(self) -> dict[str, list[str]]:
        rows = {
            "state": [run.state for run in self.runs],
            "epochs": [str(len(run.epochs)) for run in self.runs],
            "seconds": [number_text(round(run.seconds, 1)) for run in self.runs],
        }
        for name, values in self.last.items():
            rows[name] = ["–" if v is None else number_text(v) for v in values]
            best = self.best.get(name)
            if best is not None and any(best):
                rows[f"  best {name}"] = [
                    "–" if b is None else f"{number_text(b[0])} (epoch {b[1]})"
                    for b in best
                ]
        return rows

    def _different(self) -> dict[str, list[str]]:
        return {
            name: ["–" if v is None else _short(v) for v in values]
            for name, values in self.differences.items()
        }


@api_boundary
def compare(*runs: Any) -> Comparison:
    """Compares runs.

    Args:
        *runs: Two or more: their folders, or what `read` returned.

    Raises:
        ArgumentError: There are fewer than two.
        MissingFileError: One is not there.

    Example:
        >>> from pathlib import Path
        >>> a = Run(Path("a"), "finished", {"fit": {"epochs": 3}}, {}, [], [], [], 0)
        >>> b = Run(Path("b"), "finished", {"fit": {"epochs": 5}}, {}, [], [], [], 0)
        >>> compare(a, b).differences
        {'fit.epochs': [3, 5]}
    """
    if len(runs) < 2:
        raise ArgumentError("runs", f"two runs are compared, received {len(runs)}")
    records = tuple(run if isinstance(run, Run) else read(run) for run in runs)
    described = [
        {**_flatten(run.config), **_flatten(run.environment, "environment.")}
        for run in records
    ]
    names = dict.fromkeys(name for one in described for name in one)
    different = {}
    for name in names:
        values = [one.get(name) for one in described]
        if any(value != values[0] for value in values):
            different[name] = values
    logged = dict.fromkeys(name for run in records for name in run.last)
    return Comparison(
        records,
        different,
        {name: [run.last.get(name) for run in records] for name in logged},
        {name: [run.best.get(name) for run in records] for name in logged},
    )


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted names; an architecture as one, and lists as they are."""
    settings: dict[str, Any] = {}
    for name, one in value.items():
        if name in _OWN:
            continue
        if isinstance(one, Mapping) and name not in _LONG:
            inner = prefix if name == "config" else f"{prefix}{name}."
            settings |= _flatten(one, inner)
        else:
            settings[prefix + name] = one
    return settings


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"
