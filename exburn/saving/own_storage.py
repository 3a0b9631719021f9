"""What layers save by methods of their own, beside their weights.

As in Keras, ``save_own_variables(store)`` puts arrays into a dict, and
``save_assets(folder)`` writes files; their counterparts get the same back. A file holds
them as tensors, ``/own/<layer>//<key>`` and ``/assets/<layer>//<path in the folder>``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, ModelFormatError
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules

_OWN, _ASSETS = "/own/", "/assets/"


def is_own(name: str) -> bool:
    """Whether a tensor's name is that of something a layer saved by itself."""
    return name.startswith((_OWN, _ASSETS))


def own_name(path: str, key: str) -> str:
    """What a file calls an array that a layer stored under a key."""
    return f"{_OWN}{path}//{key}"


def asset_name(path: str, name: str) -> str:
    """What a file calls a file that a layer saved."""
    return f"{_ASSETS}{path}//{name}"


def own_variables(model: Any, op: str) -> dict[str, np.ndarray]:
    """What the layers' ``save_own_variables`` gave, by its name in a file.

    Raises:
        ArgumentError: No method reads it again, or it is no array of numbers.
    """
    arrays: dict[str, np.ndarray] = {}
    for path, layer in _with_method(model, "save_own_variables"):
        _need(layer, path, "load_own_variables", op)
        store: dict[str, Any] = {}
        layer.save_own_variables(store)
        for key, value in store.items():
            array = np.asarray(value)
            if array.dtype.kind in "OSUMm":
                raise ArgumentError(
                    op,
                    f"save_own_variables of {path or layer.name!r} stored {key!r}, "
                    f"which is no array of numbers but {array.dtype}",
                    hint="Write text in save_assets(folder), as a file.",
                )
            arrays[own_name(path, key)] = array
    return arrays


def own_assets(model: Any, op: str) -> dict[str, np.ndarray]:
    """The files that the layers' ``save_assets`` wrote, as bytes.

    Raises:
        ArgumentError: There is no method to read them again.
    """
    assets: dict[str, np.ndarray] = {}
    for path, layer in _with_method(model, "save_assets"):
        _need(layer, path, "load_assets", op)
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file():
                    name = file.relative_to(folder).as_posix()
                    data = np.frombuffer(file.read_bytes(), np.uint8)
                    assets[asset_name(path, name)] = data
    return assets


def give_back(model: Any, arrays: Mapping[str, np.ndarray], op: str) -> None:
    """Calls ``load_own_variables`` and ``load_assets`` of layers that saved something.

    Args:
        model: A model whose weights have their values.
        arrays: Those tensors of the file that ``is_own`` is true of.

    Raises:
        ModelFormatError: The model has no such layer, or it has no such method.
    """
    layers = dict(_layers(model))
    for path, store in _by_layer(arrays, _OWN).items():
        _method(layers, path, "load_own_variables", op)(store)
    for path, files in _by_layer(arrays, _ASSETS).items():
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                parts = PurePosixPath(name).parts
                if name.startswith("/") or ".." in parts or "\\" in name:
                    raise ModelFormatError(op, f"{name!r} is no file of a layer's own")
                target = Path(folder, *parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data.tobytes())
            _method(layers, path, "load_assets", op)(folder)


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    return ((path, m) for path, m in iter_modules(model) if isinstance(m, Layer))


def _with_method(model: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The layers whose class has such a method of its own, by path."""
    for path, layer in _layers(model):
        if has_own(layer, name):
            yield path, layer


def has_own(layer: Any, name: str) -> bool:
    """Whether the layer's class has such a method of its own."""
    method = getattr(type(layer), name, None)
    return callable(method) and method is not getattr(Layer, name, None)


def _need(layer: Any, path: str, name: str, op: str) -> None:
    if not has_own(layer, name):
        raise ArgumentError(
            op,
            f"{path or layer.name!r} has no {name}, so what it saves would be lost",
            {"class": type(layer).__name__},
        )


def _method(layers: Mapping[str, Any], path: str, name: str, op: str) -> Any:
    if path not in layers or not has_own(layers[path], name):
        raise ModelFormatError(
            op, f"the file has something for {name} of {path!r}, which is not there"
        )
    return getattr(layers[path], name)


def _by_layer(
    arrays: Mapping[str, np.ndarray], prefix: str
) -> dict[str, dict[str, np.ndarray]]:
    groups: dict[str, dict[str, np.ndarray]] = {}
    for name in sorted(name for name in arrays if name.startswith(prefix)):
        path, _, key = name.removeprefix(prefix).partition("//")
        groups.setdefault(path, {})[key] = arrays[name]
    return groups
