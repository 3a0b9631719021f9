"""Writers of model files that are killed: no good file is lost, and nothing is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def results(*options):
    run = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "reliability_files.py", *options],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exburn", "exburn-parts"])
def test_no_kill_loses_a_model_or_leaves_litter(kind):
    found = results("--kills", "40", "--only", kind)[kind]
    assert found["random moments"] == {"kills": 40, "lost": 0, "litter": 0}
    every = found["every operation"]
    assert every["kills"] > 15 and every["lost"] == every["litter"] == 0


@pytest.mark.slow
def test_the_bench_sees_a_file_that_is_written_in_place():
    found = results("--kills", "5", "--only", "keras")["keras"]["random moments"]
    assert found["lost"] > 0
