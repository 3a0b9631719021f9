"""The table Keras → ExBurn, made of the names that the two packages have."""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from types import ModuleType

from docs.site.reference import Name

_ABSENT = "absent"
_HEAD = """# Keras → ExBurn, name by name

Made of the packages themselves: Keras {version} has {count:,} public names, of which
ExBurn has {same:,}. What is the same has the same arguments and defaults. What differs
is among [all differences](../from_keras.md).

| Keras | names | in ExBurn |
|---|---|---|
{rows}

What is not there:

| Keras | |
|---|---|
{absent}
"""


def write(folder: Path, names: dict[str, Name]) -> None:
    """Writes a summary, and a page for each namespace right below ``keras``.

    Args:
        folder: Where the pages are written.
        names: The public names of ExBurn by path.
    """
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = importlib.import_module("keras")
    folder.mkdir()
    pages: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for space in _namespaces(keras):
        if rows := _rows(space, names):
            page = ".".join(space.split(".")[:2])
            pages.setdefault(page, {})[space] = rows
    lines, absent, count = [], [], 0
    for page, spaces in pages.items():
        rows = [row for one in spaces.values() for row in one]
        missing = [row for row in rows if row[1].startswith(_ABSENT)]
        absent += missing
        count += len(rows)
        file = f"{page.replace('.', '_')}.md"
        ours = len(rows) - len(missing)
        lines.append(f"| [`{page}`]({file}) | {len(rows)} | {ours} |")
        parts = [f"# {page}, name by name\n\n[All namespaces](index.md)"]
        for space, entries in spaces.items():
            head = f"## {space}\n\n| Keras | ExBurn |\n|---|---|\n"
            parts.append(head + _lines(entries))
        (folder / file).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    summary = _HEAD.format(
        version=keras.__version__,
        count=count,
        same=count - len(absent),
        rows="\n".join(lines),
        absent=_lines(absent),
    )
    (folder / "index.md").write_text(summary, encoding="utf-8")


def _lines(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"| `{theirs}` | {entry} |" for theirs, entry in rows)


def _namespaces(keras: ModuleType) -> list[str]:
    """The public namespaces of Keras, in alphabetical order, the root first."""
    spaces, waiting = ["keras"], ["keras"]
    while waiting:
        path = waiting.pop()
        module = importlib.import_module(path)
        for name, value in vars(module).items():
            inside = f"{path}.{name}"
            if not inspect.ismodule(value) or name.startswith("_") or name == "src":
                continue
            if getattr(value, "__name__", "") == inside and inside not in spaces:
                spaces.append(inside)
                waiting.append(inside)
    return sorted(spaces)


def _rows(space: str, names: dict[str, Name]) -> list[tuple[str, str]]:
    """``(name of Keras, what ExBurn has for it)`` of a namespace."""
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
        rows.append((f"{space}.{name}", _entry(ours, names)))
    return rows


def _entry(path: str, names: dict[str, Name]) -> str:
    if path in names:
        return f"[`{path}`](../reference/{names[path].page})"
    space, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(space)
    except ImportError:
        return f"{_ABSENT}: no such namespace"
    try:
        getattr(module, name)
    except AttributeError as error:
        hint = str(error).partition("→ ")[2]
        return f"{_ABSENT}: {hint}" if hint else _ABSENT
    except Exception as error:  # a package that is not installed
        return f"`{path}`, with {type(error).__name__} where its package is missing"
    return f"`{path}`"
