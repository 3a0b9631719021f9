"""Tells what is in a file: a model, weights, a run, checkpoints, an exported program.

  exburn info iris.exburn
  exburn info weights.safetensors --tensors
  exburn info runs/mnist --json

What a file is, is told by its content. Classes of one's own that it names are
registered by --import MODULE.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from exburn.command_line.files import Artifact, examine, tensors_of
from exburn.command_line.modules import add_import, import_modules
from exburn.command_line.output import show
from exburn.core.printing import size_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the file or folder")
    parser.add_argument(
        "--tensors", action="store_true", help="list every tensor of a weights file"
    )
    add_import(parser)


def run(options: argparse.Namespace) -> None:
    """Reads, and tells."""
    import_modules("info", options.modules)
    artifact = examine(options.file)
    facts: dict[str, Any] = {
        "path": str(artifact.path),
        "kind": artifact.kind,
        "bytes": artifact.bytes,
    }
    more, text = _describe(artifact, options.tensors)
    head = f"{artifact.path}: {artifact.kind}, {size_text(artifact.bytes)}"
    show(options, facts | more, f"{head}\n{text}".rstrip())


def _describe(artifact: Artifact, tensors: bool) -> tuple[dict[str, Any], str]:
    if artifact.is_model:
        return _model(artifact.path)
    if artifact.kind == "run":
        return _run(artifact.path)
    if artifact.kind in ("checkpoint", "checkpoints"):
        return _checkpoints(artifact)
    if artifact.kind == "weights" and artifact.path.suffix not in (".h5", ".npz"):
        return _weights(artifact.path, tensors)
    if artifact.kind == "onnx":
        return _onnx(artifact.path)
    return {}, ""


def _onnx(path: Path) -> tuple[dict[str, Any], str]:
    from exburn.models.interop import onnx_models

    session = onnx_models.load(str(path))
    facts = {
        part: [
            {"name": one.name, "type": one.type, "shape": list(one.shape)}
            for one in values
        ]
        for part, values in (
            ("inputs", session.get_inputs()),
            ("outputs", session.get_outputs()),
        )
    }
    lines = [
        f"  {part[:-1]} {one['name']}: {one['type']} {one['shape']}"
        for part, values in facts.items()
        for one in values
    ]
    return facts, "\n".join(lines)


def _model(path: Path) -> tuple[dict[str, Any], str]:
    from exburn.models.arguments import part_names
    from exburn.models.information import describe
    from exburn.saving import load_model

    model = load_model(path, compile=False)
    facts: dict[str, Any] = {"model": dict(describe(model))}
    inputs, outputs = part_names(model)
    if inputs is not None and (graph := model.graph) is not None:
        facts["inputs"], facts["outputs"] = list(inputs), list(outputs)
        facts["input_shapes"] = [
            [n if isinstance(n, int) else None for n in spec.shape]
            for spec in graph.inputs
        ]
    lines: list[str] = []
    model.summary(print_fn=lambda text, **_: lines.append(text))
    return facts, "\n".join(lines)


def _weights(path: Path, listed: bool) -> tuple[dict[str, Any], str]:
    tensors = tensors_of(path)
    total = sum(tensor["numbers"] for tensor in tensors)
    dtypes = sorted({tensor["dtype"] for tensor in tensors})
    facts = {"tensors": len(tensors), "numbers": total, "dtypes": dtypes}
    text = f"{len(tensors)} tensors, {total:,} numbers, {', '.join(dtypes)}"
    if listed:
        facts["list"] = tensors
        width = max((len(tensor["name"]) for tensor in tensors), default=0)
        text += "".join(
            f"\n  {t['name']:{width}}  {t['dtype']} {t['shape']}" for t in tensors
        )
    return facts, text


def _run(path: Path) -> tuple[dict[str, Any], str]:
    from exburn.runs import read

    run = read(path)
    facts = run.to_dict() | {
        "metrics": run.metrics,
        "events": len(run.events),
        "checkpoints": [str(c.path) for c in run.checkpoints],
        "environment": run.environment,
    }
    planned = facts["epochs_planned"]
    lines = [
        f"{run.state}, {len(run.epochs)} of {planned} epochs, {run.seconds:.1f} s",
        *(f"  {name}: {value:.6g}" for name, value in run.last.items()),
        *(f"  checkpoint {c.path.name}" for c in run.checkpoints),
    ]
    return facts, "\n".join(lines)


def _checkpoints(artifact: Artifact) -> tuple[dict[str, Any], str]:
    from exburn.saving.checkpoint.directory import CheckpointDirectory

    place = artifact.path if artifact.kind == "checkpoints" else artifact.path.parent
    listed = CheckpointDirectory(place).checkpoints()
    if artifact.kind == "checkpoint":
        listed = [c for c in listed if c.path.name == artifact.path.resolve().name]
    facts = [
        {
            "name": c.path.name,
            "step": c.step,
            "epoch": c.epoch,
            "batch": c.batch,
            "score": c.score,
        }
        for c in listed
    ]
    lines = [
        f"  {c.path.name}: epoch {c.epoch}, batch {c.batch}, step {c.step}"
        for c in listed
    ]
    return {"checkpoints": facts}, "\n".join(lines)
