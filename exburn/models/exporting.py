"""A model as a file for another runtime."""

from __future__ import annotations

import dataclasses
from typing import Any

from exburn.compression.quantization.aware import is_simulated
from exburn.core.printing import print_text
from exburn.export.exporting import export_model
from exburn.export.report import ExportReport
from exburn.models.network import Network
from exburn.quantizers.report import UNSEEN


def export(
    self: Network,
    filepath: Any,
    format: str | None = None,
    verbose: Any = None,
    input_signature: Any = None,
    *,
    dynamic: str | None = "all",
    samples: Any = None,
    rtol: float | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> ExportReport:
    """Writes inference as a program that runs without ExBurn.

    The file is run beside the model before it takes its name; where it would compute
    something else, the old file stays, and an error says what differs. Runs of it:
    ``exburn.predict(filepath, x)``, and whatever reads the format.

    Lookups of strings are no part of the program, which is said by a warning: it
    takes what ``model.encode_inputs(x)`` returns.

    Args:
        filepath: The file: ``….onnx``, ``….tflite``, ``….mlpackage``,
            ``….stablehlo``.
        format: ``"onnx"``, ``"litert"``, ``"coreml"``, ``"stablehlo"``, or ``"mobile"``
            for a folder with the first three; by default the suffix tells, and without
            one it is ``"stablehlo"``.
        verbose: Whether the report is printed.
        input_signature: Arrays or specs in the structure of the inputs, where the
            model does not know them. Their first axis is taken to be free.
        dynamic: ``"all"`` leaves the number of rows open, and every size that the
            model leaves open, each of each input for itself; ``"batch"`` leaves the
            rows open, with the samples' sizes for the others; ``None`` fixes all.
        samples: Inputs that the file is compared on, and calibrated by; by default
            some are drawn.
        rtol: The greatest difference from the model's outputs, as a part of the
            greatest output; 1e-4 for files in float32.
        batch_size: A fixed number of rows, for a model that JAX cannot trace with
            an unknown one.
        **options: Of the format. ``platforms=`` of StableHLO: some of ``("cpu",
            "cuda", "rocm", "tpu")``; by default the CPU and the platform in use.
            ``integers=`` of ONNX, ``batch_sizes=`` and ``quantize=`` of LiteRT,
            ``precision=`` of Core ML, ``formats=``, ``labels=`` and ``preprocessing=``
            of a bundle: see `exburn.export`, and the page on exports.

    Returns:
        The report: the greatest error, bytes, operators, what was checked.

    Raises:
        ExportError: The format cannot express an operation; it names the layer and
            JAX's primitive. Or the file computes something else than the model.
        MissingDependencyError: A package is not installed; it names the extra.
        NotBuiltError: The model has no weights, or its inputs are not known.
        ArgumentError, UnknownNameError: There is no such format or option, or the
            model cannot be traced with free rows.
        SaveError: The disk is full, or writing is not permitted.

    Example:
        >>> import tempfile
        >>> from exburn import Sequential, layers
        >>> model = Sequential([layers.Input((3,)), layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = model.export(f"{folder}/model.stablehlo")
        >>> report.format, report.inputs
        ('stablehlo', {'input_layer': 'float32[batch, 3]'})

    Source: ``keras.Model.export``; its formats for TensorFlow are not there.
    """
    model: Any = self
    if is_simulated(self):
        model = model.quantize()
    quantized = model.quantization_report
    report = export_model(
        model,
        filepath,
        format,
        input_signature=input_signature,
        dynamic=dynamic,
        samples=samples,
        rtol=rtol,
        batch_size=batch_size,
        options=options,
    )
    if quantized is not None and quantized.unrounded:
        note = f"not rounded ({UNSEEN}): {', '.join(quantized.unrounded)}"
        report = dataclasses.replace(report, notes=(*report.notes, note))
    if verbose:
        print_text(report)
    return report
