"""Tells what a file or folder is, by its content, and what is in it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.errors import ArgumentError, MissingFileError
from exburn.runtime.files.ordinary import HDF5, ZIP, Source
from exburn.runtime.files.zip_directory import open_zip

_MODEL_FORMAT = "exburn-model-1"
_SUFFIXES = (
    ".exburn",
    ".keras",
    ".safetensors",
    ".h5",
    ".hdf5",
    ".npz",
    ".tflite",
)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A file or folder of a kind that is known.

    Attributes:
        kind: ``"model"``, ``"weights"``, ``"keras model"``, ``"run"``,
            ``"checkpoints"``, ``"checkpoint"``, ``"onnx"``, ``"stablehlo"``,
            ``"tflite"``, ``"core ml"``, ``"mobile bundle"``, ``"archive"`` (of
            ``ExportArchive``) or ``"sweep"``.
        bytes: Its size, of a folder with all that is in it.
    """

    path: Path
    kind: str
    bytes: int

    @property
    def is_model(self) -> bool:
        """Tells whether ``exburn.load_model`` reads it."""
        return self.kind in ("model", "keras model")


def examine(path: Path) -> Artifact:
    """Tells what a file or folder is."""
    if not path.exists():
        raise MissingFileError("exburn", f"there is no file {str(path)!r}")
    kind = _folder_kind(path) if path.is_dir() else _file_kind(path)
    if kind is None:
        from exburn.runs.reading import runs_in

        runs = [str(run) for run in runs_in(path)]
        details = {"runs in it": ", ".join(runs[:5])} if runs else None
        reason = "is nothing that is known here"
        if path.is_file() and not path.stat().st_size:
            reason = "is empty"
        elif path.is_file() and path.suffix.lower() in _SUFFIXES:
            reason = f"does not hold what its suffix, {path.suffix}, says"
        raise ArgumentError(
            "exburn",
            f"{str(path)!r} {reason}",
            details,
            hint="Known are models, weights, runs, checkpoints and exported programs.",
        )
    return Artifact(path, kind, sum(_sizes(path)))


def _folder_kind(path: Path) -> str | None:
    from exburn.runs.directory import is_run
    from exburn.saving.checkpoint.directory import CheckpointDirectory
    from exburn.saving.checkpoint.manifest import MANIFEST

    if is_run(path):
        return "run"
    if (path / MANIFEST).is_file():
        return "checkpoint"
    if path.suffix in (".mlpackage", ".mlmodelc"):
        return "core ml"
    if (path / "contract.json").is_file():
        return "mobile bundle"
    if (path / "archive.json").is_file():
        return "archive"
    return "checkpoints" if CheckpointDirectory(path).checkpoints() else None


def _file_kind(path: Path) -> str | None:
    with Source(path, op="exburn") as file:
        start = file.read(0, 16)
    suffix = path.suffix.lower()
    if start.startswith(ZIP):
        return _zip_kind(path)
    if start.startswith(HDF5):
        return "weights" if path.name.endswith(".weights.h5") else _hdf5_kind(path)
    if start[4:8] == b"TFL3":
        return "tflite"
    by_suffix = {".onnx": "onnx", ".stablehlo": "stablehlo", ".shlo": "stablehlo"}
    if suffix in by_suffix:
        return by_suffix[suffix]
    if start.startswith(b"{") and _is_sweep(path):
        return "sweep"
    if start[8:9] == b"{" or start[:1] == b"{":  # safetensors, or an index of parts
        from exburn.saving.shards import TensorFile

        with TensorFile(path, op="exburn") as tensors:
            return "model" if tensors.format == _MODEL_FORMAT else "weights"
    return None


def _is_sweep(path: Path) -> bool:
    """Tells whether a file is what ``SweepResult.save`` wrote."""
    from exburn.saving.seal import document_format

    with Source(path, op="exburn") as file:
        return document_format(file.read(0, 200)) == "exburn-sweep-1"


def _zip_kind(path: Path) -> str | None:
    try:
        with open_zip(path, "exburn") as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "keras model" if path.suffix == ".keras" else "weights"
    if "model.weights.h5" in names or "config.json" in names:
        return "keras model"
    return "weights" if any(name.endswith(".npy") for name in names) else None


def _hdf5_kind(path: Path) -> str:
    from exburn.errors import require

    h5py = require("h5py", "exburn", "HDF5 files are read by h5py", extra="keras")
    with contextlib.suppress(OSError), h5py.File(path) as file:
        return "keras model" if "model_config" in file.attrs else "weights"
    return "keras model"


def _sizes(path: Path) -> Iterator[int]:
    if not path.is_dir():
        yield path.stat().st_size
        return
    for parent, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                entry = os.lstat(os.path.join(parent, name))
                if stat.S_ISREG(entry.st_mode):
                    yield entry.st_size


def tensors_of(path: Path) -> list[dict[str, Any]]:
    """The tensors of a safetensors file, without reading them."""
    from exburn.saving.shards import TensorFile

    with TensorFile(path, op="exburn") as file:
        return [
            {
                "name": name,
                "dtype": str(entry.dtype),
                "shape": list(entry.shape),
                "numbers": math.prod(entry.shape),
            }
            for name, entry in file.entries.items()
        ]
