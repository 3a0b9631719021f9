"""Sweeps by Ray Tune: arguments, what is missing, and a sweep of small models."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exburn.errors import ArgumentError, MissingDependencyError
from exburn.tuning import PBT, ray

HERE = Path(__file__).parent
NO_RAY = importlib.util.find_spec("ray") is None
OVER = {"a": [1, 2]}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epochs": 0}, "epochs must be an integer ≥ 1"),
        ({"mode": "auto"}, "mode is one of min, max"),
        ({"gpus_per_trial": -1}, "gpus_per_trial must be a number ≥ 0"),
        ({"cpus_per_trial": "2"}, "cpus_per_trial must be a number ≥ 0"),
        ({"concurrent": 0}, "concurrent must be an integer ≥ 1"),
        ({"over": {}}, "at least one path"),
        ({"halving": 3}, "halving must be Halving"),
        ({"halving": PBT()}, "halving must be Halving"),
    ],
)
def test_arguments_that_can_never_work(options, reason):
    with pytest.raises(ArgumentError, match=reason):
        ray.sweep(print, **{"over": OVER, "epochs": 2} | options)


def test_what_is_no_function_and_a_sampler_that_is_asked():
    with pytest.raises(ArgumentError, match="train_fn must be a function"):
        ray.sweep(3, over=OVER, epochs=2)

    class Sampler:
        def ask(self, space, n): ...
        def tell(self, records): ...

    with pytest.raises(ArgumentError, match=r"must be grid\(\) or random\(n\)"):
        ray.sweep(print, over=OVER, epochs=2, sampler=Sampler())


@pytest.mark.skipif(not NO_RAY, reason="Ray is installed")
def test_without_ray_the_error_says_how_to_install_it():
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[ray\]'"):
        ray.sweep(print, over=OVER, epochs=2)


@pytest.mark.skipif(NO_RAY, reason="Ray is not installed: pip install 'exburn[ray]'")
def test_a_sweep_by_processes_of_ray(tmp_path):
    root = str(HERE.parents[1])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(HERE / "ray_run.py"), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [s for s in done.stdout.splitlines() if s.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    found = json.loads(lines[-1][7:])
    assert found["rates"] == [0.1, 1e-3, 0.0] and found["best"] == 0.1
    assert found["statuses"] == ["finished", "stopped", "stopped"]
    assert found["epochs"][0] == 4 and max(found["epochs"][1:]) < 4
    assert found["loaded"] == pytest.approx(found["score"], rel=1e-5)
    assert "no trial has logged" in found["error"]
