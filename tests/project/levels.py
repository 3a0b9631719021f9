"""The levels of the packages, and what points up them: imports and strings.

The levels are read from `docs/layout.md`, so that page cannot go out of date.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATALOGUES = ("callbacks", "datasets", "layers", "optimizers")


def sources() -> dict[str, Path]:
    """Every module of the package by import name, the catalogues' links followed."""
    package = ROOT / "exburn"
    found = {}
    for folder in (package, *(package / name for name in CATALOGUES)):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


SOURCES = sources()


def levels(text: str) -> dict[str, int]:
    """The unit (module or package) → its position in the page's block of levels."""
    block = re.search(r"```levels\n(.*?)```", text, re.DOTALL)
    assert block, "docs/layout.md has no block of levels"
    table = {}
    for position, line in enumerate(block[1].strip().splitlines()):
        for unit in line.split()[1:]:
            assert unit not in table, f"{unit} is listed twice"
            table[unit] = position
    return table


LEVELS = levels((ROOT / "docs" / "layout.md").read_text(encoding="utf-8"))


def unit_of(module: str) -> str | None:
    """The listed unit that a module belongs to: the longest prefix that is listed."""
    if module == "exburn":
        return module
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
    return next((name for name in names if name in LEVELS), None)


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, module) of every import, those inside functions included."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                known = submodule in SOURCES or submodule in LEVELS
                name = submodule if known else node.module
                found.append((node.lineno, name))
    return sorted(set(found))


def upward(module: str, tree: ast.AST) -> list[str]:
    """The imports of a module that do not point down."""
    own = unit_of(module)
    wrong = []
    for line, target in imports(tree):
        if target.split(".")[0] != "exburn":
            continue
        unit = unit_of(target)
        if unit == own:
            continue
        if unit is None or own is None or LEVELS[unit] >= LEVELS[own]:
            wrong.append(f"{module}:{line} imports {target}")
    return wrong


TABLE = "exburn.core.lazy_names"  # the one module that may name higher ones
_IMPORTERS = {"import_module", "__import__", "require", "find_spec", "resolve_name"}


def texts(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, text) of every string that is no docstring, of f-strings the beginning."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    strings = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docs
    )
    return sorted({(node.lineno, str(node.value)) for node in strings})


def loads(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, text) of strings that are imported, or looked up in ``sys.modules``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and "sys.modules" in ast.unparse(node.value):
            found.append((node.lineno, node.slice))
        elif isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func)
            if name.split(".")[-1] in _IMPORTERS or name.startswith("sys.modules."):
                found.append((node.lineno, node.args[0]))
    return [
        (line, part.value)
        for line, value in found
        for part in (value.values[:1] if isinstance(value, ast.JoinedStr) else [value])
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def upward_by_name(module: str, tree: ast.AST) -> list[str]:
    """The strings of a module that name one of ours which it may not import."""
    own = unit_of(module)
    if module == TABLE or own is None:
        return []
    named = {t for t in texts(tree) if re.fullmatch(r"exburn(\.\w+)+\.?", t[1])}
    named |= {t for t in loads(tree) if re.fullmatch(r"exburn(\.\w+)*\.?", t[1])}
    wrong = []
    for line, text in sorted(named):
        target = text.rstrip(".")
        if target not in SOURCES:
            continue
        unit = unit_of(target)
        if unit is None or unit != own and LEVELS[unit] >= LEVELS[own]:
            wrong.append(f"{module}:{line} names {target}")
    return wrong


def upward_everywhere() -> list[str]:
    """The imports and names of all modules that do not point down."""
    wrong = []
    for module, path in SOURCES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if module != TABLE:
            wrong += upward(module, tree)
        wrong += upward_by_name(module, tree)
    return wrong
