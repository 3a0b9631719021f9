"""What a tree says of its version, and what of it should be gone by now."""

from __future__ import annotations

import ast
import datetime
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from release import changelog

__all__ = ["NOTICE", "disagreements", "hasty", "overdue"]

NOTICE = datetime.timedelta(days=182)  # between the first warning and the day


def disagreements(tree: Path, version: str) -> list[str]:
    """The files of a tree that do not say a version, or no day of its release."""
    project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    package = (tree / "exburn" / "core" / "version.py").read_text("utf-8")
    citation = (tree / "CITATION.cff").read_text("utf-8")
    said = {
        "pyproject.toml": project["version"],
        "exburn/core/version.py": _first(r'^__version__ = "(.+)"$', package),
        "CITATION.cff": _first(r"^version: (\S+)$", citation),
    }
    faults = [f"{file} says {is_}" for file, is_ in said.items() if is_ != version]
    if version not in changelog.released((tree / "CHANGELOG.md").read_text("utf-8")):
        faults.append(f"CHANGELOG.md has no heading `## [{version}] - YYYY-MM-DD`")
    return faults


def overdue(package: Path, today: datetime.date) -> list[str]:
    """The calls of ``deprecate`` below a folder whose day has come."""
    return [told for told, call in _found(package) if _day(call) <= today]


def hasty(package: Path, changelog_text: str, today: datetime.date) -> list[str]:
    """Those calls whose day is less than six months after the first release with it.

    That is the one that ``since`` names, or, if it has none yet, the one of today.
    """
    days = changelog.released(changelog_text)
    calls = []
    for told, call in _found(package):
        first = days.get(_literal(call, "since"), today.isoformat())
        if _day(call) < datetime.date.fromisoformat(first) + NOTICE:
            calls.append(told)
    return calls


def _found(package: Path) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(_modules(package)):
        for call in _deprecations(path.read_text("utf-8")):
            place = f"{path.relative_to(package)}:{call.lineno}"
            yield f"{place}: {ast.unparse(call)}", call


def _modules(folder: Path) -> Iterator[Path]:
    """Python files below a folder; links are followed, as those of the catalogues."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from _modules(path)
        elif path.suffix == ".py":
            yield path


def _deprecations(source: str) -> Iterator[ast.Call]:
    if "deprecate(" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "deprecate":
                yield node


def _day(call: ast.Call) -> datetime.date:
    return datetime.date.fromisoformat(_literal(call, "until"))


def _literal(call: ast.Call, name: str) -> str:
    (value,) = (word.value for word in call.keywords if word.arg == name)
    return ast.literal_eval(value)


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match and match[1]
