"""Times the predictions of a model in a file, or, without one, this machine.

  exburn bench iris.exburn --rows 32
  exburn bench --json

Inputs are drawn at random, in the shapes that the model asks for; axes of any length
get --length. What is compiled, or run for the first time, does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from exburn.command_line.files import examine
from exburn.command_line.modules import add_import, import_modules
from exburn.command_line.output import show, whole
from exburn.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="a saved model"
    )
    for name, least, default, text in (
        ("rows", 1, 32, "rows of the input"),
        ("length", 1, 32, "of an input's free axes"),
        ("runs", 1, 30, "runs that count"),
        ("warmup", 0, 5, "runs before them"),
    ):
        parser.add_argument(
            f"--{name}",
            type=whole(least),
            metavar="N",
            default=default,
            help=f"{text} ({default})",
        )
    add_import(parser)


def run(options: argparse.Namespace) -> None:
    """Measures, and tells."""
    from exburn.diagnostics.benchmark import benchmark
    from exburn.runtime.device import device_name

    import_modules("bench", options.modules)
    if options.file is None:
        report = benchmark()
        facts = {"device": device_name(), **dataclasses.asdict(report)}
        show(options, facts, report)
        return
    from exburn.saving import load_model

    artifact = examine(options.file)
    if not artifact.is_model:
        raise ArgumentError(
            "bench", f"a model is timed, {str(options.file)!r} holds {artifact.kind}"
        )
    model = load_model(options.file, compile=False)
    x = _inputs(model, options.rows, options.length)
    report = benchmark(model, x, runs=options.runs, warmup=options.warmup)
    facts = {
        "path": str(options.file),
        "device": device_name(),
        "rows": report.rows,
        "rows_per_second": report.rows_per_second,
        **dataclasses.asdict(report.timing),
    }
    show(options, facts, report)


def _inputs(model: Any, rows: int, length: int) -> Any:
    """Random arrays for the model's inputs."""
    import numpy as np

    graph = getattr(model, "graph", None)
    if graph is None:
        raise ArgumentError(
            "bench",
            "the file does not tell the shape of the model's inputs",
            hint="exburn.benchmark(model, x) times it on an input of yours.",
        )
    draw = np.random.default_rng(0)
    arrays: list[Any] = []
    for spec in graph.inputs:
        first = spec.shape[0] if isinstance(spec.shape[0], int) else rows
        rest = (n if isinstance(n, int) else length for n in spec.shape[1:])
        shape = (first, *rest)
        try:
            dtype = np.dtype(spec.dtype)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "biufV":
            raise ArgumentError("bench", f"inputs of {spec.dtype} cannot be drawn")
        if dtype.kind in "iu":
            arrays.append(draw.integers(0, 2, shape).astype(dtype))
        else:
            arrays.append(draw.standard_normal(shape).astype(dtype))
    return arrays[0] if len(arrays) == 1 else arrays
