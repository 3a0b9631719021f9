"""Weights from files of Keras: ``.weights.h5``, ``.keras``, and legacy ``.h5``."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules, iter_weights
from exburn.saving.hdf5 import HDF5File
from exburn.saving.keras_archive import KerasArchive
from exburn.saving.keras_assets import idf_weights
from exburn.saving.keras_layout import own_weights, walk
from exburn.saving.keras_quantized import PackedLayer, packed_layer
from exburn.saving.legacy_h5 import LegacyWeights, is_legacy
from exburn.saving.own_storage import has_own, own_name
from exburn.saving.weight_sources import WeightSource

_OP = "load_weights"
_ENTRIES = (5_000, 50)  # of a file, and more for each weight of the model


@contextlib.contextmanager
def open_weights(
    path: Path, model: Any, *, by_name: bool = False, skip_mismatch: bool = False
) -> Iterator[WeightSource]:
    """The weights of a file of Keras', for a model of ours.

    Args:
        path: The file, which is HDF5 or an archive.
        by_name: Whether layers of a legacy file are found by their names.
        skip_mismatch: Whether its layers with other numbers of weights are passed by.

    Raises:
        ModelFormatError: The file is damaged, or holds what is refused.
        FileFormatError: A legacy file has other numbers of layers or weights.
        ArgumentError: ``by_name``, and the file is none of those.
        MissingDependencyError: h5py is not installed.
    """
    weights = [weight for _, weight, _ in iter_weights(model)]
    entries = _ENTRIES[0] + _ENTRIES[1] * len(weights)
    with contextlib.ExitStack() as stack:
        if zipfile.is_zipfile(path):
            archive = stack.enter_context(KerasArchive(path, _OP))
            file = archive.weights(entries)
        else:
            file = HDF5File(path, _OP, entries)
        stack.enter_context(file)
        if is_legacy(file):
            yield LegacyWeights(
                file, model, by_name=by_name, skip_mismatch=skip_mismatch
            )
            return
        if by_name:
            raise ArgumentError(
                _OP,
                "by_name=True is for Keras' legacy .h5 files; in this one layers are "
                "found by their places",
                {"file": path},
            )
        yield KerasWeights(file, model)


class KerasWeights(WeightSource):
    """The weights of a file of Keras 3, by their paths in a model of ours.

    Args:
        model: The model that they are for.

    Attributes:
        shapes: Shape of each by its path; what the model does not have, by its name
            in the file.
        taken: Paths of the weights that a ``load_own_variables`` of their layer's own
            is given, with whatever else its layer stored.
        packed: Layers whose weights the file has in few bits.
    """

    def __init__(self, file: HDF5File, model: Any):
        self._file = file
        paths = {id(w): path for path, w, _ in iter_weights(model)}
        self._source: dict[str, str] = {}
        self._own: dict[str, str] = {}  # datasets by what our files call them
        self.taken = frozenset()
        self.packed: list[PackedLayer] = []
        # Of weights in few bits: the layer, the name there, and the array of scales.
        self._decoded: dict[str, tuple[PackedLayer, str, str]] = {}
        self._layers = {id(m): path for path, m in iter_modules(model)}
        used: set[str] = set()
        # Optimizers' slots, metrics and streams of seeds are no weights of the model.
        beside = ["optimizer/", "metrics/"]
        for group, part in walk(model, self._has):
            if not isinstance(part, Layer) or id(part) not in self._layers:
                beside.append(f"{group}/")
                continue
            self._match_layer(part, f"{group}/vars/".lstrip("/"), paths, used)
            if part.is_model and group:
                beside += [f"{group}/optimizer/", f"{group}/metrics/"]
        self.shapes = {path: file.shapes[name] for path, name in self._source.items()}
        for path, (packed, name, _) in self._decoded.items():
            if self.shapes[path] == packed.stored_shape(name):
                self.shapes[path] = tuple(getattr(packed.layer, name).shape)
        for name, shape in file.shapes.items():
            apart = name.startswith(tuple(beside)) or "seed_generator/" in name
            if name not in used and not apart:
                self.shapes[name] = shape

    def _has(self, group: str) -> bool:
        return not group or group in self._file.groups

    def _match_layer(
        self, layer: Any, start: str, paths: Mapping[int, str], used: set[str]
    ) -> None:
        used.update(idf_weights(layer, start.removesuffix("/vars/")))
        own = []
        if has_own(layer, "load_own_variables"):
            own = [name for name in self._file.shapes if name.startswith(start)]
        if own:
            for name in own:
                key = own_name(self._layers[id(layer)], name.removeprefix(start))
                self._own[key] = name
            used.update(own)
            self.taken |= {paths[id(weight)] for weight in own_weights(layer)}
            return
        packed = packed_layer(
            layer, start, self._file.shapes, self._file.op, self._file.path
        )
        if packed is not None:
            self._match_packed(packed, start, paths, used)
            return
        for number, weight in enumerate(own_weights(layer)):
            if (name := f"{start}{number}") in self._file.shapes:
                self._source[paths[id(weight)]] = name
                used.add(name)

    def _match_packed(
        self,
        packed: PackedLayer,
        start: str,
        paths: Mapping[int, str],
        used: set[str],
    ) -> None:
        scales = {}
        for number, (name, part) in enumerate(packed.sources()):
            source = f"{start}{number}"
            if source not in self._file.shapes:
                continue
            used.add(source)
            path = paths[id(getattr(packed.layer, name))]
            if part == "scale":
                scales[path] = name, source
            else:
                self._source[path] = source
        for path, (name, source) in scales.items():
            self._decoded[path] = packed, name, source
        self.packed.append(packed)

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        """The arrays of these paths; their shapes have been found to fit."""
        return {path: self._read(path) for path in names}

    def _read(self, path: str) -> np.ndarray:
        array = self._file.read(self._source[path])
        if path not in self._decoded:
            return array
        packed, name, scale = self._decoded[path]
        return packed.decode(name, array, self._file.read(scale))

    def read_own(self) -> Mapping[str, np.ndarray]:
        """What layers saved by methods of their own, by the names our files have."""
        return {key: self._file.read(name) for key, name in self._own.items()}
