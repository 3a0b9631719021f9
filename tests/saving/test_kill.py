"""Processes that are killed while they save, and trainings that are killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
import faults  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not faults.available(), reason="needs Linux and a C compiler"),
]
ALL = os.environ.get("EXBURN_ALL_KILLS") == "1"  # every operation, not every n-th


def row(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-P", str(BENCHMARKS / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("system", "kind", "count"),
    [
        ("exburn checkpoint", "operation", 40),
        ("exburn checkpoint", "random", 20),
        ("exburn checkpoint", "error", 25),
        ("exburn checkpoint, asynchronous", "operation", 10),
    ],
)
def test_a_save_and_prune_that_is_hit(system, kind, count):
    """Native operations included: 0 lost, 0 bad listings, 0 litter after opening."""
    found = row("crashes.py", system, kind, 0 if ALL and kind != "random" else count)
    assert found["cases"] >= count and found["operations"] > 100
    assert found["stopped"] > count / 2  # most hits do end the save
    assert (found["lost"], found["bad"], found["litter"]) == (0, 0, 0), found
    assert found["untyped"] == 0, found


def test_trainings_that_are_killed_end_with_the_same_bytes():
    found = row("interrupted.py", "exburn", 3, 6)
    assert found["kills"] >= 6
    assert (found["equal"], found["failed"]) == (6, 0), found
