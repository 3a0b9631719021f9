"""Weights from files of Keras 3, ``.weights.h5`` and ``.keras``, read with suspicion.

HDF5 can refer to other files, compress without bound, and load plugins; a zip file can
be a bomb. Links, external and virtual data and unknown filters are refused, and no
dataset is read before its shape is known to be that of a weight of the model.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import require
from exburn.layer import Layer
from exburn.saving.header import damaged
from exburn.saving.keras_layout import own_weights, walk
from exburn.saving.own_storage import has_own, own_name
from exburn.saving.weights import Stored
from exburn.traversal import iter_modules, iter_weights

__all__ = ["KerasWeights", "read_member"]

_OP = "load_weights"
_FILTERS = {1, 2, 3}  # deflate, shuffle, fletcher32: those that HDF5 itself has
_MOST_ENTRIES = (5_000, 50)  # of a file, and more for each weight of the model
_DEEPEST = 64
_MOST_PACKED = 20  # times as long as in the file
_ROOM = 64 << 20  # bytes of an archive's member beyond what the weights take


class KerasWeights(Stored):
    """The weights of a file of Keras', by their paths in a model of ours.

    Args:
        path: The file.
        model: The model that they are for.

    Attributes:
        shapes: Shape of each by its path; what the model does not have, by its name
            in the file.
        taken: Paths of the weights that a ``load_own_variables`` of their layer's own
            is given, with whatever else its layer stored.

    Raises:
        ModelFormatError: The file is damaged, or holds what is refused.
        MissingDependencyError: h5py is not installed.
    """

    def __init__(self, path: Path, model: Any):
        self.path = path
        reason = "reading weights of Keras needs h5py"
        h5py = require("h5py", _OP, reason, extra="keras", details={"file": path})
        self._h5py = h5py
        self._datasets: dict[str, Any] = {}
        self._groups: set[str] = set()
        self._seen: set[int] = set()  # addresses of groups
        weights = sum(1 for _ in iter_weights(model))
        self._room = _MOST_ENTRIES[0] + _MOST_ENTRIES[1] * weights
        try:
            self._file = h5py.File(self._stream(model), "r")
        except (OSError, RuntimeError, ValueError) as error:
            raise self._damaged("the HDF5 file is damaged", cause=error) from error
        try:
            self._collect()
            self._match(model)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> KerasWeights:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _damaged(self, reason: str, **details: Any):
        return damaged(_OP, self.path, reason, **details)

    def _stream(self, model: Any) -> Any:
        """The HDF5 file; out of a ``.keras`` archive, in memory."""
        if not zipfile.is_zipfile(self.path):
            return self.path
        size = sum(int(np.prod(w.shape)) * 8 for _, w, _ in iter_weights(model))
        # Adam's two slots beside every weight, and the structure of the file.
        data = read_member(self.path, "model.weights.h5", 3 * size + _ROOM, _OP)
        return io.BytesIO(data)

    # ------------------------------------------------------------------ the file
    def _collect(self) -> None:
        """Every dataset and the names of groups, by path; nothing is read yet."""
        try:
            if "layer_names" in self._file.attrs:
                raise self._damaged("this is a file of Keras 2, which is not read")
            self._visit(self._file, "", 0)
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, ValueError) and hasattr(error, "op"):
                raise
            raise self._damaged("the HDF5 file is damaged", cause=error) from error

    def _visit(self, group: Any, path: str, depth: int) -> None:
        h5py: Any = self._h5py
        address = h5py.h5o.get_info(group.id).addr
        if address in self._seen:
            raise self._damaged(f"{path} is a second name of another group")
        self._seen.add(address)
        self._room -= len(group)
        if depth > _DEEPEST or self._room < 0:
            raise self._damaged("the HDF5 file has too many entries for this model")
        for key in group:
            name = f"{path}/{key}" if path else key
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise self._damaged(f"{name} is a link, which is not followed")
            item = group[key]
            if isinstance(item, h5py.Dataset):
                self._check(name, item)
                self._datasets[name] = item
            elif isinstance(item, h5py.Group):
                self._groups.add(name)
                self._visit(item, name, depth + 1)
            else:
                raise self._damaged(f"{name} is neither a group nor a dataset")

    def _check(self, name: str, data: Any) -> None:
        kind, size = data.dtype.kind, data.dtype.itemsize
        half = (kind, size) == ("V", 2) and data.attrs.get("dtype") == "bfloat16"
        if data.shape is None or data.dtype.fields or not (kind in "biuf" or half):
            raise self._damaged(f"{name} holds {data.dtype}, not numbers")
        if data.is_virtual or data.external:
            raise self._damaged(f"{name} refers to another file")
        plan = data.id.get_create_plist()
        filters = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
        if filters - _FILTERS:
            raise self._damaged(f"{name} needs a plugin to be read")
        if data.chunks is not None:
            chunk = int(np.prod(data.chunks, dtype=object)) * data.dtype.itemsize
            if chunk > max(1 << 20, 4 * data.size * data.dtype.itemsize):
                raise self._damaged(f"{name} is stored in chunks larger than itself")

    def _check_length(self, name: str) -> None:
        """An array of any shape is read: it may not grow beyond measure from a few."""
        data = self._datasets[name]
        length = int(np.prod(data.shape, dtype=object)) * data.dtype.itemsize
        if length > max(_ROOM, _MOST_PACKED * data.id.get_storage_size()):
            raise self._damaged(f"{name} would take {length} bytes")

    # ------------------------------------------------------------------ matching
    def _match(self, model: Any) -> None:
        paths = {id(w): path for path, w, _ in iter_weights(model)}
        self._source: dict[str, str] = {}
        self._own: dict[str, str] = {}  # datasets by what our files call them
        self.taken = frozenset()
        self._layers = {id(m): path for path, m in iter_modules(model)}
        used: set[str] = set()
        beside = ["optimizer/"]  # starts of what is no weight of the model
        for group, part in walk(model, self._has):
            if not isinstance(part, Layer):
                beside.append(f"{group}/")
                continue
            self._match_layer(part, f"{group}/vars/".lstrip("/"), paths, used)
            if part.is_model and group:
                beside.append(f"{group}/optimizer/")
        self.shapes = {
            path: tuple(self._datasets[name].shape)
            for path, name in self._source.items()
        }
        for name, data in self._datasets.items():
            apart = name.startswith(tuple(beside)) or "seed_generator/" in name
            if name not in used and not apart:
                self.shapes[name] = tuple(data.shape)

    def _has(self, group: str) -> bool:
        return not group or group in self._groups

    def _match_layer(
        self, layer: Any, start: str, paths: Mapping[int, str], used: set[str]
    ) -> None:
        own = []
        if has_own(layer, "load_own_variables"):
            own = [name for name in self._datasets if name.startswith(start)]
        if own:
            for name in own:
                self._check_length(name)
                key = own_name(self._layers[id(layer)], name.removeprefix(start))
                self._own[key] = name
            used.update(own)
            self.taken |= {paths[id(weight)] for weight in own_weights(layer)}
            return
        for number, weight in enumerate(own_weights(layer)):
            if (name := f"{start}{number}") in self._datasets:
                self._source[paths[id(weight)]] = name
                used.add(name)

    # ------------------------------------------------------------------ reading
    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        """The arrays of these paths; their shapes have been found to fit."""
        return {path: self._read(self._source[path], path) for path in names}

    def read_own(self) -> Mapping[str, np.ndarray]:
        """What layers saved by methods of their own, by the names our files have."""
        return {key: self._read(name, name) for key, name in self._own.items()}

    def _read(self, name: str, shown: str) -> np.ndarray:
        try:
            return self._array(self._datasets[name])
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise self._damaged(f"{shown} cannot be read", cause=error) from error

    def _array(self, data: Any) -> np.ndarray:
        array = data[()]
        if data.attrs.get("dtype") == "bfloat16":
            import ml_dtypes

            array = np.asarray(array).view(ml_dtypes.bfloat16)
        return np.asarray(array)


def read_member(path: Path, name: str, most: int, op: str) -> bytes:
    """One file out of a zip archive, in memory.

    Args:
        path: The archive.
        name: The file in it.
        most: Bytes that it may have.
        op: The operation named in errors.

    Raises:
        ModelFormatError: It is not there, larger, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.namelist().count(name) != 1:
                raise damaged(op, path, f"the archive has no single {name}")
            size = archive.getinfo(name).file_size
            if size > most:
                raise damaged(
                    op, path, f"{name} is too large: {size} bytes, at most {most}"
                )
            with archive.open(name) as file:
                data = file.read(size + 1)
    except (
        OSError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        zipfile.error,
        zlib.error,
    ) as error:
        raise damaged(op, path, "the archive is damaged", cause=error) from error
    if len(data) != size:
        raise damaged(op, path, f"{name} is not as long as the archive says")
    return data
