"""Clones of layers: made anew from their configuration, with copies of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from exburn.core import registry
from exburn.core.substitution import making_clone
from exburn.module.building import infer
from exburn.module.copying import own_classes, twin
from exburn.module.traversal import iter_modules, iter_weights
from exburn.module.variable import own_copy

_Layer = TypeVar("_Layer")
_SETTINGS = bool, int, float, str, type(None)  # attributes that a copy may share


def clone(layer: _Layer) -> _Layer:
    """A layer of the same configuration with copies of the weights."""
    copy = fresh_clone(layer)
    pairs = {path: w for path, w, _ in iter_weights(layer)}
    own = {path: w for path, w, _ in iter_weights(copy)}
    if own.keys() != pairs.keys():  # of one layer that was quantized or adapted
        return twin(layer)
    keep_settings(layer, copy)
    for path, weight in own.items():
        weight.set_raw_value(own_copy(pairs[path].get_value()))
    return copy


def keep_settings(layer: Any, copy: Any, but: tuple[Any, str] | None = None) -> None:
    """Gives a copy what was set of a layer and of those in it since they were made.

    Args:
        but: A layer in it, and an attribute of which its copy has a value of its own.
    """
    modules = dict(iter_modules(layer))
    for path, module in iter_modules(copy):
        if (old := modules.get(path)) is None:
            continue
        for name in ("_trainable", "_policy", "_own_policy"):  # of layers in layers
            if hasattr(module, name) and hasattr(old, name):
                setattr(module, name, getattr(old, name))
        if not hasattr(old, "_meta") or type(old) is not type(module):
            continue
        for name in old._meta.value.changed:
            value, own = vars(old).get(name), but is not None and but == (old, name)
            if own or name.startswith("_") or type(value) not in _SETTINGS:
                continue
            if vars(module).get(name) != value:
                setattr(module, name, value)
    frozen = {
        path
        for path, weight, _ in iter_weights(layer)
        if weight.get_metadata().get("frozen")
    }
    for path, weight, _ in iter_weights(copy):
        if path in frozen:
            weight.set_metadata("frozen", True)


def fresh_clone(layer: Any) -> Any:
    """A layer of the same configuration and changes with fresh weights.

    Classes of the user's need not be registered: nothing is looked up by name.
    """
    with making_clone():
        copy = unbuilt_copy(layer)
    if layer.built and not copy.built and layer._meta.value.traced is not None:
        infer(copy, *layer._meta.value.traced)
    if changes := getattr(layer, "changes", None):  # by quantize(), add_lora() …
        copy.repeat_changes(changes)
    return copy


def unbuilt_copy(layer: Any) -> Any:
    """A layer of the same configuration that has no weights yet."""
    with copying_parts(layer):
        return type(layer).from_config(layer._copy_config())


@contextlib.contextmanager
def copying_parts(layer: Any) -> Iterator[None]:
    """In the block, configurations make copies of a layer's parts, by no names.

    What users' own objects hold of the layer, as functions may, stays as it is.
    """
    modules = [module for _, module in iter_modules(layer)]
    weights = [weight for _, weight, _ in iter_weights(layer)]
    names = registry.custom_objects(own_classes(layer))
    with names, registry.copying([*modules, *weights]):
        yield
