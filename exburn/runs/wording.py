"""Settings as people read them: a name and a text each, no nested configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["layer_rows", "setting_rows", "setting_text"]

_DEPTH = 6  # of objects in objects that are told
_UNTOLD = ("name", "dtype", "trainable", "optional", "registered_name")
_MOST = 300  # rows


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings that were made, each with its text; what was not set is left out.

    Example:
        >>> adam = {"class_name": "Adam", "config": {"beta_1": 0.9, "amsgrad": False}}
        >>> setting_rows({"optimizer": adam, "shuffle": True, "device": None})
        [('optimizer', 'Adam (beta_1 0.9)'), ('shuffle', 'yes')]
    """
    rows = []
    for name, value in list(settings.items())[:_MOST]:
        if isinstance(value, bool):
            rows.append((_words(name), "yes" if value else "no"))
        elif text := setting_text(value):
            rows.append((_words(name), text))
    return rows


def setting_text(value: Any, depth: int = 0) -> str:
    """A value in words: an object by its class and the options that are not off.

    Example:
        >>> setting_text(["accuracy", {"class_name": "TopK", "config": {"k": 3}}])
        'accuracy, TopK (k 3)'
    """
    if value is None or value is False or depth > _DEPTH:
        return ""
    if isinstance(value, Mapping):
        if "class_name" in value:
            options = value.get("config")
            details = _options(options, depth) if isinstance(options, Mapping) else ""
            name = str(value["class_name"])
            return f"{name} ({details})" if details else name
        return _options(value, depth)
    if isinstance(value, list | tuple):
        texts = [setting_text(one, depth + 1) for one in value[:_MOST]]
        if any(isinstance(one, list | Mapping) for one in value):
            return ", ".join(text for text in texts if text)
        numbers = all(isinstance(one, int | float) for one in value)
        return (" × " if numbers else ", ").join(text for text in texts if text)
    return str(value)


def _options(options: Mapping[str, Any], depth: int) -> str:
    parts = []
    for name, value in list(options.items())[:_MOST]:
        if name in _UNTOLD:
            continue
        if value is True:
            parts.append(str(name))
        elif text := setting_text(value, depth + 1):
            parts.append(f"{name} {text}")
    return ", ".join(parts)


def layer_rows(architecture: Any) -> list[tuple[str, str, str]]:
    """Name, class and options of each layer that a model's description lists.

    Example:
        >>> dense = {"class_name": "Dense", "config": {"name": "out", "units": 3}}
        >>> layer_rows({"class_name": "Sequential", "config": {"layers": [dense]}})
        [('out', 'Dense', 'units 3')]
    """
    options = architecture.get("config") if isinstance(architecture, Mapping) else None
    layers = options.get("layers") if isinstance(options, Mapping) else None
    rows = []
    for layer in layers[:_MOST] if isinstance(layers, list) else []:
        own = layer.get("config") if isinstance(layer, Mapping) else None
        if isinstance(own, Mapping):
            kind = str(layer.get("class_name"))
            plain = {k: v for k, v in own.items() if not k.endswith("_initializer")}
            plain.pop("layers", None)  # of a model in it
            rows.append((str(own.get("name", "")), kind, _options(plain, 0)))
    return rows


def _words(name: Any) -> str:
    return str(name).replace("_", " ")
