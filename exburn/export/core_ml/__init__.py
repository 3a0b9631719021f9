"""Core ML packages, written on any system.

The converter runs in a process of its own, which is the script `conversion`. Core ML
itself is there on macOS alone; elsewhere the package's program is computed by NumPy
(see `evaluation`), which finds what a conversion got wrong.
"""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from exburn.core.checks import check_choice
from exburn.errors import ExportError
from exburn.export.converter import artifact, run_converter
from exburn.export.converter import require_packages as require_all
from exburn.export.diagnosis import find_problems
from exburn.export.program import Program
from exburn.export.report import Problem, Written, explain
from exburn.export.rows import batches, fix_rows, flatten
from exburn.export.signature import Interface

SCRIPT = Path(__file__).with_name("conversion.py")
NAME = "the Core ML converter"
# What half the precision may change of an output, as a part of its greatest entry.
_HALF = 2e-2


def require_packages() -> None:
    """Raises ``MissingDependencyError`` where the converter is not installed."""
    reason = "writing Core ML needs coremltools and a converter for StableHLO"
    require_all(("coremltools", "stablehlo_coreml"), "export", reason, "coreml")


def write(program: Program, path: Path, options: dict[str, Any]) -> Written:
    """Writes the program as a package for iOS 18, macOS 15 and later.

    Args:
        program: The program.
        path: The package, a folder.
        options: ``precision``: ``"float32"``, the default, or ``"float16"``, in which
            Core ML computes on the neural engine.

    Raises:
        ExportError: Core ML cannot express an operation.
        ArgumentError: An option is wrong, or a size beside the rows is open.
    """
    precision = options.get("precision", "float32")
    check_choice("export", "precision", precision, ("float32", "float16"))
    with tempfile.TemporaryDirectory(prefix="exburn-export-") as room:
        folder = Path(room)
        function, specs = flatten(fix_rows(program, program.rows or 1))
        (folder / "program.stablehlo").write_bytes(artifact(function, specs, "coreml"))
        job = {
            "file": "program.stablehlo",
            "precision": precision,
            "inputs": program.input_names,
            "outputs": program.output_names,
        }
        try:
            result = run_converter(SCRIPT, folder, job, target=NAME)
        except ExportError as error:
            raise explain(error, problems(program)) from error
        shutil.move(folder / "model.mlpackage", path)
    rtol = _HALF if precision == "float16" else None
    return Written(result["operators"], rtol=rtol)


def runner(program: Interface, path: Path) -> tuple[str, list[Callable]]:
    """Core ML on macOS; elsewhere the package's operators as NumPy computes them."""
    if sys.platform == "darwin":
        name, run = f"Core ML by coremltools {_version()}", _predict
    else:
        name, run = "its operators by NumPy, not Core ML", _evaluate
    return name, [functools.partial(_in_batches, program, path, run)]


def problems(program: Program) -> list[Problem]:
    """What the converter cannot convert, or converts wrongly."""
    return find_problems(fix_rows(program, program.rows or 1), SCRIPT, NAME)


def _in_batches(
    program: Interface, path: Path, run: Callable, inputs: list[np.ndarray]
) -> list[np.ndarray]:
    parts, count = batches(inputs, program.rows or 1)
    feeds = [dict(zip(program.input_names, part, strict=True)) for part in parts]
    found = run(path, feeds)
    return [
        np.concatenate([np.asarray(part[name]) for part in found])[:count]
        for name in program.output_names
    ]


def _evaluate(path: Path, feeds: list[dict]) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="exburn-export-") as room:
        folder = Path(room)
        for number, feed in enumerate(feeds):
            np.savez(folder / f"batch_{number}.npz", **feed)
        job = {"package": str(path.resolve()), "batches": len(feeds)}
        run_converter(SCRIPT, folder, job, target="Core ML's operators by NumPy")
        files = [folder / f"outputs_{number}.npz" for number, _ in enumerate(feeds)]
        return [dict(np.load(file)) for file in files]


def _predict(path: Path, feeds: list[dict]) -> list[Any]:
    import coremltools

    model = coremltools.models.MLModel(str(path))
    return [model.predict(feed) for feed in feeds]


def _version() -> str:
    return importlib.metadata.version("coremltools")
