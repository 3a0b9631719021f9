"""Figures of the source tree, and the bars that ``test_house.py`` holds.

    python tests/project/house.py            # of this checkout
    python tests/project/house.py --root X   # of another one, to compare
    python tests/project/house.py --list     # with the names behind each figure

Everything but the walk from ``fit`` to a layer is read from the sources, without
importing them.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))  # started as a script
from tests.project.levels import CATALOGUES, ROOT, TABLE, upward_everywhere

# Folders whose modules are a menu, each entry imported by the folder's list alone.
MENUS = ("exburn.command_line", "exburn.export.onnx", "exburn.applications")
# Two names that Keras gives twice itself.
KERAS_PAIRS = frozenset({"Identity"})
LISTED = 200  # a module of fewer lines may belong into its only importer
_IRREGULAR = frozenset(
    "bound bought brought built caught cut done drawn driven fed felt filled found"
    " given gone grown heard held hidden kept known laid led left lent lit lost made"
    " meant met paid put read said seen sent set shown shut sold spent split spread"
    " stood struck sunk sworn taken taught thought thrown told torn understood woken"
    " won worn wound written".split()
)
_VERBS = frozenset("cut proceed put read set shut split spread".split())
# Names that Keras gives to properties, and NumPy to a function.
_PUBLIC = frozenset("built compiled searchsorted".split())
_ADJECTIVES = frozenset("embed feed seed reseed need speed".split())
# The participles that docs say no variable is called; others can be a noun or a word
# of the field (``left``, ``fixed``, ``compiled``).
_VARIABLES = frozenset("found known made given kept told wanted held".split())
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPE = (*_FUNCTION, ast.ClassDef, ast.Lambda)


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of the product: its import name, its lines and its tree."""

    name: str
    path: Path
    lines: list[str]
    tree: ast.Module


@functools.cache
def sources(root: Path) -> dict[str, Source]:
    """The files of the product, by import name: of the package and the catalogues."""
    files = {}
    for folder in ("exburn", *CATALOGUES):
        for path in sorted((root / folder).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents):
                continue
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[0] in CATALOGUES:
                parts.insert(0, "exburn")
            name = ".".join(parts).removesuffix(".__init__")
            text = path.read_text("utf-8")
            files[name] = Source(name, path, text.splitlines(), ast.parse(text))
    return files


def root_entries(root: Path) -> list[str]:
    """The public names and rooms in the package's folder."""
    entries = [*(root / "exburn").iterdir()]
    names = {p.name for p in entries if p.is_file() or any(p.rglob("*.py"))}
    return sorted(names - {"__init__.py", "__main__.py", "__pycache__", "py.typed"})


@functools.cache
def imports(root: Path) -> dict[str, set[str]]:
    """The modules of ours that a module names in imports, those in functions included.

    ``from exburn.room import name`` is an import of the module ``exburn.room.name``
    where there is one, else of ``exburn.room``. The packages above are not counted.
    """
    files = sources(root)
    graph: dict[str, set[str]] = {}
    for name, source in files.items():
        targets: set[str] = set()
        if name == TABLE:
            graph[name] = targets
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    targets.add(inner if inner in files else node.module)
        graph[name] = {target for target in targets if target in files} - {name}
    return graph


def circles(root: Path) -> list[list[str]]:
    """Groups of modules that import each other, the largest first (Tarjan, 1972)."""
    graph = imports(root)
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            start = stack.index(name)
            groups.append(sorted(stack[start:]))
            del stack[start:]

    sys.setrecursionlimit(10_000)
    for name in sorted(graph):
        if name not in order:
            visit(name)
    return sorted((g for g in groups if len(g) > 1), key=len, reverse=True)


def lone_modules(root: Path) -> list[str]:
    """Modules of fewer than 200 lines whose only importer lies in the same folder.

    Not listed are the entries of catalogues, and what a package's own list imports.
    """
    files = sources(root)
    importers = defaultdict(set)
    for name, targets in imports(root).items():
        for target in targets:
            importers[target].add(name)
    lone = []
    for name, source in files.items():
        parent = name.rpartition(".")[0]
        menu = parent.split(".")[1:2] and parent.split(".")[1] in CATALOGUES
        menu = menu or parent.startswith(MENUS)
        if source.path.name == "__init__.py" or menu or len(source.lines) >= LISTED:
            continue
        if len(importers[name]) == 1:
            (only,) = importers[name]
            package = files[only].path.name == "__init__.py"
            if not package and only.rpartition(".")[0] == parent:
                lone.append(f"{name} -> {only.rpartition('.')[2]}")
    return lone


def _code_lines(node: ast.stmt, lines: list[str]) -> int:
    """The lines of a function or class without blank ones, comments and docstrings."""
    texts: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, (*_FUNCTION, ast.ClassDef)) and ast.get_docstring(inner):
            text = inner.body[0]
            texts |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    numbers = set(range(node.lineno, (node.end_lineno or node.lineno) + 1)) - texts
    code = [lines[number - 1].strip() for number in numbers]
    return sum(bool(line) and not line.startswith("#") for line in code)


def _defined(root: Path, kinds: tuple[type, ...]) -> Iterator[tuple[Source, Any]]:
    for source in sources(root).values():
        for node in ast.walk(source.tree):
            if isinstance(node, kinds):
                yield source, node


def long_functions(root: Path, most: int = 80) -> list[str]:
    """Functions with more than so many lines of code."""
    return [
        f"{source.name}.{node.name} ({size})"
        for source, node in _defined(root, _FUNCTION)
        if (size := _code_lines(node, source.lines)) > most
    ]


def long_classes(root: Path, most: int = 300) -> list[str]:
    """Classes with more than so many lines of code, wherever they lie."""
    return [
        f"{source.name}.{node.name} ({size})"
        for source, node in _defined(root, (ast.ClassDef,))
        if (size := _code_lines(node, source.lines)) > most
    ]


def passed_locals(root: Path) -> list[str]:
    """The calls of ``locals()``."""
    return [
        f"{source.name}:{node.lineno}"
        for source, node in _defined(root, (ast.Call,))
        if isinstance(node.func, ast.Name) and node.func.id == "locals"
    ]


def twice_named(root: Path) -> list[str]:
    """Public class names that several modules define, Keras' own pairs aside."""
    places = defaultdict(list)
    for source in sources(root).values():
        private = any(part.startswith("_") for part in source.name.split("."))
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if not private:
                    places[node.name].append(source.name)
    keras = {"exburn.losses", "exburn.metrics"}
    return [
        f"{name}: {', '.join(modules)}"
        for name, modules in sorted(places.items())
        if len(modules) > 1
        and name not in KERAS_PAIRS
        and {".".join(module.split(".")[:2]) for module in modules} != keras
    ]


def participles(root: Path) -> list[str]:
    """Functions whose whole name is a participle: ``kept``, ``joined``."""
    names = []
    for source, node in _defined(root, _FUNCTION):
        word = node.name.strip("_")
        regular = re.fullmatch(r"[a-z]{2,}ed", word) and word not in _ADJECTIVES
        if (regular or word in _IRREGULAR) and word not in _VERBS | _PUBLIC:
            names.append(f"{source.name}.{node.name}")
    return names


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or class that are not of one inside it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _SCOPE):
            yield from _inside(child)


def participle_variables(root: Path) -> list[str]:
    """Variables and arguments named by a bare participle, once for each function."""
    names = []
    for source, scope in _defined(root, (ast.Module, *_SCOPE)):
        words = Counter(
            word.strip("_")
            for node in _inside(scope)
            for word in (
                [node.id]
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                else [node.arg]
                if isinstance(node, ast.arg)
                else []
            )
        )
        place = getattr(scope, "name", "<lambda>" if scope is not source.tree else "")
        names += [f"{source.name}.{place}: {w}" for w in words if w in _VARIABLES]
    return names


_WALK = """
import inspect, os
import numpy as np, exburn
from exburn import layers
home = os.path.dirname(os.path.dirname(os.path.realpath(exburn.__file__))) + os.sep
walks = []
class Probe(layers.Layer):
    def call(self, x):
        files = [(os.path.realpath(f.filename), f.function) for f in inspect.stack(0)
                 if not f.filename.startswith("<")]
        walks.append([f"{os.path.relpath(file, home)}:{name}" for file, name in files
                      if file.startswith(home) and "site-packages" not in file])
        return x
model = exburn.Sequential([exburn.Input((4,)), Probe(), layers.Dense(1)])
model.compile("sgd", "mse")
walks.clear()
model.fit(np.ones((64, 4), "float32"), np.ones((64, 1), "float32"), verbose=0)
for walk in walks:
    print(*walk[::-1])
"""


@functools.cache
def walks(root: Path) -> list[list[str]]:
    """The frames of ours from ``Model.fit`` to a layer, of each trace of a first fit.

    The guards of errors (``errors/boundary.py``) are not counted.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WALK],
        env={
            "PYTHONPATH": str(root),
            "JAX_PLATFORMS": "cpu",
            "PATH": "/usr/bin:/bin",
            "EXBURN_COMPILATION_CACHE": "off",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        [frame for frame in line.split() if "errors/boundary.py" not in frame]
        for line in done.stdout.splitlines()
    ]


def training_walk(root: Path) -> list[str]:
    """The frames of the trace that is trained: the one that computes the loss."""
    return min((w for w in walks(root) if any(":loss" in f for f in w)), key=len)


def untested(root: Path) -> list[str]:
    """Modules without a test of their own path: ``tests/training/test_feed.py``."""
    tests = {
        str(path.relative_to(root / "tests")) for path in (root / "tests").rglob("*.py")
    }
    alone = []
    for source in sources(root).values():
        if source.path.name == "__init__.py":
            continue
        *folders, last = source.name.split(".")[1:]
        if "/".join([*folders, f"test_{last.strip('_')}.py"]) not in tests:
            alone.append(source.name)
    return alone


def product_lines(root: Path) -> int:
    """Lines of the product."""
    return sum(len(source.lines) for source in sources(root).values())


def test_lines(root: Path) -> int:
    """Lines of the tests."""
    files = (root / "tests").rglob("*.py")
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


# A figure's name → what it lists (its figure is their number).
LISTS: dict[str, Callable[[Path], Iterable[str]]] = {
    "entries of exburn/": root_entries,
    "frames from Model.fit to a layer": training_walk,
    "traces of a layer at a first fit": lambda root: [" ".join(w) for w in walks(root)],
    "calls of locals()": passed_locals,
    "imports and names that point up": lambda root: (
        upward_everywhere() if root == ROOT else ["not counted of another checkout"]
    ),
    "modules in the largest circle of imports": lambda root: next(
        iter(circles(root)), []
    ),
    "public class names that stand twice": twice_named,
    "functions of more than 80 lines": long_functions,
    "classes of more than 300 lines": long_classes,
    "functions named by a participle": participles,
    "variables named by a participle": participle_variables,
    "small modules with one importer beside them": lone_modules,
    "modules without a test of their path": untested,
}
NUMBERS = {"lines of the product": product_lines, "lines of the tests": test_lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout")
    parser.add_argument("--list", action="store_true", help="print the names, too")
    options = parser.parse_args()
    root = options.root.resolve()
    for name, measure in LISTS.items():
        items = list(measure(root))
        print(f"{len(items):6} {name}")
        if options.list:
            print(*(f"         {item}" for item in items), sep="\n")
    for name, count in NUMBERS.items():
        print(f"{count(root):6} {name}")


if __name__ == "__main__":
    main()
