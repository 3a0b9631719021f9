"""What the docstrings of public names lack, of those that a page of the site shows.

    PYTHONPATH=. python -P -m tests.project.docstrings            # everything, by file
    PYTHONPATH=. python -P -m tests.project.docstrings losses     # of one namespace

A docstring tells of each argument under ``Args:``, and of no other; says under
``Raises:`` what its code raises; and has an example. Functions of JAX that are public
here have their own pages elsewhere.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.checkout import load

_SECTION = re.compile(r"^(\w[\w ]*):$", re.MULTILINE)
_ENTRY = re.compile(r"^    ((?:\*{0,2}\w+,\s+)*\*{0,2}\w+):", re.MULTILINE)
# What is downloaded, or needs a package that tests may lack: shown, and not run.
_ELSEWHERE = (
    "exburn.as_keras",  # changes what the whole process imports
    "exburn.datasets.",
    "exburn.distribution.ray.",
    "exburn.tuning.ray.",
)
_RUN = ("__init__", "__new__", "__call__", "build", "call", "update_state")
_VARIABLE = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def public_names() -> list[Any]:
    """The public objects of ours, each once: see ``docs/site/reference.py``."""
    reference = load("docs.site.reference")
    once = {id(name.value): name for name in reference.public_names().values()}
    ours = (getattr(name.value, "__module__", None) or "" for name in once.values())
    pairs = zip(once.values(), ours, strict=True)
    return [name for name, home in pairs if home.startswith("exburn")]


def sections(doc: str) -> dict[str, str]:
    """The sections of a docstring by title."""
    parts = _SECTION.split(inspect.cleandoc(doc))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def arguments(doc: str, title: str = "Args") -> set[str]:
    """The arguments that a docstring tells of."""
    found: set[str] = set()
    for entry in _ENTRY.finditer(sections(doc).get(title, "")):
        found.update(name.lstrip("*") for name in re.split(r",\s+", entry[1]))
    return found


def parameters(value: Any) -> tuple[set[str], bool]:
    """The names of the parameters, and whether others are taken, too."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return set(), True
    every = signature.parameters.values()
    named = {p.name for p in every if p.kind not in _VARIABLE}
    return {n for n in named if not n.startswith("_")}, len(named) < len(every)


def is_record(value: Any) -> bool:
    """Tells whether a class holds fields that its attributes tell of."""
    named = inspect.isclass(value) and hasattr(value, "_fields")
    return named or inspect.isclass(value) and dataclasses.is_dataclass(value)


def runs(doc: str) -> bool:
    """Tells whether a docstring has an example of which a test runs some call."""
    lines = re.findall(r">>> (?!import |from )(.*)", doc)
    return any("+SKIP" not in line for line in lines)


@functools.cache
def _tree(module: str) -> dict[str, ast.AST]:
    """What a module defines at its top."""
    file = importlib.import_module(module).__file__
    tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    kinds = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def source(value: Any) -> ast.AST | None:
    """The definition of an object, if a module's source has one by its name."""
    home = getattr(value, "__module__", None) or ""
    name = getattr(value, "__qualname__", "")
    return _tree(home).get(name) if home.startswith("exburn") else None


def raises(node: ast.AST) -> bool:
    """Tells whether the code of a definition raises, or calls a check that does."""
    bodies = [node]
    if isinstance(node, ast.ClassDef):
        methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
        bodies = [method for method in methods if method.name in _RUN]
    return any(_raises(inner) for body in bodies for inner in ast.walk(body))


def _raises(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise):
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = getattr(error, "id", getattr(error, "attr", ""))
        return bool(node.exc) and name not in ("NotImplementedError", "AttributeError")
    if not isinstance(node, ast.Call):
        return False
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return called.startswith(("check_", "require"))


def lacks(name: Any) -> Iterator[str]:
    """What the docstring of a public name lacks."""
    value = name.value
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if not own:
        yield "no docstring"
        return
    doc = inspect.cleandoc(own)
    wanted, more = parameters(value)
    told = arguments(doc)
    if is_record(value):
        told |= arguments(doc, "Attributes")
        more = True  # attributes that no argument gives
    elif inspect.isclass(value) and issubclass(value, BaseException):
        wanted, more = set(), True  # are ExBurnError's, and it is ours to raise them
    if missing := sorted(wanted - told):
        yield f"Args: {', '.join(missing)}"
    if not more and (stale := sorted(told - wanted)):
        yield f"Args of no such parameter: {', '.join(stale)}"
    node = source(value)
    if wanted and node is not None and raises(node) and "Raises" not in sections(doc):
        yield "Raises"
    if not runs(doc) and not name.path.startswith(_ELSEWHERE):
        yield "Example"


def untold(cls: type) -> dict[str, list[str]]:
    """The arguments that no docstring tells of, by the methods of a class."""
    found = {}
    for name in vars(cls):
        method = None if name.startswith("_") else getattr(cls, name)
        if not inspect.isfunction(method):
            continue
        wanted, _ = parameters(method)
        doc = inspect.getdoc(getattr(cls, name)) or ""
        if missing := sorted(wanted - {"self"} - arguments(doc)):
            found[name] = missing
    return found


def main(spaces: list[str]) -> int:
    """Prints what is lacking, by file."""
    lines = []
    for name in public_names():
        if spaces and not any(name.path.startswith(f"exburn.{s}") for s in spaces):
            continue
        found = list(lacks(name))
        if found:
            lines.append(f"{name.value.__module__}  {name.path}: {' · '.join(found)}")
    print(*sorted(lines), sep="\n")
    print(f"{len(lines)} of {len(public_names())} names")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
