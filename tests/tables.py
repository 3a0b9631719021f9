"""Tables that a test module states, and that become its tests.

A test that is asked of several modules stands once, in the ``tables.py`` of a folder::

    @table("BESIDE_KERAS", "name", "options", "x", ids=number_and_name)
    def test_same_as_keras(name, options, x): ...

Each module below that folder, and below its folders, which has ``BESIDE_KERAS`` gets
the test, with a case for each row. A table may be a list, whose rows are the arguments,
or a dict, whose keys name the cases. The nearest folder's ``tables.py`` comes first; a
test that a module writes itself stays the module's. Below are tables of all folders.
"""

import ast
import functools
import importlib
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exburn.errors import ArgumentError

TESTS = Path(__file__).parent


class Table(NamedTuple):
    """A test, and the table that has its cases."""

    name: str
    arguments: tuple[str, ...]
    ids: Callable | None  # (number, row) → the name of a case
    rows: Callable[[Any], Iterable] | None
    function: types.FunctionType

    def test_of(self, value: Any) -> Callable:
        """The test of one module, whose table is ``value``."""
        ids = None
        if self.rows:
            rows = list(self.rows(value))
        elif isinstance(value, dict):
            ids, rows = list(value), list(value.values())
        else:
            rows = list(value)
        if self.ids:
            ids = [self.ids(i, row) for i, row in enumerate(rows)]
        function = types.FunctionType(
            self.function.__code__, self.function.__globals__, self.function.__name__
        )
        function.__dict__.update(self.function.__dict__)
        names = self.arguments if len(self.arguments) > 1 else self.arguments[0]
        return pytest.mark.parametrize(names, rows, ids=ids)(function)


def table(name: str, *arguments: str, ids=None, rows=None):
    """Has a function become a test of the modules that state the table.

    Args:
        name: That of the table in the modules.
        arguments: Those of the function that a row has.
        ids: Names a case, by its number and its row.
        rows: Makes the rows of the module's table; by default they are those that it
            has, and a dict's keys name the cases.
    """

    def register(function: types.FunctionType):
        tables = function.__globals__.setdefault("TABLES", [])
        tables.append(Table(name, arguments, ids, rows, function))
        return function

    return register


@functools.cache
def tables_of(folder: Path) -> dict[str, list[Table]]:
    """The tables that modules in a folder may state, by their names."""
    tables: dict[str, list[Table]] = {}
    if folder != TESTS:
        tables |= tables_of(folder.parent)
    file = folder / "tables.py"
    if file.exists():
        parts = ("tests", *file.relative_to(TESTS).with_suffix("").parts)
        own: dict[str, list[Table]] = {}
        for one in importlib.import_module(".".join(parts)).TABLES:
            own.setdefault(one.name, []).append(one)
        tables |= own
    return tables


def function_names(path: Path) -> set[str]:
    """The names of a file's tests: of those that it writes, and of its tables."""
    nodes = ast.parse(path.read_text("utf-8")).body
    names = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            tables = tables_of(path.parent).get(node.targets[0].id, [])
            names |= {one.function.__name__ for one in tables}
    return names


class TableModule(pytest.Module):
    """A test module, with the tests of its tables."""

    def collect(self):
        for name, tables in tables_of(self.path.parent).items():
            value = getattr(self.obj, name, None)
            for one in tables if value else ():
                if not hasattr(self.obj, one.function.__name__):
                    setattr(self.obj, one.function.__name__, one.test_of(value))
        return super().collect()


def pytest_pycollect_makemodule(module_path, parent):
    if TESTS in module_path.parents:
        return TableModule.from_parent(parent, path=module_path)
    return None


def _words(number, row):
    return row[-1] if isinstance(row[-1], str) and row[-1] else str(number)


def _arguments(rows):
    return [row if isinstance(row, tuple) else (row, "") for row in rows]


@table("BAD_ARGUMENTS", "make", "text", ids=_words, rows=_arguments)
def test_bad_arguments(make, text):
    """Calls that raise ``ArgumentError``, each alone or with what the error says."""
    with pytest.raises(ArgumentError) as caught:
        make()
    assert text in str(caught.value)


def _refusals(rows):
    return [row if len(row) == 3 else (*row, "") for row in rows]


@table("REFUSALS", "call", "error", "text", ids=_words, rows=_refusals)
def test_refusals(call, error, text):
    """Calls with the error that they raise, and what it says, a regular expression."""
    with pytest.raises(error, match=text or None):
        call()
