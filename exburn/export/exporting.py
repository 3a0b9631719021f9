"""Writing a model for another runtime, and the check of the file."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from exburn.core.checks import check_number
from exburn.errors import ArgumentError, ExportError
from exburn.errors.boundary import api_boundary
from exburn.export.comparison import compare
from exburn.export.formats import Format, format_named, format_of
from exburn.export.program import ExportedProgram, warn_of_lookups
from exburn.export.report import ExportReport, Problem, explain
from exburn.export.signature import declared_dtypes, specs_for_export
from exburn.export.staging import stage

#: The greatest error that a file in float32 may have.
RTOL = 1e-4


def export_model(
    model: Any,
    filepath: Any,
    format: str | None = None,
    *,
    input_signature: Any = None,
    dynamic: str | None = "all",
    samples: Any = None,
    rtol: float | None = None,
    batch_size: int | None = None,
    options: dict[str, Any] | None = None,
) -> ExportReport:
    """Writes a model in a format; see ``Model.export``."""
    try:
        path = Path(os.fspath(filepath))
    except TypeError:
        raise ArgumentError(
            "export", f"a path is needed, received {filepath!r}"
        ) from None
    form = format_of(path, format)
    options = dict(options or {})
    form.check_options(options)
    if rtol is not None:
        rtol = check_number("export", "rtol", rtol, open_low=True)
    form.writer.require_packages()
    specs = specs_for_export(
        model,
        input_signature,
        dynamic=dynamic,
        batch_size=batch_size,
        samples=samples,
    )
    warn_of_lookups(model)
    declared = declared_dtypes(model, input_signature, samples)
    program = ExportedProgram(model, specs, form.target, samples, declared)
    if not form.fixed:
        program = program.with_open_sizes()
    with stage(path, own_names=form.own_names) as place:
        report = write_checked(form, program, place, options, rtol)
    return dataclasses.replace(report, path=path)


def write_checked(
    form: Format,
    program: ExportedProgram,
    path: Path,
    options: dict[str, Any],
    rtol: float | None = None,
) -> ExportReport:
    """Writes a program in a format to a new place, and runs the file beside it.

    Args:
        program: The program, traced for the format's target.
        path: Where nothing is yet.
        options: Those of the format.
        rtol: The greatest error that is taken; by default 1e-4, or what the writer says
            of files that are not in float32.

    Raises:
        ExportError: The format cannot express an operation, or the file computes
            something else.
    """
    outcome = form.writer.write(program, path, options)
    limit = rtol or outcome.rtol or RTOL
    error, checked, notes = outcome.error, outcome.checked, outcome.notes
    if error is None:
        runs = outcome.runs or form.writer.runner(program, path)
        error, checked, remarks = _compare_file(
            form, program, runs, limit, outcome.typical
        )
        notes = (*notes, *remarks)
    inputs, outputs = program.descriptions()
    return ExportReport(
        path,
        form.name,
        _size(path),
        program.weight_bytes,
        dict(outcome.operators),
        error,
        limit,
        checked,
        inputs,
        outputs,
        notes,
    )


@api_boundary
def check(
    model: Any,
    target: str = "onnx",
    *,
    input_signature: Any = None,
    dynamic: str | None = "all",
    batch_size: int | None = None,
) -> list[Problem]:
    """What of a model a format cannot express; nothing is written.

    Args:
        model: A model with weights.
        target: The format: ``"onnx"``, ``"stablehlo"`` …
        input_signature: Arrays or specs in the structure of the inputs, where the model
            does not know them.
        dynamic, batch_size: As of ``Model.export``.

    Returns:
        ``[(layer, primitive, hint)]``; empty if there is nothing in the way.

    Raises:
        UnknownNameError: There is no such format.
        NotBuiltError: The model has no weights, or its inputs are not known.
        MissingDependencyError: A package that writes the format is not installed.
        ArgumentError: The model cannot be traced with sizes that are open.

    Example:
        >>> import exburn
        >>> x = exburn.Input((3,))
        >>> check(exburn.Model(x, exburn.ops.relu(x)), "stablehlo")
        []
    """
    form = format_named(target, "check")
    form.writer.require_packages()
    specs = specs_for_export(
        model, input_signature, dynamic=dynamic, batch_size=batch_size
    )
    program = ExportedProgram(model, specs, form.target)
    return form.writer.problems(program if form.fixed else program.with_open_sizes())


def _compare_file(
    form: Format, program: ExportedProgram, runner: Any, rtol: float, typical: bool
) -> tuple[float | None, str, tuple[str, ...]]:
    if runner is None:
        return None, "it was not run: nothing here runs this format", ()
    name, runs = runner
    if not runs:
        return None, name, ()
    try:
        results = [
            compare(program, run, rtol, at_once=form.fixed, typical=typical)
            for run in runs
        ]
    except ExportError as error:
        raise explain(error, form.writer.problems(program)) from error
    notes = dict.fromkeys(note for result in results for note in result.notes)
    error = max(result.error for result in results)
    return error, f"{name}, {results[0].rows}", tuple(notes)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())
