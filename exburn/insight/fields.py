"""Dataclasses as JSON values and arrays by name, and back, with their types checked."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

Content = tuple[dict[str, Any], dict[str, np.ndarray]]


def write_fields(value: Any) -> Content:
    """The JSON values and the arrays of a dataclass, and of those in it.

    Fields without a ``repr`` are left out.

    Example:
        >>> @dataclasses.dataclass
        ... class Line:
        ...     name: str
        ...     points: np.ndarray
        >>> settings, arrays = write_fields(Line("a", np.zeros(3)))
        >>> settings, list(arrays)
        ({'name': 'a'}, ['points'])
    """
    settings: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(value):
        name, item = field.name, getattr(value, field.name)
        parts: Mapping[str, Any] = item if isinstance(item, dict) else {}
        if not field.repr:
            continue
        if isinstance(item, np.ndarray):
            arrays[name] = item
        elif dataclasses.is_dataclass(item):
            settings[name], parts = write_fields(item)
        elif not isinstance(item, dict):
            settings[name] = item
        arrays |= {f"{name}/{key}": part for key, part in parts.items()}
    return settings, arrays


def read_fields(
    kind: Any, settings: Mapping[str, Any], arrays: Mapping[str, Any], **others: Any
) -> Any:
    """The dataclass whose content that is.

    Args:
        others: Fields that were not written.

    Raises:
        TypeError, ValueError: A field has another type, or there are more of them.
    """
    hints, values = typing.get_type_hints(kind), dict(others)
    names = {field.name for field in dataclasses.fields(kind)} - others.keys()
    if strange := {key.partition("/")[0] for key in {*settings, *arrays}} - names:
        raise ValueError(f"it has {sorted(strange)[0]!r}, which is nothing known")
    for name in names:
        union = typing.get_origin(hints[name]) in (types.UnionType, typing.Union)
        hint = hints[name]
        kinds = [typing.get_origin(k) or k for k in typing.get_args(hint) if union]
        kinds = kinds or [typing.get_origin(hint) or hint]
        item = arrays.get(name, settings.get(name))
        parts = {
            key.removeprefix(f"{name}/"): part
            for key, part in arrays.items()
            if key.startswith(f"{name}/")
        }
        inner = next(filter(dataclasses.is_dataclass, kinds), None)
        if inner is not None and isinstance(item, dict):
            item = read_fields(inner, item, parts)
        elif dict in kinds:
            item = parts
        elif isinstance(item, list):
            item = tuple(item)
        elif type(item) is int and float in kinds:
            item = float(item)
        if type(item) not in kinds and not (item is None and types.NoneType in kinds):
            raise TypeError(f"its {name} is no {hint}")
        values[name] = item
    return kind(**values)
