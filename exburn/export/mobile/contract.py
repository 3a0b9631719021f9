"""The contract of a mobile bundle: what an application must know of its files.

::

    {
      "format": "exburn-mobile-1",
      "model": {"name": "digits", "parameters": 235146, "made_by": "exburn 0.1.0"},
      "inputs": [{"name": "image", "shape": [null, 28, 28, 1], "dtype": "float32"}],
      "outputs": [{"name": "class", "shape": [null, 10], "dtype": "float32",
                   "labels": ["zero", …]}],
      "preprocessing": {"image": {"scale": 0.00392156862745098}},
      "inside": [{"layer": "normalization", "class": "Normalization"}],
      "files": {
        "litert": {"path": "model.tflite", "bytes": 945120, "sha256": "…",
                   "rows": 1, "signatures": {"serving_default": 1},
                   "inputs": {"image": "image"}, "outputs": {"class": "class"},
                   "tolerance": 0.0001},
        …
      },
      "golden": {"path": "golden.safetensors", "sha256": "…", "rows": 8}
    }

The number of rows comes first in every shape, as ``null``; a file's ``rows`` is how
many it takes at once, ``null`` for any number. ``inside`` lists the layers that prepare
the inputs and are in the files, so that the application does not do it again. Of a
folder the digests are those of its files. The golden tensors are ``input/NAME`` and
``output/NAME``; a file's outputs may differ from them by ``tolerance``, as a part of
the greatest golden number; integers by ``integers``, which is 0 where it is not there.
Of int8 and float16, and of floats that roundings let differ by more, the tolerance is
half as much again as they did when the bundle was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn import layers
from exburn.core.version import __version__
from exburn.errors import ArgumentError
from exburn.export.core_ml import feature_names
from exburn.export.litert.file import signatures
from exburn.export.mobile.verification import FORMAT, digests
from exburn.export.program import ExportedProgram
from exburn.export.report import ExportReport
from exburn.module.traversal import iter_modules

# Layers that an application might think it has to do the work of.
_PREPARING = (
    layers.CategoryEncoding,
    layers.CenterCrop,
    layers.Discretization,
    layers.MelSpectrogram,
    layers.Normalization,
    layers.Rescaling,
    layers.Resizing,
    layers.STFTSpectrogram,
)


def contract_of(
    program: ExportedProgram,
    folder: Path,
    reports: Mapping[str, ExportReport],
    labels: Mapping[str, list[str]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The contract, but for its golden tensors.

    Args:
        folder: The bundle, with its files.
        reports: What was written, by format.
        labels: Those of the outputs that have some.
        options: ``preprocessing``, and what the files were written with.

    Raises:
        ArgumentError: JSON cannot hold the preprocessing.
    """
    model: Any = program.model
    inputs = _describe(program.input_names, program.specs)
    outputs = _describe(program.output_names, program.outputs)
    for output in outputs:
        if output["name"] in labels:
            output["labels"] = labels[output["name"]]
    count = sum(int(np.size(weight)) for weight in program.weights)
    return {
        "format": FORMAT,
        "model": {
            "name": getattr(model, "name", type(model).__name__),
            "parameters": count,
            "made_by": f"exburn {__version__}",
        },
        "inputs": inputs,
        "outputs": outputs,
        "preprocessing": _plain(options.get("preprocessing")),
        "inside": [
            {"layer": path or layer.name, "class": type(layer).__name__}
            for path, layer in iter_modules(model)
            if isinstance(layer, _PREPARING)
        ],
        "files": {
            name: _file(program, folder, report, options)
            for name, report in reports.items()
        },
    }


def check_labels(program: ExportedProgram, labels: Any) -> dict[str, list[str]]:
    """The labels of each output that has some.

    Raises:
        ArgumentError: There are others than the output has classes, or no such output.
    """
    if labels is None:
        return {}
    names = program.output_names
    if not isinstance(labels, Mapping):
        labels = {names[0]: labels}
    sizes = {
        name: spec.shape[-1]
        for name, spec in zip(names, jax.tree.leaves(program.outputs), strict=True)
        if spec.shape
    }
    checked_labels = {}
    for name, classes in labels.items():
        if name not in sizes:
            raise ArgumentError(
                "export",
                f"labels name the output {name!r}, which the model does not have",
                {"outputs": ", ".join(names)},
            )
        entries = [str(label) for label in classes]
        if len(entries) != sizes[name]:
            raise ArgumentError(
                "export",
                f"the output {name!r} has {sizes[name]} classes, received "
                f"{len(entries)} labels",
            )
        checked_labels[name] = entries
    return checked_labels


def own_labels(program: ExportedProgram) -> tuple[str, ...] | None:
    """The labels that the model itself has, if they name its output's classes."""
    labels = getattr(program.model, "labels", None)
    if not isinstance(labels, tuple):
        return None
    outputs = jax.tree.leaves(program.outputs)
    fits = len(outputs) == 1 and outputs[0].shape[-1:] == (len(labels),)
    return labels if fits else None


def _describe(names: list[str], tree: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "shape": [
                None,
                *(n if isinstance(n, int) else None for n in spec.shape[1:]),
            ],
            "dtype": str(np.dtype(spec.dtype)),
        }
        for name, spec in zip(names, jax.tree.leaves(tree), strict=True)
    ]


def _file(
    program: ExportedProgram,
    folder: Path,
    report: ExportReport,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    path = folder / report.path.name
    about: dict[str, Any] = {
        "path": path.name,
        "bytes": report.bytes,
        "sha256": digests(path),
        "rows": program.rows,
        "inputs": {name: name for name in report.inputs},
        "outputs": {name: name for name in report.outputs},
        "tolerance": report.rtol,
    }
    if report.format == "litert":
        entries = signatures(path.read_bytes())
        about["signatures"] = {each.name: each.rows for each in entries}
        about["rows"] = entries[0].rows
        about["precision"] = options.get("quantize") or "float32"
    elif report.format == "coreml":
        for kind in ("inputs", "outputs"):
            names = list(about[kind])
            about[kind] = dict(zip(names, feature_names(names), strict=True))
        about["rows"] = program.rows or 1
        about["precision"] = options.get("precision") or "float32"
        about["systems"] = {"ios": "18.0", "macos": "15.0"}
    return about


def _plain(value: Any) -> Any:
    """The value as JSON has it: lists for arrays and tuples."""

    def plain(each: Any) -> Any:
        if isinstance(each, np.ndarray | np.generic):
            return each.tolist()
        raise TypeError(f"{type(each).__name__} is nothing that JSON holds")

    try:
        return json.loads(json.dumps(value, default=plain, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "export",
            "preprocessing is what JSON can hold: numbers, texts, lists, dicts",
            {"cause": error},
        ) from error
