"""Figures of the source tree: what the redesign of the layout is to improve.

    python tests/project/house.py            # of this checkout
    python tests/project/house.py --root X   # of another one, to compare

It prints the entries of the package's root, the longest chain of imports, the frames
from ``Model.fit`` to a layer (traced, not read), the bases of the four large classes,
lines of product code, functions whose name is a bare participle, and modules without a
test at their own path.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CATALOGUES = ("layers", "optimizers", "callbacks", "datasets")
CLASSES = {
    "Model": "exburn.models:Model",
    "Trainer": "exburn.training.trainer:Trainer",
    "Layer": "exburn.layers:Layer",
    "Optimizer": "exburn.optimizers:Optimizer",
}
_IRREGULAR = frozenset(
    "bound bought brought built caught cut done drawn driven fed felt filled found"
    " given gone grown heard held hidden kept known laid led left lent lit lost made"
    " meant met paid put read said seen sent set shown shut sold spent split spread"
    " stood struck sunk sworn taken taught thought thrown told torn understood woken"
    " won worn wound written".split()
)
_VERBS = frozenset("cut put read set shut split spread".split())  # imperatives, too
_ADJECTIVES = frozenset("embed feed seed reseed need speed".split())


def sources(root: Path) -> list[Path]:
    """The files of the product: of the package and of the catalogues."""
    folders = [root / "exburn", *(root / name for name in CATALOGUES)]
    found = {path.resolve() for folder in folders for path in folder.rglob("*.py")}
    return sorted(found)


def module_of(path: Path, root: Path) -> str:
    """The name by which a file is imported."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[0] in CATALOGUES:
        parts.insert(0, "exburn")
    return ".".join(parts).removesuffix(".__init__")


def root_entries(root: Path) -> list[str]:
    """The public names and rooms in the package's folder."""
    names = {path.name for path in (root / "exburn").iterdir()}
    return sorted(names - {"__init__.py", "__main__.py", "__pycache__", "py.typed"})


def imports(root: Path) -> dict[str, set[str]]:
    """The modules of ours that each module imports when it is imported."""
    trees = {module_of(p, root): ast.parse(p.read_text("utf-8")) for p in sources(root)}
    found: dict[str, set[str]] = {}
    for name, tree in trees.items():
        wanted: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted.add(node.module)
                wanted |= {f"{node.module}.{alias.name}" for alias in node.names}
        found[name] = {other for other in wanted if other in trees} - {name}
    return found


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest path of imports on which no module comes twice."""

    @functools.cache
    def below(name: str) -> tuple[str, ...]:
        active.add(name)
        chains = [below(other) for other in sorted(graph[name]) if other not in active]
        active.discard(name)
        return (name, *max(chains, key=len, default=()))

    active: set[str] = set()
    sys.setrecursionlimit(10_000)
    return list(max(map(below, sorted(graph)), key=len))


_WALK = """
import inspect, os, sys
import numpy as np, exburn
from exburn import layers
frames, chunks = [], []
class Probe(layers.Layer):
    def call(self, x):
        names = [f for f in inspect.stack(0) if "exburn" in f.filename or any(
            f"/{c}/" in f.filename for c in ("layers", "optimizers", "callbacks"))]
        frames.append([(os.path.basename(f.filename), f.function) for f in names][::-1])
        return x
model = exburn.Sequential([exburn.Input((4,)), Probe(), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 4), "float32"), np.ones((64, 1), "float32"), verbose=0)
walk = [f for f in frames if any("train" in n for _, n in f)
        and any(n == "loss" for _, n in f) and f[0][1] == "fit"]
best = min(walk, key=len)
for file, function in best:
    print(f"{file}:{function}")
"""


def walk(root: Path) -> list[str]:
    """The frames of ours from ``Model.fit`` to a layer, while it is traced."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WALK],
        env={"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def bases(root: Path) -> dict[str, list[str]]:
    """The bases of the four large classes that are written for that class alone."""
    script = "\n".join(
        f"from {place.partition(':')[0]} import {place.partition(':')[2]} as C\n"
        f"print('{name}', *[b.__name__ for b in C.__mro__[1:] "
        "if b.__module__.startswith('exburn')])"
        for name, place in CLASSES.items()
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        line.split()[0]: [b for b in line.split()[1:] if b not in CLASSES]
        for line in done.stdout.splitlines()
    }


def functions(root: Path) -> Iterator[tuple[str, str]]:
    """Every function and method, with its module."""
    for path in sources(root):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module_of(path, root), node.name


def participles(root: Path) -> list[str]:
    """Functions whose whole name is a participle: ``kept``, ``joined``."""
    found = []
    for module, name in functions(root):
        word = name.strip("_")
        regular = re.fullmatch(r"[a-z]{2,}ed", word) and word not in _ADJECTIVES
        if (regular or word in _IRREGULAR) and word not in _VERBS:
            found.append(f"{module}.{name}")
    return found


def untested(root: Path) -> list[str]:
    """Modules without a test of their own path: ``tests/training/test_feed.py``."""
    tests = {
        str(path.relative_to(root / "tests")) for path in (root / "tests").rglob("*.py")
    }
    found = []
    for path in sources(root):
        name = module_of(path, root)
        if path.name == "__init__.py":
            continue
        parts = name.split(".")[1:]
        *folders, last = parts
        own = "/".join([*folders, f"test_{last.strip('_')}.py"])
        if own not in tests:
            found.append(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).resolve().parents[2]
    parser.add_argument("--root", type=Path, default=here, help="a checkout")
    parser.add_argument("--list", action="store_true", help="print the names, too")
    options = parser.parse_args()
    root = options.root.resolve()
    files = sources(root)
    lines = sum(len(p.read_text("utf-8").splitlines()) for p in files)
    entries, chain = root_entries(root), longest_chain(imports(root))
    frames, names, lone = walk(root), participles(root), untested(root)
    modules = [p for p in files if p.name != "__init__.py"]
    print(f"entries of exburn/: {len(entries)}")
    print(f"longest chain of imports: {len(chain)} modules")
    model = next((i for i, f in enumerate(frames) if "call_arrays" in f), len(frames))
    host = next((i for i, f in enumerate(frames) if f.startswith("steps.py")), 0)
    print(f"frames from Model.fit to the model's call: {model + 1}, {host} on the host")
    print(f"frames from Model.fit to a layer in a Sequential: {len(frames)}")
    for name, mixins in bases(root).items():
        print(f"bases of {name}: {len(mixins)} ({', '.join(mixins)})")
    print(f"product code: {len(files)} files, {lines} lines")
    print(f"functions named by a participle: {len(names)}")
    print(f"modules without a test of their path: {len(lone)} of {len(modules)}")
    if options.list:
        for title, items in (
            ("entries", entries),
            ("chain", chain),
            ("frames", frames),
            ("participles", names),
            ("untested", lone),
        ):
            print(f"\n{title}:", *items, sep="\n  ")


if __name__ == "__main__":
    main()
