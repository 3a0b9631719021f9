"""Keras' files from before ``.keras``: of ``save("m.h5")``, ``save_weights("w.h5")``.

A group of weights lists its layers in ``layer_names``, and each layer's group the
arrays in ``weight_names``, the trained ones first. A file of a whole model has that
group as ``model_weights``, its description as the attribute ``model_config``, and what
``compile`` was given as ``training_config``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from exburn.errors import FileFormatError
from exburn.module.traversal import iter_weights
from exburn.saving.hdf5 import HDF5File
from exburn.saving.weight_sources import WeightSource

_MODEL, _TOP = "model_weights", "top_level_model_weights"


def is_legacy(file: HDF5File) -> bool:
    """Whether a file has this layout, of a whole model or of weights."""
    return _start(file) is not None


def _start(file: HDF5File) -> str | None:
    """The group of the weights; ``None`` if there is none."""
    for group in ("", _MODEL):
        exists = not group or group in file.groups
        if exists and file.texts("layer_names", group) is not None:
            return group
    # Without a layer the list is left out; a model has its description all the same.
    whole = _MODEL in file.groups and file.text("model_config") is not None
    return _MODEL if whole else None


class LegacyWeights(WeightSource):
    """The weights of such a file, by their paths in a model of ours.

    Args:
        model: The model that they are for.
        by_name: Whether layers are found by their names. Else the layers with weights
            come in the order of the model's, as Keras has it.
        skip_mismatch: Whether layers with another number of weights are passed by.

    Attributes:
        shapes: As of ``WeightSource``; by name, without what the model does not name.

    Raises:
        FileFormatError: The numbers of layers or weights differ.
    """

    def __init__(
        self,
        file: HDF5File,
        model: Any,
        *,
        by_name: bool = False,
        skip_mismatch: bool = False,
    ):
        self._file, self.by_name = file, by_name
        self._skips = skip_mismatch
        self._source: dict[str, str] = {}
        unknown: list[str] = []
        paths = {id(w): path for path, w, _ in iter_weights(model)}
        start = _start(file)
        assert start is not None  # asked before
        for layer, (name, arrays) in self._pairs(model, start):
            weights = [] if layer is None else _legacy_order(layer)
            if layer is not None and len(weights) != len(arrays):
                self._differs(layer, name, len(weights), len(arrays))
                continue
            for weight, array in itertools.zip_longest(weights, arrays):
                if weight is None:
                    unknown.append(array)
                else:
                    self._source[paths[id(weight)]] = array
        self._match_top(model, start, paths)
        self.shapes = {path: file.shapes[name] for path, name in self._source.items()}
        if not by_name:
            self.shapes |= {name: file.shapes[name] for name in unknown}

    def _pairs(self, model: Any, start: str) -> Iterator[tuple[Any, tuple[str, list]]]:
        """Layers of the model, each with its name and arrays in the file."""
        entries = [
            (name, self._arrays(_inside(start, name)))
            for name in self._file.texts("layer_names", start) or ()
        ]
        if self.by_name:
            layers_by_name = {layer.name: layer for layer in model.layers}
            yield from (
                (layers_by_name[n], (n, a)) for n, a in entries if n in layers_by_name
            )
            return
        entries = [entry for entry in entries if entry[1]]
        layers = [layer for layer in model.layers if _legacy_order(layer)]
        if len(entries) != len(layers) and not self._skips:
            raise FileFormatError(
                "load_weights",
                f"the file has {len(entries)} layers with weights, the model has "
                f"{len(layers)}",
                {
                    "file": self._file.path,
                    "in the file": ", ".join(name for name, _ in entries),
                    "in the model": ", ".join(layer.name for layer in layers),
                },
                hint="by_name=True takes those whose names agree.",
            )
        for layer, entry in itertools.zip_longest(layers, entries):
            if entry is not None:
                yield layer, entry

    def _differs(self, layer: Any, name: str, ours: int, theirs: int) -> None:
        if self._skips:
            return
        raise FileFormatError(
            "load_weights",
            f"the layer {layer.name!r} has {ours} weights, {name!r} in the file has "
            f"{theirs}",
            {"file": self._file.path},
            hint="skip_mismatch=True passes such layers by.",
        )

    def _match_top(self, model: Any, start: str, paths: Mapping[int, str]) -> None:
        """The weights that a model of the user's holds itself, in no layer."""
        top = _inside(start, _TOP)
        if top not in self._file.groups:
            return
        inside = {id(w) for layer in model.layers for w in layer.weights}
        weights = [w for w in _legacy_order(model) if id(w) not in inside]
        arrays = self._arrays(top)
        if len(weights) == len(arrays):
            pairs = zip(weights, arrays, strict=True)
            self._source |= {paths[id(weight)]: array for weight, array in pairs}
        else:
            self._differs(model, _TOP, len(weights), len(arrays))

    def _arrays(self, group: str) -> list[str]:
        if group not in self._file.groups:
            raise self._file.damage_error(f"the file has no group {group!r}")
        return _read_listed(self._file, group)

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        """The arrays of these paths; their shapes have been found to fit."""
        return {path: self._file.read(self._source[path]) for path in names}


def _read_listed(file: HDF5File, group: str) -> list[str]:
    """The arrays that a group lists."""
    names = [_inside(group, name) for name in file.texts("weight_names", group) or ()]
    for name in names:
        if name not in file.shapes:
            raise file.damage_error(f"the file has no array {name!r}")
    return names


def _inside(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _legacy_order(layer: Any) -> list[Any]:
    """A layer's weights, the trained ones first, as these files have them."""
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def optimizer_arrays(file: HDF5File) -> list[str]:
    """The arrays of an optimizer's state, in its order; none if they are not there."""
    group = "optimizer_weights"
    return _read_listed(file, group) if group in file.groups else []
