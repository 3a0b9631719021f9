"""Records of trainings: what ``fit(run=…)`` writes, to read, compare and show.

A run is a folder: ``config.json`` (what was asked for), ``environment.json`` (where it
ran), ``metrics.jsonl`` and ``events.jsonl`` (what came of it, a line each, only ever
added to), ``checkpoints/`` (the whole run, to go on from) and ``report.html`` (all of
that as one page).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.runs.comparison import Comparison, compare
from exburn.runs.reading import Run, find, read
from exburn.runs.report import write_report

__all__ = ["Comparison", "Run", "compare", "find", "read", "write_report"]


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
