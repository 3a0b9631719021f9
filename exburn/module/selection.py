"""Choosing layers of a model by name, path or pattern."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import Any

from flax import nnx

from exburn.errors import ArgumentError, UnknownNameError, unknown_name
from exburn.module.traversal import iter_modules, iter_weights, own_weights


def layer_paths(root: Any) -> dict[str, Any]:
    """Every layer below ``root`` by its path, as ``summary()`` names them."""
    return {
        path: module
        for path, module in iter_modules(root)
        if module is not root and hasattr(module, "_meta")
    }


def frozen_paths(model: Any) -> list[str]:
    """Paths of the layers that are frozen, with all that is in them."""
    layers = layer_paths(model)
    if not model._trainable:
        return list(layers)
    partly: set[str] = set()
    for path, layer in layers.items():
        if layer._trainable:
            parts = path.split("/")
            partly |= {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return [path for path in layers if path not in partly]


def train_only(model: Any, names: set[str]) -> bool:
    """Freezes and unfreezes layers so that training changes these weights alone.

    Returns:
        Whether that is possible; else nothing is changed.
    """
    layers = {"": model, **layer_paths(model)}
    before = {path: layer._trainable for path, layer in layers.items()}
    parameters = [p for p, w, _ in iter_weights(model) if isinstance(w, nnx.Param)]
    for path, layer in layers.items():
        inside = [p for p in parameters if p.startswith(f"{path}/") or not path]
        start = f"{path}/" if path else ""
        own = {start + p for p, _ in own_weights(layer)}.intersection(inside)
        if inside:  # others, such as Dropout, stay as they are
            layer._trainable = any(p in names for p in (path and own) or inside)
    if {path for path, _, learns in iter_weights(model) if learns} == names:
        return True
    for path, layer in layers.items():
        layer._trainable = before[path]
    return False


def select_layers(root: Any, patterns: tuple, *, op: str) -> dict[str, Any]:
    """The layers of a model that at least one pattern names, by path.

    A string is read in the first of these ways in which it names any layer: as a path
    (``"encoder/dense"``), as a name at any depth (``"dense"``), as a shell pattern for
    names (``"*norm*"``) or, with a slash, for whole paths (``"encoder/*"``), as a
    regular expression for a whole path (``"block_(0|1)/.*"``). A compiled regular
    expression is matched to whole paths, and a layer stands for itself.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Dropout
        >>> model = Sequential([Dense(4), Dropout(0.5), Dense(2)])
        >>> list(select_layers(model, ("dense*",), op="freeze"))
        ['dense', 'dense_1']
    """
    layers = layer_paths(root)
    chosen: set[str] = set()
    for pattern in patterns:
        paths = _matches(pattern, layers, op)
        if not paths:
            raise _no_match(root, pattern, layers, op)
        chosen |= set(paths)
    return {path: layer for path, layer in layers.items() if path in chosen}


def _matches(pattern: Any, layers: dict[str, Any], op: str) -> list[str]:
    if isinstance(pattern, re.Pattern):
        return [path for path in layers if pattern.fullmatch(path)]
    if hasattr(pattern, "_meta"):
        return [path for path, layer in layers.items() if layer is pattern]
    if not isinstance(pattern, str):
        raise ArgumentError(
            op,
            "layers are named by strings, compiled patterns or themselves, received "
            f"{type(pattern).__name__}",
            {"received": repr(pattern)},
            hint='"encoder/*", "embedding", or model.layers[0].',
        )
    try:
        expression = re.compile(pattern)
    except re.error:  # a shell pattern such as "*norm*" is none
        expression = None
    readings: list[Callable[[str, str], Any]] = [
        lambda path, name: path == pattern,
        lambda path, name: pattern in (name, _last(path)),
        lambda path, name: any(
            fnmatch.fnmatchcase(candidate, pattern)
            for candidate in ((path,) if "/" in pattern else (name, _last(path)))
        ),
        lambda path, name: expression and expression.fullmatch(path),
    ]
    for reads in readings:
        if paths := [p for p, layer in layers.items() if reads(p, layer.name)]:
            return paths
    return []


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _no_match(root: Any, pattern: Any, layers: dict, op: str) -> UnknownNameError:
    if isinstance(pattern, str):
        for path, _, _ in iter_weights(root):
            if path == pattern:
                error = unknown_name("layer", pattern, layers, op=op)
                owner = path.rpartition("/")[0]
                hint = f"It is a weight; name its layer: {owner!r}."
                return UnknownNameError(op, error.reason, error.details, hint=hint)
    label = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    names = {_last(path) for path in layers}
    choices = names | set(layers)
    return unknown_name("layer", getattr(label, "name", label), choices, op=op)
