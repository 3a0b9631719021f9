"""The public names of the package, each with its signature, to compare two checkouts.

    python tests/project/surface.py > before.txt     # in the one
    python tests/project/surface.py --against before.txt   # in the other

Public is what the namespaces below ``exburn`` name in ``__all__`` (or, where there is
no such list, define without an underscore), and the public methods
of the classes there.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def members(module: ModuleType) -> dict[str, Any]:
    """The public names of a module, and what they stand for."""
    if hasattr(module, "__all__"):
        return {name: getattr(module, name) for name in module.__all__}
    names = [name for name in dir(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    home = module.__name__
    return {
        name: value
        for name, value in found.items()
        if getattr(value, "__module__", "") == home
    }


def signature(value: Any) -> str:
    """The parameters of something callable, without addresses of default objects."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(?)"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def describe(path: str, value: Any) -> Iterator[str]:
    """The lines of one name: a function's, or a class' and its public methods'."""
    if not callable(value):
        yield f"{path}: {type(value).__name__}"
        return
    yield f"{path} {signature(value)}"
    if not inspect.isclass(value):
        return
    for name in dir(value):
        if name.startswith("_") and name != "__call__":
            continue
        try:
            method = getattr(value, name)
        except AttributeError:
            continue
        if callable(method):
            yield f"{path}.{name} {signature(method)}"
        else:
            yield f"{path}.{name}: attribute"


def public_names(root: str = "exburn") -> Iterator[tuple[str, Any]]:
    """Each public name with its path, and what it stands for; each namespace once."""
    waiting, seen = [root], {root}
    while waiting:
        path = waiting.pop()
        for name, value in members(importlib.import_module(path)).items():
            yield f"{path}.{name}", value
            inside = inspect.ismodule(value) and value.__name__.startswith(f"{root}.")
            if inside and value.__name__ not in seen:
                seen.add(value.__name__)
                waiting.append(value.__name__)


def surface(root: str = "exburn") -> list[str]:
    """All lines, sorted: ``exburn.layers.Dense (units, activation=None, …)``."""
    lines: set[str] = set()
    for path, value in public_names(root):
        lines.update(
            [f"{path}: module"] if inspect.ismodule(value) else describe(path, value)
        )
    return sorted(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="earlier output to compare with")
    options = parser.parse_args()
    lines = surface()
    if options.against is None:
        print(*lines, sep="\n")
        return 0
    before = options.against.read_text("utf-8").splitlines()
    changes = [
        line
        for line in difflib.unified_diff(before, lines, "before", "now", "", "", 0, "")
        if not line.startswith("@@")
    ]
    print(*changes, sep="\n")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
