"""A folder with a model for phones: files, what they take and give, and a test.

================================  ==================================================
``model.tflite``                  LiteRT, for Android and everything else
``model.mlpackage``               Core ML, for iOS 18 and macOS 15
``model.onnx``                    ONNX
``contract.json``                 names, shapes, dtypes, labels, what to do to inputs,
                                  digests: see `contract`
``golden.safetensors``            inputs, and the outputs that each file must give
================================  ==================================================

A device loads the file that it can, and tests itself by the golden outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, require
from exburn.export.comparison import draw_trials, sample_inputs
from exburn.export.exporting import write_checked
from exburn.export.formats import FORMATS, Format
from exburn.export.mobile.contract import check_labels, contract_of, own_labels
from exburn.export.mobile.verification import (
    CONTRACT,
    FORMAT,
    GOLDEN,
    digest,
    golden_errors,
)
from exburn.export.program import ExportedProgram
from exburn.export.report import Problem, WriteResult
from exburn.saving.seal import seal_document

FILES = ("litert", "coreml", "onnx")
_GOLDEN_ROWS, _DRAWN_ROWS = 8, 4


def require_packages() -> None:
    """Nothing: the files' own writers say what they need."""


def write(program: ExportedProgram, path: Path, options: dict[str, Any]) -> WriteResult:
    """Writes the bundle; each file is checked as if it were exported by itself.

    Args:
        options: ``formats``: which files, of ``("litert", "coreml", "onnx")``.
            ``labels``: names of the classes, in the order of the output's last axis; a
            dict by output if there are several; by default the model's own.
            ``preprocessing``: what the application
            does to an input first, as JSON can hold it. ``quantize``, ``batch_sizes``
            (LiteRT) and ``precision`` (Core ML): as for these formats.

    Raises:
        ExportError: A format cannot express an operation; leave it out of ``formats``.
        MissingDependencyError: A format's packages are not installed.
        ArgumentError: An option is wrong.
    """
    forms = _forms(options.get("formats", FILES))
    for form in forms:
        form.writer.require_packages()
    labels = check_labels(program, options.get("labels", own_labels(program)))
    path.mkdir()
    reports = {}
    for form in forms:
        place = path / f"model{form.suffix}"
        chosen = {k: v for k, v in options.items() if k in form.options}
        reports[form.name] = write_checked(
            form, program.traced_for(form.target), place, chosen
        )
    inputs, outputs = _golden(program.traced_for(forms[0].target))
    tensors = {f"input/{name}": value for name, value in inputs.items()}
    tensors |= {f"output/{name}": value for name, value in outputs.items()}
    files = require("safetensors.numpy", "export", "it needs safetensors")
    (path / GOLDEN).write_bytes(files.save(tensors))
    contract = contract_of(program, path, reports, labels, options)
    contract["golden"] = {
        "path": GOLDEN,
        "sha256": digest(path / GOLDEN),
        "rows": len(next(iter(inputs.values()))),
    }
    golden = {name: np.asarray(value) for name, value in tensors.items()}
    for kind, about in contract["files"].items():
        coarse = about.get("precision", "float32") != "float32"
        if coarse or reports[kind].notes:  # no bound is known before
            error, apart = golden_errors(path, contract, kind, golden)
            about["tolerance"] = max(1.5 * error, 0 if coarse else about["tolerance"])
            about["integers"] = int(apart)
    json.dumps(contract, allow_nan=False)  # any reader of JSON must take it
    (path / CONTRACT).write_bytes(seal_document(FORMAT, contract, indent=2))
    errors = [report.error for report in reports.values() if report.error is not None]
    checked = "; ".join(f"{name}: {r.checked}" for name, r in reports.items())
    notes = tuple(f"{name}: {note}" for name, r in reports.items() for note in r.notes)
    return WriteResult({}, checked=checked, error=max(errors, default=0.0), notes=notes)


def runner(program: ExportedProgram, path: Path) -> None:
    """Nothing: each file has been run by the writer of its format."""


def problems(program: ExportedProgram) -> list[Problem]:
    """What the formats of the bundle cannot express."""
    rows = []
    for form in _forms(FILES):
        form.writer.require_packages()
        rows += form.writer.problems(program.traced_for(form.target))
    return list(dict.fromkeys(rows))


def _forms(names: Any) -> list[Format]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names or set(names) - set(FILES):
        raise ArgumentError(
            "export",
            f"formats are some of {', '.join(map(repr, FILES))}, received {names!r}",
        )
    return [FORMATS[name] for name in FILES if name in names]


def _golden(program: ExportedProgram) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Inputs by name, samples if there are some, and the model's outputs for them."""
    if (inputs := sample_inputs(program)) is None:
        inputs, outputs = draw_trials(program, (_DRAWN_ROWS,))[0]
    else:
        inputs = [value[:_GOLDEN_ROWS] for value in inputs]
        outputs = program.reference(inputs)
    inputs, outputs = (list(map(np.ascontiguousarray, v)) for v in (inputs, outputs))
    return (
        dict(zip(program.input_names, inputs, strict=True)),
        dict(zip(program.output_names, outputs, strict=True)),
    )
