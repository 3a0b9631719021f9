"""Verifies what is on the disk: digests of models, weights, checkpoints, runs.

  exburn verify iris.exburn runs/mnist checkpoints/

Files that are not of ExBurn's making have no digests: their structure is verified.
Exit code 1: something is damaged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from exburn.command_line.files import Artifact, examine
from exburn.command_line.output import show
from exburn.errors import ExBurnError
from exburn.runtime.files.ordinary import read_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="files or folders"
    )


def run(options: argparse.Namespace) -> int:
    """Reads all of it, and tells.

    Returns:
        1 if something is damaged.
    """
    results = [_verify(path) for path in options.files]
    ok = all(result["ok"] for result in results)
    lines = []
    for result in results:
        mark = "✓" if result["ok"] else "✗"
        lines.append(f"{mark} {result['path']}: {result.get('kind', 'unknown')}")
        lines += [f"    {text}" for text in result["checked"]]
        lines += [f"  ✗ {text}" for text in result["wrong"]]
    show(options, {"ok": ok, "files": results}, "\n".join(lines))
    return 0 if ok else 1


def _verify(path: Path) -> dict[str, Any]:
    checked: list[str] = []
    wrong: list[str] = []
    result: dict[str, Any] = {"path": str(path), "checked": checked, "wrong": wrong}
    try:
        artifact = examine(path)
        result["kind"] = artifact.kind
        _VERIFIERS.get(artifact.kind, _structure)(artifact, checked, wrong)
    except (ExBurnError, OSError, ValueError) as error:
        wrong.append(str(error))
    result["ok"] = not wrong
    return result


def _tensors(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    """Reads every tensor, which compares it with its digest."""
    from exburn.saving import read_weights
    from exburn.saving.shards import TensorFile

    if artifact.path.suffix in (".h5", ".hdf5", ".npz"):
        with read_weights(artifact.path) as arrays:
            for name in arrays:
                arrays[name]
            checked.append(f"{len(arrays)} arrays; such files have no digests of ours")
        return
    with TensorFile(artifact.path, op="verify") as file:
        for name in file.entries:
            file.read([name])
        digests = "with digests" if file.format else "without digests"
        checked.append(f"{len(file.entries)} tensors, {digests}")


def _archive(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    from exburn.saving import load_model

    model = load_model(artifact.path, compile=False)
    checked.append(f"{model.count_params():,} parameters were read")


def _checkpoints(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    from exburn.saving.checkpoint.directory import CheckpointDirectory

    one = artifact.kind == "checkpoint"
    place = artifact.path.resolve().parent if one else artifact.path
    _each_checkpoint(
        CheckpointDirectory(place), artifact.path if one else None, checked, wrong
    )


def _each_checkpoint(
    directory: Any, only: Path | None, checked: list[str], wrong: list[str]
) -> None:
    from exburn.saving.checkpoint.manifest import read_manifest, verify_files

    for folder in sorted(directory._folders()):
        if only is not None and folder.name != only.resolve().name:
            continue
        try:
            manifest = read_manifest(folder)
            verify_files(folder, manifest)
            checked.append(f"{folder.name}: {len(manifest['files'])} files")
        except ExBurnError as error:
            wrong.append(str(error))


def _run(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    from exburn.runs import read
    from exburn.runs.directory import CHECKPOINTS
    from exburn.saving.checkpoint.directory import CheckpointDirectory

    run = read(artifact.path)
    checked.append(f"{run.state}; {len(run.epochs)} epochs, {len(run.events)} events")
    if run.damaged:
        wrong.append(f"damaged lines of metrics and events: {run.damaged}")
    if (predictions := run.predictions) is not None:
        checked.append(f"predictions of {predictions['rows']} rows, with a digest")
    _each_checkpoint(
        CheckpointDirectory(artifact.path / CHECKPOINTS), None, checked, wrong
    )


def _bundle(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    """Compares digests, and outputs with the golden ones."""
    from exburn.export.mobile.verification import verify

    checked += [f"{name}: {text}" for name, text in verify(artifact.path).items()]


def _archive_of_programs(
    artifact: Artifact, checked: list[str], wrong: list[str]
) -> None:
    from exburn.export import load_archive

    archive = load_archive(artifact.path)
    programs, variables = len(archive.endpoints), len(archive.variables)
    checked.append(f"{programs} programs, {variables} variables, with digests")


def _sweep(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    from exburn.tuning import SweepResult

    checked.append(f"{len(SweepResult.load(artifact.path))} lanes, with a digest")


def _structure(artifact: Artifact, checked: list[str], wrong: list[str]) -> None:
    """Has the reader of the format look at the file."""
    if artifact.kind == "stablehlo":
        from exburn.models.interop import stablehlo

        stablehlo.load(read_whole(artifact.path, "verify"))
    elif artifact.kind == "onnx":
        from exburn.models.interop import onnx_models

        onnx_models.load(str(artifact.path))
    checked.append("structure; such files have no digests of ours")


_VERIFIERS = {
    "model": _tensors,
    "weights": _tensors,
    "keras model": _archive,
    "checkpoint": _checkpoints,
    "checkpoints": _checkpoints,
    "run": _run,
    "mobile bundle": _bundle,
    "archive": _archive_of_programs,
    "sweep": _sweep,
}
