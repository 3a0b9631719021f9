"""``tests/times.toml`` names tests that are there, and follows what they take."""

import pytest
from tests import times
from tests.tables import function_names
from tests.times import followed, updated

CASES = {"test_a[x]": 0.9, "test_a[y]": 0.8, "test_a[z]": 0.1}


def test_each_line_is_of_a_test_that_is_there():
    lost = [
        f"{path}::{name}"
        for path, entries in times.read().items()
        for name in entries
        if not (times.TESTS / path).exists()
        or times.function(name).rpartition("::")[2]
        not in function_names(times.TESTS / path)
    ]
    assert not lost, "commit what pytest --collect-only -q --record-times writes"


def test_what_is_read_is_written_again(monkeypatch, tmp_path):
    text, entries = times.FILE.read_text("utf-8"), times.read()
    monkeypatch.setattr(times, "FILE", tmp_path / "times.toml")
    times.write(entries)
    assert times.FILE.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("before", "seconds", "number", "after"),
    [
        pytest.param(
            {},
            CASES,
            3,
            {"test_a[x]": ("slow", 0.9), "test_a[y]": ("slow", 0.8)},
            id="new",
        ),
        pytest.param({}, {"test_a": 0.19}, 1, {}, id="quick"),
        pytest.param(
            {"test_a": ("slow", 0.5)},
            {"test_a": 0.25},
            1,
            {"test_a": ("slow", 0.25)},
            id="not yet quick",
        ),
        pytest.param(
            {"test_a": ("slow", 0.5)}, {"test_a": 0.14}, 1, {}, id="quick again"
        ),
        pytest.param(
            {"test_a[x]": ("nightly", 2.0)},
            {"test_a[x]": 5.0},
            3,
            {"test_a[x]": ("nightly", 5.0)},
            id="nightly stays so",
        ),
        pytest.param(
            {"test_a": ("slow", 0.9)},
            {"test_a[x]": 0.1},
            3,
            {"test_a": ("slow", 0.9)},
            id="some cases of a line ran",
        ),
        pytest.param(
            {},
            {"test_a[x]": 0.9, "test_a[y]": 0.8},
            2,
            {"test_a": ("slow", 0.9)},
            id="all cases alike",
        ),
        pytest.param(
            {"test_a": ("slow", 0.9)},
            CASES,
            3,
            {"test_a[x]": ("slow", 0.9), "test_a[y]": ("slow", 0.8)},
            id="cases apart",
        ),
    ],
)
def test_lines_after_a_run(before, seconds, number, after):
    assert updated(before, seconds, {"test_a": number}) == after


def test_lines_follow_tests_that_move():
    line = ("slow", 1.0)
    entries: times.Times = {"old/test_x.py": {"test_a": line, "test_gone": line}}
    names = {"new/test_x.py": {"test_a"}, "test_y.py": {"test_a"}}
    entries, changes = followed(entries, names)
    assert entries == {"new/test_x.py": {"test_a": line}}
    assert changes == [
        "old/test_x.py::test_a → new/test_x.py",
        "old/test_x.py::test_gone → gone",
    ]
