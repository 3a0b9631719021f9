"""The figures of the house that `house.py` prints stay within their bars."""

import pytest
from tests.project import house

BARS = {
    "entries of exburn/": 46,  # 40 are imported by programs: docs/decisions/rooms.md
    "frames from Model.fit to a layer": 12,
    "traces of a layer at a first fit": 3,
    "calls of locals()": 0,
    "imports and names that point up": 0,
    "modules in the largest circle of imports": 5,
    "public class names that stand twice": 0,
    "functions of more than 80 lines": 0,
    "classes of more than 300 lines": 2,  # neither is on the path of fit
    "functions named by a participle": 20,
    "variables named by a participle": 100,
    "small modules with one importer beside them": 60,
}


@pytest.mark.parametrize("figure", BARS)
def test_a_figure_is_within_its_bar(figure):
    items = list(house.LISTS[figure](house.ROOT))
    assert len(items) <= BARS[figure], "\n".join(items)


def source(text):
    tree = house.ast.parse(text)
    return house.Source("exburn.a", house.ROOT, text.splitlines(), tree)


@pytest.fixture
def sources(monkeypatch):
    files = {}
    monkeypatch.setattr(house, "sources", lambda root: files)
    return files


def test_lines_of_code_leave_out_texts_comments_and_blank_lines(sources):
    sources["exburn.a"] = source('def f():\n    """Text."""\n\n    # why\n    return 1')
    assert house.long_functions(house.ROOT, most=1) == ["exburn.a.f (2)"]
    assert house.long_functions(house.ROOT, most=2) == []


def test_participles_are_seen_as_variables_arguments_and_functions(sources):
    sources["exburn.a"] = source("def kept(told):\n    _found = told\n    left = 1")
    assert house.participles(house.ROOT) == ["exburn.a.kept"]
    names = house.participle_variables(house.ROOT)
    assert sorted(names) == ["exburn.a.kept: found", "exburn.a.kept: told"]


def test_circles_are_seen_through_imports_in_functions(monkeypatch):
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    monkeypatch.setattr(house, "imports", lambda root: graph)
    assert house.circles(house.ROOT) == [["a", "b", "c"]]


def test_locals_and_names_that_stand_twice_are_seen(sources):
    sources["exburn.a"] = source("class A: pass\nf(**locals())")
    sources["exburn.b"] = house.dataclasses.replace(
        source("class A: pass"), name="exburn.b"
    )
    assert house.passed_locals(house.ROOT) == ["exburn.a:2"]
    assert house.twice_named(house.ROOT) == ["A: exburn.a, exburn.b"]
