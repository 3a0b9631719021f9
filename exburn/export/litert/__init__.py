"""LiteRT (formerly TensorFlow Lite) files, without TensorFlow.

The model is traced for fixed numbers of rows, each of which becomes a signature of the
file. Converter, quantizer and interpreter run in a process of their own, which is the
script `conversion`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax import lax

from exburn.core.checks import check_choice, check_count
from exburn.errors import ArgumentError, ExportError
from exburn.export.comparison import sample_inputs
from exburn.export.converter import artifact, run_converter
from exburn.export.converter import require_packages as require_all
from exburn.export.diagnosis import find_problems
from exburn.export.litert.file import LiteRTSignature, operators, signatures
from exburn.export.litert.rewriting import RULES
from exburn.export.litert.windows import join_means
from exburn.export.operations import rounds
from exburn.export.program import ExportedProgram
from exburn.export.report import Problem, WriteResult, explain
from exburn.export.rows import (
    fix_rows,
    flatten,
    load_outputs,
    save_arrays,
    save_batches,
)
from exburn.export.signature import Interface
from exburn.export.structure import KEY, encode

SCRIPT = Path(__file__).with_name("conversion.py")
NAME = "the LiteRT converter"
MAIN = "serving_default"
QUANTIZED = ("int8", "int8_weights")
# How far outputs in int8 may be off, by their mean square and as a part of the
# greatest, before the file is taken for broken. What it costs is for a test set to say.
_COARSE = 0.1


def require_packages() -> None:
    """Raises ``MissingDependencyError`` where LiteRT's packages are not installed."""
    reason = "writing LiteRT needs its converter and its interpreter"
    require_all(("litert_converter", "ai_edge_litert"), "export", reason, "litert")


def write(program: ExportedProgram, path: Path, options: dict[str, Any]) -> WriteResult:
    """Writes the program with a signature for each number of rows.

    Args:
        options: ``batch_sizes``: numbers of rows, the first of which is the signature
            ``serving_default`` and each other ``rows_…``; by default 1.
            ``quantize``: ``"int8"`` for weights and arithmetic, which the samples
            calibrate, ``"int8_weights"`` for the weights alone. A model with ranges of
            its own is written with these.

    Raises:
        ExportError: LiteRT cannot express an operation.
        ArgumentError: An option is wrong, or a size beside the rows is open.
    """
    sizes = _row_counts(program, options.get("batch_sizes"))
    quantize = _quantization(program, options.get("quantize"))
    integers = rounds(program.operations)
    if integers:
        _refuse_second_scales(quantize)
    with tempfile.TemporaryDirectory(prefix="exburn-export-") as room:
        folder = Path(room)
        jobs = []
        for number, rows in enumerate(sizes):
            file = f"program_{number}.stablehlo"
            fixed = _with_rows(program, rows)
            function, specs = flatten(fixed, RULES)
            if quantize == "int8":
                function = _with_copies(function, fixed)
            (folder / file).write_bytes(artifact(function, specs, "litert"))
            jobs.append(
                {
                    "file": file,
                    "signature": f"rows_{rows}" if number else MAIN,
                    "rows": rows,
                    "inputs": program.input_names,
                    "outputs": program.output_names,
                }
            )
        if quantize == "int8":
            samples = sample_inputs(program) or []
            save_arrays(folder / "samples.npz", program.input_names, samples)
        structure = encode(program.outputs, program.output_names)
        job = {
            "programs": jobs,
            "quantize": quantize,
            "integers": integers,
            "about": {KEY: structure} if structure else {},
        }
        try:
            run_converter(SCRIPT, folder, job, target=NAME)
        except ExportError as error:
            raise explain(error, problems(program)) from error
        shutil.move(folder / "model.tflite", path)
    counts = operators(path.read_bytes())
    if integers and "STABLEHLO_COMPOSITE" in counts:
        raise ExportError(
            "export", "LiteRT's converter left roundings as it found them", counts
        )
    if quantize or integers:
        return WriteResult(counts, rtol=_COARSE, typical=True)
    return WriteResult(counts)


def runner(program: Interface, path: Path) -> tuple[str, list[Callable]]:
    """LiteRT's interpreter on each signature, in a process of its own."""
    version = importlib.metadata.version("ai-edge-litert")
    entries = signatures(path.read_bytes())
    runs = [functools.partial(_run, program, path, each) for each in entries]
    return f"ai-edge-litert {version}", runs


def problems(program: ExportedProgram) -> list[Problem]:
    """What LiteRT's converter cannot convert, or converts wrongly."""
    rows = _row_counts(program, None)[0]
    return find_problems(_with_rows(program, rows), SCRIPT, NAME, RULES)


def _with_rows(program: ExportedProgram, rows: int) -> ExportedProgram:
    """The program for so many rows, of operations that the rules know."""
    fixed = fix_rows(program, rows)
    fixed.operations = join_means(fixed.operations)
    return fixed


def _with_copies(function: Callable[..., list], program: ExportedProgram) -> Callable:
    """A program whose outputs no operation takes: where one does, a copy is given out.

    Outputs are floats, and the quantizer would have the operation take these.
    """
    operations = program.operations
    operands = {id(slot) for step in operations.steps for slot in step.inputs}
    copied = [id(slot) in operands for slot in operations.outputs]

    def copying(*leaves: Any) -> list[Any]:
        pairs = zip(function(*leaves), copied, strict=True)
        return [_copy(x) if is_operand else x for x, is_operand in pairs]

    return copying


def _copy(x: Any) -> Any:
    """An array that the converter does not find to be another one."""
    flat = x.reshape(-1) if x.ndim > 1 else x.reshape(1, -1)
    return lax.optimization_barrier(flat).reshape(x.shape)


def _run(
    program: Interface, path: Path, signature: LiteRTSignature, inputs: list[np.ndarray]
) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory(prefix="exburn-export-") as room:
        folder = Path(room)
        count = save_batches(folder, inputs, program.input_names, signature.rows)
        runs = [{"signature": signature.name}] * count
        job = {"model": str(path), "runs": runs}
        run_converter(SCRIPT, folder, job, target="LiteRT's interpreter")
        return load_outputs(folder, count, program.output_names, len(inputs[0]))


def _row_counts(program: ExportedProgram, batch_sizes: Any) -> list[int]:
    """The numbers of rows of the signatures."""
    fixed = program.rows
    if batch_sizes is None:
        return [fixed or 1]
    if isinstance(batch_sizes, int):
        batch_sizes = [batch_sizes]
    if not isinstance(batch_sizes, list | tuple) or not batch_sizes:
        raise ArgumentError(
            "export",
            f"batch_sizes are numbers of rows, received {batch_sizes!r}",
            hint="batch_sizes=(1, 8).",
        )
    sizes = [check_count("export", "batch_sizes", n) for n in batch_sizes]
    if fixed is not None and sizes != [fixed]:
        raise ArgumentError(
            "export",
            f"batch_size={fixed} fixes the rows, and batch_sizes asks for {sizes}",
            hint="Pass batch_sizes alone.",
        )
    return list(dict.fromkeys(sizes))


def _refuse_second_scales(quantize: str | None) -> None:
    if quantize is not None:
        raise ArgumentError(
            "export",
            "the model has scales of its own, and the file gets these",
            {"quantize": quantize},
            hint="Leave quantize= out.",
        )


def _quantization(program: ExportedProgram, quantize: Any) -> str | None:
    if quantize is None:
        return None
    quantize = check_choice("export", "quantize", quantize, QUANTIZED)
    reason = "quantizing a LiteRT file needs its quantizer"
    require_all(("litert_quantizer",), "export", reason, "litert")
    if quantize == "int8" and program.samples is None:
        raise ArgumentError(
            "export",
            "int8 arithmetic is calibrated on samples, and there are none",
            hint="model.export(path, quantize='int8', samples=x_train[:256]).",
        )
    return quantize
