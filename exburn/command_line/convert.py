"""Writes a model, or the weights of one, in another format.

  exburn convert old.keras new.exburn
  exburn convert model.exburn weights.safetensors
  exburn convert model.exburn model.onnx

What IN is, is told by its content, and what OUT is to be, by its suffix: .exburn (a
whole model), .safetensors (weights), or a format that model.export writes. Exit code 1:
it cannot be converted, or OUT is there and --force is not.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from exburn.command_line.files import examine
from exburn.command_line.modules import add_import, import_modules
from exburn.command_line.output import show
from exburn.core.printing import size_text
from exburn.errors import ArgumentError

_READ_ONLY = (".keras", ".h5", ".hdf5", ".npz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("source", type=Path, metavar="IN", help="a saved model")
    parser.add_argument("target", type=Path, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--force", action="store_true", help="replace OUT if it is there"
    )
    parser.add_argument(
        "--no-optimizer",
        action="store_true",
        help="leave the optimizer's state out of an .exburn file",
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="of model.export: onnx, litert, coreml, stablehlo, mobile (by the suffix)",
    )
    add_import(parser)


def run(options: argparse.Namespace) -> None:
    """Reads IN, and writes OUT."""
    from exburn.saving import load_model

    import_modules("convert", options.modules)
    source, target = options.source, options.target
    artifact = examine(source)
    if not artifact.is_model:
        raise ArgumentError(
            "convert",
            f"IN must be a whole model, {str(source)!r} holds {artifact.kind}",
            hint="Weights alone do not tell the layers that they belong to.",
        )
    suffix = target.suffix.lower()
    if suffix in _READ_ONLY:
        raise ArgumentError(
            "convert",
            f"files that end in {suffix} are read here, but not written",
            hint=f"Write {target.with_suffix('.exburn').name}.",
        )
    if not (suffix or options.format):
        raise ArgumentError(
            "convert",
            "the suffix of OUT tells what is written, and it has none",
            hint="Name a format: --format mobile.",
        )
    if target.exists() and not options.force:
        raise ArgumentError(
            "convert", f"{str(target)!r} is there already", hint="Pass --force."
        )
    whole = suffix == ".exburn" and options.format is None
    model: Any = load_model(source, compile=whole)
    facts: dict[str, Any] = {"from": str(source), "to": str(target)}
    if whole:
        model.save(target, include_optimizer=not options.no_optimizer)
    elif suffix == ".safetensors" and options.format is None:
        model.save_weights(target)
    else:
        report = model.export(target, options.format)
        facts |= {"format": report.format, "operators": dict(report.operators)}
        facts |= {"greatest_error": report.error, "checked": report.checked}
    facts["bytes"] = size = examine(target).bytes
    text = f"{source} → {target}, {size_text(size)}"
    if facts.get("greatest_error") is not None:
        text += f"; greatest error {facts['greatest_error']:.1e} ({facts['checked']})"
    show(options, facts, text)
