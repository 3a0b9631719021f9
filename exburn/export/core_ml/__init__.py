"""Core ML packages, written on any system.

The converter runs in a process of its own, which is the script `conversion`. Core ML
itself is there on macOS alone; elsewhere the package's program is computed by NumPy
(see `evaluation`), which finds what a conversion got wrong.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice
from exburn.errors import ExportError
from exburn.export.comparison import trials
from exburn.export.converter import artifact, run_converter
from exburn.export.converter import require_packages as require_all
from exburn.export.diagnosis import find_problems
from exburn.export.program import ExportedProgram
from exburn.export.report import Problem, WriteResult, explain
from exburn.export.rows import (
    batches,
    fix_rows,
    flatten,
    join_batches,
    load_outputs,
    save_batches,
)
from exburn.export.signature import Interface
from exburn.export.structure import KEY, encode

SCRIPT = Path(__file__).with_name("conversion.py")
NAME = "the Core ML converter"
_IS_MAC = sys.platform == "darwin"
_NUMPY = "its operators by NumPy, not Core ML"
# What half the precision may change of an output, as a part of its greatest entry.
_HALF = 2e-2


def require_packages() -> None:
    """Raises ``MissingDependencyError`` where the converter is not installed."""
    reason = "writing Core ML needs coremltools and a converter for StableHLO"
    require_all(("coremltools", "stablehlo_coreml"), "export", reason, "coreml")


def write(program: ExportedProgram, path: Path, options: dict[str, Any]) -> WriteResult:
    """Writes the program as a package for iOS 18, macOS 15 and later.

    Args:
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
        fixed = fix_rows(program, program.rows or 1)
        function, specs = flatten(fixed)
        function = functools.partial(_compute_apart, fixed, function)
        (folder / "program.stablehlo").write_bytes(artifact(function, specs, "coreml"))
        inputs, _ = trials(program)[-1]
        parts = _save_batches(folder, program, inputs)
        structure = encode(program.outputs, feature_names(program.output_names))
        job = {
            "about": {KEY: structure} if structure else {},
            "file": "program.stablehlo",
            "precision": precision,
            "inputs": feature_names(program.input_names),
            "outputs": feature_names(program.output_names),
            "batches": 0 if _IS_MAC else parts,
        }
        try:
            result = run_converter(SCRIPT, folder, job, target=NAME)
        except ExportError as error:
            raise explain(error, problems(program)) from error
        shutil.move(folder / "model.mlpackage", path)
        runs = None
        if not _IS_MAC:  # loading coremltools takes longer than all the rest
            outputs = load_outputs(folder, parts, job["outputs"], len(inputs[0]))
            runs = _NUMPY, [lambda _: outputs]
    rtol = _HALF if precision == "float16" else None
    return WriteResult(result["operators"], rtol=rtol, runs=runs)


def runner(program: Interface, path: Path) -> tuple[str, list[Callable]]:
    """Core ML on macOS; elsewhere the package's operators as NumPy computes them."""
    name, run = _NUMPY, _evaluate
    if _IS_MAC:
        version = importlib.metadata.version("coremltools")
        name, run = f"Core ML by coremltools {version}", _predict
    return name, [functools.partial(run, program, path)]


def problems(program: ExportedProgram) -> list[Problem]:
    """What the converter cannot convert, or converts wrongly."""
    return find_problems(fix_rows(program, program.rows or 1), SCRIPT, NAME)


def feature_names(names: Sequence[str]) -> list[str]:
    """The names that inputs or outputs have in a package: letters, digits and ``_``.

    Example:
        >>> feature_names(["image", "my input", "2", "my-input"])
        ['image', 'my_input', '_2', 'my_input_1']
    """
    features: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = f"_{plain}" if plain[:1].isdigit() or not plain else plain
        unique, number = plain, 1
        while unique in features:
            unique, number = f"{plain}_{number}", number + 1
        features.append(unique)
    return features


def _compute_apart(
    program: ExportedProgram, function: Callable, *inputs: Any
) -> list[Any]:
    """The function's outputs, each as a value of its own.

    In a package the names of inputs and outputs are those of values: one that is an
    input, or an output already, cannot have another name. The maximum of a value and
    itself is one that no pass of the converter takes out.
    """
    sources = {id(slot) for slot in program.operations.inputs}
    outputs = []
    for slot, value in zip(program.operations.outputs, function(*inputs), strict=True):
        outputs.append(jax.lax.max(value, value) if id(slot) in sources else value)
        sources.add(id(slot))
    return outputs


def _evaluate(
    program: Interface, path: Path, inputs: list[np.ndarray]
) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory(prefix="exburn-export-") as room:
        folder = Path(room)
        parts = _save_batches(folder, program, inputs)
        job = {"package": str(path.resolve()), "batches": parts}
        run_converter(SCRIPT, folder, job, target="Core ML's operators by NumPy")
        names = feature_names(program.output_names)
        return load_outputs(folder, parts, names, len(inputs[0]))


def _save_batches(folder: Path, program: Interface, inputs: list[np.ndarray]) -> int:
    names = feature_names(program.input_names)
    return save_batches(folder, inputs, names, program.rows or 1)


def _predict(
    program: Interface, path: Path, inputs: list[np.ndarray]
) -> list[np.ndarray]:
    import coremltools

    model = coremltools.models.MLModel(str(path))
    parts, rows = batches(inputs, program.rows or 1)
    names = feature_names(program.input_names)
    feeds = [dict(zip(names, part, strict=True)) for part in parts]
    outputs = feature_names(program.output_names)
    return join_batches([model.predict(feed) for feed in feeds], outputs, rows)
