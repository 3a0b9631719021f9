"""A model's weights alone: written as safetensors, read from several formats."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, FileFormatError, ShapeError
from exburn.module.traversal import iter_weights
from exburn.module.variable import assign
from exburn.saving.atomic import HDF5, ZIP, Source, path_of, target_of
from exburn.saving.checkpoint import saved_at
from exburn.saving.checkpoint.arrays import weights_of
from exburn.saving.header import damage_error
from exburn.saving.keras_archive import is_keras_archive
from exburn.saving.own_storage import give_back, is_own, own_variables
from exburn.saving.report import LoadReport
from exburn.saving.shards import TensorFile, byte_count, write_tensors

FORMAT = "exburn-weights-1"
_OP = "load_weights"
_MAX_NPY_HEADER = 10_000  # bytes, NumPy's own limit


def save_weights(
    model: Any, filepath: Any, overwrite: bool = True, *, max_shard_size: Any = None
) -> Path:
    """Writes every weight under its path; the old file survives any failure.

    Args:
        model: A built model.
        filepath: Target; ``.safetensors`` is appended if it has no suffix. Keras'
            ``.weights.h5`` is accepted, and holds safetensors too.
        overwrite: Whether an existing file may be replaced.
        max_shard_size: Size, such as ``"5GB"``, from which on the tensors go into
            several files beside an index.

    Raises:
        ArgumentError: The file exists and ``overwrite`` is false; no such folder.
        SaveError: The disk is full, or writing is not permitted.
    """
    path = path_of(filepath, ".safetensors", "save_weights")
    foreign = path.suffix in (".h5", ".hdf5", ".keras", ".npz")
    if foreign and not path.name.endswith(".weights.h5"):
        raise ArgumentError(
            "save_weights",
            f"ExBurn writes safetensors files, not {path.suffix!r}",
            hint=f"Use {path.name.split('.')[0]}.safetensors",
        )
    path = target_of(path, "save_weights", overwrite=overwrite)
    weights = iter_weights(model, carried=False)
    arrays = {name: weight.get_value() for name, weight, _ in weights}
    arrays |= own_variables(model, "save_weights")
    limit = byte_count(max_shard_size, "save_weights")
    return write_tensors(
        path, arrays, {}, format=FORMAT, max_shard_size=limit, op="save_weights"
    )


class Stored:
    """Weights in a file, whatever its format.

    Attributes:
        shapes: Shape of each, by its path in the model, else its name in the file.
        taken: Paths of weights that a method of their layer's reads.
    """

    shapes: Mapping[str, tuple[int, ...]]
    taken: frozenset[str] = frozenset()

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        """The arrays of these names; they have been found to fit."""
        raise NotImplementedError

    def read_own(self) -> Mapping[str, np.ndarray]:
        """What layers saved by methods of their own."""
        return {}


def load_weights(
    model: Any, filepath: Any, *, skip_mismatch: bool = False, by_name: bool = False
) -> LoadReport:
    """Reads weights by path. Nothing is changed unless everything fits.

    Args:
        model: A built model.
        filepath: A file of ``save_weights`` or ``save_model``, any safetensors file or
            NumPy's ``.npz`` with the same names, or Keras' ``.weights.h5``, ``.keras``
            or legacy ``.h5``: its content tells what it is. Or a folder of checkpoints,
            or one of them.
        skip_mismatch: Leaves out weights that are missing, unexpected or of another
            shape.
        by_name: Of a legacy ``.h5``, takes the layers whose names are in the model, and
            leaves the others as they are.

    Raises:
        FileFormatError: The file is damaged, or weights are missing or unexpected.
        ShapeError: A weight has another shape.
        ArgumentError: There is no such file, or ``by_name`` is for another kind.
        CheckpointError: There is no intact checkpoint in the folder.
        MissingDependencyError: A file of Keras' needs h5py.
    """
    path = path_of(filepath, ".safetensors", _OP, exists=True)
    own = {name: weight for name, weight, _ in iter_weights(model, carried=False)}
    shapes = {name: tuple(weight.shape) for name, weight in own.items()}
    carried = {name for name, _, _ in iter_weights(model)} - set(own)
    with _open(path, model, shapes, by_name, skip_mismatch) as stored:
        found = {n: s for n, s in stored.shapes.items() if n not in carried}
        rest = {n: s for n, s in shapes.items() if n not in stored.taken}
        report = _report(path, rest, found)
        if not skip_mismatch:
            _require_complete(report, partial=by_name)
        elif not (report.loaded or stored.taken):
            raise FileFormatError(
                _OP,
                "no weight of the model is in the file",
                {"file": path, "first in the file": ", ".join(report.unexpected[:3])},
                hint="The names differ: compare them with model.weights.",
            )
        arrays = stored.read(report.loaded)
        own_arrays, taken = stored.read_own(), stored.taken
    for name in report.loaded:
        if np.iscomplexobj(arrays[name]) and not np.iscomplexobj(own[name].get_value()):
            raise FileFormatError(
                _OP,
                f"{name} holds complex numbers in the file, and real ones in the model",
                {"file": path},
            )
    for name in report.loaded:
        assign(own[name], arrays[name])
    give_back(model, own_arrays, _OP)
    loaded = [name for name in own if name in taken or name in report.loaded]
    return dataclasses.replace(report, loaded=loaded)


@contextlib.contextmanager
def _open(
    path: Path,
    model: Any,
    shapes: Mapping[str, tuple],
    by_name: bool,
    skip_mismatch: bool,
) -> Iterator[Stored]:
    # Not path.is_dir(), which raises what the disk says.
    if os.path.isdir(path) and (saved := saved_at(path)) is not None:
        _refuse_by_name(path, by_name)
        yield _Checkpoint(weights_of(saved.arrays))
        return
    with Source(path, op=_OP) as file:
        start = file.read(0, 8)
    if start == HDF5 or (start.startswith(ZIP) and is_keras_archive(path, _OP)):
        from exburn.saving.keras_weights import open_weights

        options = {"by_name": by_name, "skip_mismatch": skip_mismatch}
        with open_weights(path, model, **options) as stored:
            yield stored
        return
    _refuse_by_name(path, by_name)
    if start.startswith(ZIP):
        yield _Npz(path, shapes)
        return
    with TensorFile(path, op=_OP) as file:
        file.clean()
        yield _Tensors(file)


def _refuse_by_name(path: Path, by_name: bool) -> None:
    if by_name:
        raise ArgumentError(
            _OP,
            "by_name=True is for Keras' legacy .h5 files; others go by path anyway",
            {"file": path},
        )


class _Tensors(Stored):
    """A safetensors file; what is no weight in a model file is left out."""

    def __init__(self, file: TensorFile):
        self._file = file
        self.shapes = {
            name: entry.shape
            for name, entry in file.entries.items()
            if not name.startswith("/")
        }

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        return self._file.read(names)

    def read_own(self) -> Mapping[str, np.ndarray]:
        """What layers saved by methods of their own."""
        return self._file.read([name for name in self._file.entries if is_own(name)])


class _Checkpoint(Stored):
    """The weights of a checkpoint of a run."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = arrays
        self.shapes = {name: array.shape for name, array in arrays.items()}

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        return self._arrays


class _Npz(Stored):
    """NumPy's ``.npz``: names are paths, or ``arr_0 …`` in the order of the weights."""

    def __init__(self, path: Path, wanted: Mapping[str, tuple]):
        self._path, self._wanted = path, wanted
        with zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist()]
            by_order = names == [f"arr_{i}" for i in range(len(wanted))]
            targets = list(wanted) if by_order else names
            self._members = dict(zip(targets, archive.namelist(), strict=True))
            if len(self._members) != len(names):
                raise damage_error(_OP, path, "a name occurs twice in the zip file")
            self.shapes = {
                target: self._header(archive, member)[0]
                for target, member in self._members.items()
            }

    def _header(self, archive: zipfile.ZipFile, member: str) -> tuple[tuple, Any]:
        npy = np.lib.format
        try:
            with archive.open(member) as file:
                version = npy.read_magic(file)
                read = {
                    (1, 0): npy.read_array_header_1_0,
                    (2, 0): npy.read_array_header_2_0,
                }[version]
                shape, _, dtype = read(file, max_header_size=_MAX_NPY_HEADER)
                start = file.tell()
        except Exception as error:  # of zipfile, zlib, or NumPy's parser
            raise damage_error(
                _OP, self._path, f"{member} is no array", cause=error
            ) from error
        if dtype.hasobject or dtype.kind not in "biufc":
            raise damage_error(_OP, self._path, f"{member} holds {dtype}, not numbers")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if archive.getinfo(member).file_size != start + size:
            raise damage_error(
                _OP, self._path, f"{member} is not as long as its shape says"
            )
        return tuple(shape), dtype

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        arrays = {}
        try:
            with zipfile.ZipFile(self._path) as archive:
                for name in names:
                    with archive.open(self._members[name]) as file:
                        arrays[name] = np.lib.format.read_array(
                            file, allow_pickle=False, max_header_size=_MAX_NPY_HEADER
                        )
        except Exception as error:  # of zipfile, zlib, or NumPy's parser
            raise damage_error(
                _OP, self._path, "the zip file is damaged", cause=error
            ) from error
        return arrays


def _report(path: Path, own: Mapping[str, tuple], found: Mapping[str, tuple]):
    both = [name for name in own if name in found]
    return LoadReport(
        source=str(path),
        loaded=[name for name in both if found[name] == own[name]],
        missing=[name for name in own if name not in found],
        unexpected=[name for name in found if name not in own],
        mismatched={n: (own[n], found[n]) for n in both if found[n] != own[n]},
    )


def _require_complete(report: LoadReport, *, partial: bool) -> None:
    if (report.missing and not partial) or report.unexpected:
        raise FileFormatError(
            _OP,
            "the file belongs to another model",
            {
                "missing in the file": ", ".join(report.missing) or "none",
                "not in the model": ", ".join(report.unexpected) or "none",
            },
            hint="skip_mismatch=True loads what fits.",
        )
    for name, (mine, theirs) in report.mismatched.items():
        raise ShapeError(
            _OP,
            f"{name} has shape {mine}, the file has {theirs}",
            hint="skip_mismatch=True loads what fits.",
        )
