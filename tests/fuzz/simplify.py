"""Simpler specifications: with less in them, or with plainer values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tests.fuzz.values import Array, Call

__all__ = ["simpler"]


def simpler(value: Any) -> Iterator[Any]:
    """Copies with one thing less, largest steps first."""
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
        for key, item in value.items():
            for less in simpler(item):
                yield {**value, key: less}
    elif isinstance(value, list):
        for i in range(len(value)):
            yield value[:i] + value[i + 1 :]
        for i, item in enumerate(value):
            for less in simpler(item):
                yield [*value[:i], less, *value[i + 1 :]]
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        for i, item in enumerate(value):
            for less in simpler(item):
                yield (*value[:i], less, *value[i + 1 :])
    elif isinstance(value, Call):
        for less in simpler(value.options):
            yield dataclasses.replace(value, options=less)
        for i, item in enumerate(value.args):
            for less in simpler(item):
                yield dataclasses.replace(
                    value, args=[*value.args[:i], less, *value.args[i + 1 :]]
                )
    elif isinstance(value, Array):
        if value.dtype in ("float16", "bfloat16"):
            yield dataclasses.replace(value, dtype="float32")
        for i, size in enumerate(value.shape):
            if size > 1:
                shape = (*value.shape[:i], max(size // 2, 1), *value.shape[i + 1 :])
                yield dataclasses.replace(value, shape=shape)
            elif size == 1 and len(value.shape) > 1:
                shape = value.shape[:i] + value.shape[i + 1 :]
                yield dataclasses.replace(value, shape=shape)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            for less in simpler(getattr(value, field.name)):
                yield dataclasses.replace(value, **{field.name: less})
