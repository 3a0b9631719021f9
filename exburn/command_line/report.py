"""Writes the page of a run anew: curves, results, settings, events, as one HTML file.

exburn report runs/mnist
exburn report runs/mnist --output mnist.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

from exburn.command_line.output import show
from exburn.core.printing import size_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="the page (RUN/report.html)"
    )


def run(options: argparse.Namespace) -> None:
    """Writes it, and tells where."""
    from exburn.runs import write_report

    written = write_report(options.run_folder, options.output)
    size = written.stat().st_size
    facts = {"report": str(written), "bytes": size}
    show(options, facts, f"{written}, {size_text(size)}")
