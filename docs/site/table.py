"""The table Keras → ExBurn, made of the names that the two packages have."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from types import ModuleType

from docs.site.reference import Name

_HEAD = """# Keras → ExBurn, name by name

Made of the packages themselves: Keras {version}. What is the same has the same
arguments and defaults. What differs is among [all differences](from_keras.md).
"""


def write(target: Path, known: dict[str, Name]) -> None:
    """Writes the table.

    Args:
        target: The page.
        known: The public names of ExBurn by path.
    """
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = importlib.import_module("keras")
    parts = [_HEAD.format(version=keras.__version__)]
    for space in _namespaces(keras):
        rows = list(_rows(space, known))
        if rows:
            parts.append(
                f"## {space}\n\n| Keras | ExBurn |\n|---|---|\n" + "\n".join(rows)
            )
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _namespaces(keras: ModuleType) -> list[str]:
    """The public namespaces of Keras, in alphabetical order, the root first."""
    found, waiting = ["keras"], ["keras"]
    while waiting:
        path = waiting.pop()
        module = importlib.import_module(path)
        for name, value in vars(module).items():
            inside = f"{path}.{name}"
            if not inspect.ismodule(value) or name.startswith("_") or name == "src":
                continue
            if getattr(value, "__name__", "") == inside and inside not in found:
                found.append(inside)
                waiting.append(inside)
    return sorted(found)


def _rows(space: str, known: dict[str, Name]) -> list[str]:
    rows = []
    for name, value in sorted(vars(importlib.import_module(space)).items()):
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if (
            not callable(value)
            or isinstance(value, type)
            and value.__module__ == "typing"
        ):
            continue
        ours = f"exburn{space.removeprefix('keras')}.{name}"
        rows.append(f"| `{space}.{name}` | {_entry(ours, known)} |")
    return rows


def _entry(path: str, known: dict[str, Name]) -> str:
    if path in known:
        return f"[`{path}`](reference/{known[path].page})"
    space, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(space)
    except ImportError:
        return "no such namespace"
    try:
        getattr(module, name)
    except AttributeError as error:
        hint = str(error).partition("→ ")[2]
        return f"absent: {hint}" if hint else "absent"
    except Exception as error:  # a package that is not installed
        return f"`{path}`, with {type(error).__name__} where its package is missing"
    return f"`{path}`"
