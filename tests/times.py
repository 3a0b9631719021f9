"""When a test runs is chosen by the time that it takes: ``tests/times.toml``.

A test of less than 0.2 seconds runs always. One of more is ``slow``: CI runs it.
``nightly`` is written into the file by hand, for the second and third of a kind and for
what CI cannot afford; some kinds are so as a whole (``is_of_many``). A line is
``"test_name[case]" = { slow = seconds }``, without the case where all cases of the
function have the same mark.

============================================  ========================================
``pytest -m "not nightly" --record-times``    measures the tests, and writes the file
``pytest --collect-only -q --record-times``   follows tests that have moved, and drops
                                              the lines of those that are gone
============================================  ========================================

The seconds are of processors, in the test's process and in those that it starts: on a
busy machine they are the same. Those of the clock count where a test only waits, for a
process that lives on, or for time to pass. Fixtures that several tests share do not.
"""

import json
import os
import sys
import time
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests import golden

TESTS = Path(__file__).parent
FILE = TESTS / "times.toml"
SLOW = 0.2  # seconds at which a test becomes slow
WAITS = 20  # times as long by the clock: not even a busy machine is so slow
QUICK = 0.15  # seconds below which a slow one is quick again
Times = dict[str, dict[str, tuple[str, float]]]  # file → test → mark and seconds


def read() -> Times:
    """The marks and seconds of the tests that have one, by file and name."""
    files = tomllib.loads(FILE.read_text("utf-8"))
    return {
        path: {name: next(iter(entry.items())) for name, entry in entries.items()}
        for path, entries in files.items()
    }


def write(times: Times) -> None:
    """Writes the file, in the order of names."""
    parts = ["# Written by pytest --record-times: see tests/times.py.\n"]
    for path, entries in sorted(times.items()):
        lines = [
            f"{json.dumps(name, ensure_ascii=False)} = {{ {mark} = {seconds:.1f} }}\n"
            for name, (mark, seconds) in sorted(entries.items())
        ]
        if lines:
            parts.append(f'\n["{path}"]\n' + "".join(lines))
    FILE.write_text("".join(parts), "utf-8")


def place(nodeid: str) -> tuple[str, str]:
    """The file of a test below ``tests/``, and its name in there."""
    path, _, name = nodeid.partition("::")
    return path.removeprefix("tests/"), name


def function(name: str) -> str:
    """The name of a case without the case."""
    return name.partition("[")[0]


def updated(
    entries: dict[str, tuple[str, float]],
    seconds: dict[str, float],
    cases: dict[str, int],
) -> dict[str, tuple[str, float]]:
    """The entries of one file after a run.

    Args:
        entries: Those before it.
        seconds: What the tests took, by name.
        cases: The number of cases of each function, by the function's name.
    """
    entries, measured = dict(entries), Counter(map(function, seconds))
    for name, took in seconds.items():
        own = function(name)
        if own in entries and own != name and measured[own] < cases[own]:
            continue  # one line for cases of which only some ran
        mark, before = entries.get(name) or entries.get(own) or ("slow", 0.0)
        if took < (QUICK if before else SLOW):
            entries.pop(name, None)
        elif not before / 1.5 < took < before * 1.5 or name not in entries:
            entries[name] = (mark, took)
    for own, number in cases.items():
        if own in seconds or measured[own] < number:
            continue
        entries.pop(own, None)
        ours = [name for name in entries if function(name) == own]
        marks = {entries[name][0] for name in ours}
        if len(ours) == number and len(marks) == 1:
            most = max(entries.pop(name)[1] for name in ours)
            entries[own] = (marks.pop(), most)
    return entries


def followed(times: Times, names: dict[str, set[str]]) -> tuple[Times, list[str]]:
    """The lines of the tests that are there, and what was changed for that.

    Args:
        times: The lines before.
        names: The tests of each file, with and without their cases.
    """
    result: Times = defaultdict(dict)
    changes = []
    for path, entries in times.items():
        for name, entry in entries.items():
            if name in names.get(path, ()):
                result[path][name] = entry
                continue
            others = [
                p for p in names if name in names[p] and name not in times.get(p, ())
            ]
            same = [p for p in others if Path(p).name == Path(path).name]
            target = next(iter(same or others), None) if path not in names else None
            if target and len(same or others) == 1:
                result[target][name] = entry
            changes.append(f"{path}::{name} → {target or 'gone'}")
    return dict(result), changes


class Recorder:
    """Measures the tests of a run, and writes what they took."""

    def __init__(self):
        self.shared = 0.0
        self.cases: Counter[str] = Counter()
        self.start = self.began = 0.0
        self.reports = []

    @staticmethod
    def clock() -> float:
        """Seconds of processors, of this process and of those that have ended."""
        return sum(os.times()[:4])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        self.cases = Counter(function(item.nodeid) for item in items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.shared, self.start, self.began = 0.0, self.clock(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        start = self.clock()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.shared += self.clock() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        result = yield
        took = self.clock() - self.start - self.shared
        passed = time.monotonic() - self.began
        if took < passed / WAITS:
            took = passed
        number = self.cases[function(item.nodeid)]
        item.user_properties += [("seconds", took), ("cases", number)]
        return result

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed and report.user_properties:
            self.reports.append((report.nodeid, dict(report.user_properties)))

    def pytest_sessionfinish(self):
        if "PYTEST_XDIST_WORKER" in os.environ or not self.reports:
            return
        times = read()
        seconds: dict[str, dict[str, float]] = defaultdict(dict)
        cases: dict[str, dict[str, int]] = defaultdict(dict)
        for nodeid, properties in self.reports:
            path, name = place(nodeid)
            seconds[path][name] = properties["seconds"]
            cases[path][function(name)] = properties["cases"]
        for path in seconds:
            times[path] = updated(times.get(path, {}), seconds[path], cases[path])
        write(times)


def is_of_many(item) -> bool:
    """Tells what says the same of Keras as of us, and examples of 220 functions of JAX.

    So are the examples of the applications' networks.
    """
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    peers = (golden.keras, sys.modules.get("keras", golden.keras))
    if any(value is peer for value in values for peer in peers):
        return True
    doc = getattr(getattr(item, "dtest", None), "docstring", "") or ""
    if item.nodeid.startswith("exburn/ops/") and "with Keras' arguments." in doc:
        return True
    return "(weights=None, input_shape=(96, 96, 3), classes=10)" in doc


def add_options(parser):
    parser.addoption("--record-times", action="store_true", help="see tests/times.py")


def pytest_configure(config):
    if config.option.record_times and not config.option.collectonly:
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, config, items):
    """Marks the items; where all are there, each line must name one."""
    times = read()
    names: dict[str, set[str]] = defaultdict(set)
    for item in items:
        path, name = place(item.nodeid)
        names[path] |= {name, function(name)}
        entries = times.get(path, {})
        mark, _ = entries.get(name) or entries.get(function(name)) or (None, 0.0)
        if is_of_many(item):
            mark = "nightly"
        if mark:
            item.add_marker(mark)
    if config.getini("testpaths") != config.args or session.testsfailed:
        return
    times, changes = followed(times, names)
    if changes and config.option.record_times and config.option.collectonly:
        write(times)
        print(*changes, sep="\n")
    elif changes:
        raise pytest.UsageError(
            "tests/times.toml names tests that are not there; commit what pytest "
            f"--collect-only -q --record-times makes of it: {'; '.join(changes)}"
        )
