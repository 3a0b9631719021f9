"""Verifies what is on the disk: digests of models, weights, checkpoints, runs.

  exburn verify iris.exburn runs/mnist checkpoints/

Files that are not of ExBurn's making have no digests: their structure is verified.
Exit code 1: something is damaged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from exburn.command_line.files import Found, examine
from exburn.command_line.output import show
from exburn.errors import ExBurnError
from exburn.runtime.files.ordinary import read_whole

__all__ = ["add_arguments", "run"]


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
        found = examine(path)
        result["kind"] = found.kind
        _VERIFIERS.get(found.kind, _structure)(found, checked, wrong)
    except (ExBurnError, OSError, ValueError) as error:
        wrong.append(str(error))
    result["ok"] = not wrong
    return result


def _tensors(found: Found, checked: list[str], wrong: list[str]) -> None:
    """Reads every tensor, which compares it with its digest."""
    from exburn.saving import read_weights
    from exburn.saving.shards import TensorFile

    if found.path.suffix in (".h5", ".hdf5", ".npz"):
        with read_weights(found.path) as arrays:
            for name in arrays:
                arrays[name]
            checked.append(f"{len(arrays)} arrays; such files have no digests of ours")
        return
    with TensorFile(found.path, op="verify") as file:
        for name in file.entries:
            file.read([name])
        digests = "with digests" if file.format else "without digests"
        checked.append(f"{len(file.entries)} tensors, {digests}")


def _archive(found: Found, checked: list[str], wrong: list[str]) -> None:
    from exburn.saving import load_model

    model = load_model(found.path, compile=False)
    checked.append(f"{model.count_params():,} parameters were read")


def _checkpoints(found: Found, checked: list[str], wrong: list[str]) -> None:
    from exburn.saving.checkpoint.directory import CheckpointDirectory

    one = found.kind == "checkpoint"
    place = found.path.resolve().parent if one else found.path
    _each_checkpoint(
        CheckpointDirectory(place), found.path if one else None, checked, wrong
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


def _run(found: Found, checked: list[str], wrong: list[str]) -> None:
    from exburn.runs import read
    from exburn.runs.directory import CHECKPOINTS
    from exburn.saving.checkpoint.directory import CheckpointDirectory

    run = read(found.path)
    checked.append(f"{run.state}; {len(run.epochs)} epochs, {len(run.events)} events")
    if run.damaged:
        wrong.append(f"damaged lines of metrics and events: {run.damaged}")
    if (predictions := run.predictions) is not None:
        checked.append(f"predictions of {predictions['rows']} rows, with a digest")
    _each_checkpoint(
        CheckpointDirectory(found.path / CHECKPOINTS), None, checked, wrong
    )


def _bundle(found: Found, checked: list[str], wrong: list[str]) -> None:
    """Compares digests, and outputs with the golden ones."""
    from exburn.export.mobile.verification import verify

    checked += [f"{name}: {text}" for name, text in verify(found.path).items()]


def _archive_of_programs(found: Found, checked: list[str], wrong: list[str]) -> None:
    from exburn.export import load_archive

    archive = load_archive(found.path)
    programs, variables = len(archive.endpoints), len(archive.variables)
    checked.append(f"{programs} programs, {variables} variables, with digests")


def _sweep(found: Found, checked: list[str], wrong: list[str]) -> None:
    from exburn.tuning import SweepResult

    checked.append(f"{len(SweepResult.load(found.path))} lanes, with a digest")


def _structure(found: Found, checked: list[str], wrong: list[str]) -> None:
    """Has the reader of the format look at the file."""
    if found.kind == "stablehlo":
        from exburn.models.interop import stablehlo

        stablehlo.load(read_whole(found.path, "verify"))
    elif found.kind == "onnx":
        from exburn.models.interop import onnx_models

        onnx_models.load(str(found.path))
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
