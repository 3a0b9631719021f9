"""Processes of tests give back the memory of programs."""

import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from tests import memory

GIB = 1 << 30


@pytest.mark.skipif(sys.platform != "linux", reason="asks the library of C of Linux")
def test_programs_are_let_go_of():
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    for _ in range(2):
        assert double(1.0) == 2
    assert len(traced) == 1
    memory.release()
    assert double(1.0) == 2
    assert len(traced) == 2


@pytest.mark.parametrize(
    ("names", "sizes", "released"),
    [("ab", (1, 2.5, 1.5), 1), ("aa", (1, 2.5), 0), ("ab", (1, 1.5), 0)],
    ids=["a module ends", "in a module", "little has grown"],
)
def test_it_is_done_between_modules(monkeypatch, names, sizes, released):
    item, following = (SimpleNamespace(path=Path(name)) for name in names)
    calls, sizes = [], iter([size * GIB for size in sizes])
    monkeypatch.setattr(memory, "resident", lambda: next(sizes))
    monkeypatch.setattr(memory, "release", lambda: calls.append(True))
    memory.Releaser().pytest_runtest_teardown(item, following)
    assert len(calls) == released


def test_what_is_held_for_good_is_an_error(monkeypatch):
    sizes = iter([1 * GIB, 5 * GIB, 4 * GIB])
    monkeypatch.setattr(memory, "resident", lambda: next(sizes))
    monkeypatch.setattr(memory, "release", lambda: None)
    item = SimpleNamespace(path=Path("test_a.py"))
    with pytest.raises(AssertionError, match=r"4096 MiB .* what test_a.py keeps"):
        memory.Releaser().pytest_runtest_teardown(item, None)
