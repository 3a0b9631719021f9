"""Saves that are killed, that fail, and trainings that are killed."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))
import faults  # noqa: E402
import reliability  # noqa: E402

pytestmark = pytest.mark.skipif(
    not faults.available(), reason="needs Linux and a C compiler"
)
ALL = os.environ.get("EXBURN_ALL_KILLS") == "1"  # every operation, not every n-th
# One process for all of them: what takes time is importing, not saving.
SCRIPT = f"""
import json, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import faults
faults.preload()
import crashes
with crashes.reader() as look:
    for name, kind, step, count in json.loads(sys.argv[1]):
        for case in crashes.cases(look, name, kind, step=step, count=count):
            print(json.dumps([name, kind, case]))
"""
SAVES = {  # every n-th operation, or a number of random moments
    "ExBurn model.save": {"kill": 1, "random": 6, "error": 7, "full": 2},
    "ExBurn model.save, in parts": {"kill": 3, "random": 6, "error": 29, "full": 5},
    "ExBurn ModelCheckpoint, files": {"kill": 1, "random": 6, "error": 7},
    "ExBurn checkpoint": {"kill": 9, "random": 10, "error": 41, "full": 29},
    "ExBurn checkpoint, asynchronous": {"kill": 13, "random": 10, "error": 61},
}


def lines(*command):
    done = subprocess.run(
        [sys.executable, "-P", *map(str, command)],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_save_and_prune_that_is_hit():
    """Native operations included: 0 lost, 0 bad listings, 0 litter after opening."""
    rows = [
        (name, kind, 1 if ALL or kind == "random" else number, number)
        for name, kinds in SAVES.items()
        for kind, number in kinds.items()
    ]
    totals = {(name, kind): Counter() for name, kind, _, _ in rows}
    wrong = []
    for name, kind, case in lines("-c", SCRIPT, json.dumps(rows)):
        total = totals[name, kind]
        total["cases"] += 1
        total["stopped"] += case["stopped"]
        # Threads that wait do more or less: a place need not be reached.
        reached = case["operations"] is None or case["operations"] >= case["place"]
        total["reached"] += reached
        if "seen" in case:
            wrong.append((name, kind, case))
    assert wrong == []
    for (name, kind), total in totals.items():
        assert total["cases"] >= 3, (name, kind)
        # A kill always ends the save; an error that harms nothing does not.
        least = total["reached"] if kind in ("kill", "random") else 1
        assert total["stopped"] >= least >= 1, (name, kind)


def test_the_bench_sees_what_others_leave():
    script = lines("-c", SCRIPT, json.dumps([("safetensors save_file", "kill", 1, 0)]))
    assert any(case["litter"] for _, _, case in script)


@pytest.mark.parametrize("count", [1, 3])
def test_trainings_that_are_killed_end_with_the_same_bytes(count):
    found = lines(BENCHMARKS / "interrupted.py", "ExBurn", 3, "--count", count)
    assert len(found) == count and all(case["kills"] for case in found)
    assert [case["equal"] for case in found] == [1] * count, found


def test_the_page_shows_what_the_bench_has_found():
    rows = json.loads(reliability.RESULTS.read_text())["rows"]
    page = reliability.PAGE.read_text(encoding="utf-8")
    for name, table in reliability.tables([r for r in rows if r["cases"]]).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end of {name} -->" in page, name
