"""``ray.fit``: arguments, what is missing, and a run that goes on after a loss."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.distribution.ray_run import trained

from exburn import distribution
from exburn.distribution.ray import fit
from exburn.errors import ArgumentError, MissingDependencyError

HERE = Path(__file__).parent
NO_RAY = importlib.util.find_spec("ray") is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"workers": 0}, "workers must be an integer ≥ 1"),
        ({"workers": (3, 2)}, "the least and the most"),
        ({"workers": (1, 2, 3)}, "the least and the most"),
        ({"workers": (0, 2)}, "workers must be an integer ≥ 1"),
        ({"gpus_per_worker": -1}, "gpus_per_worker must be an integer ≥ 0"),
        ({"gpus_per_worker": 0.5}, "gpus_per_worker must be an integer ≥ 0"),
        ({"cpus_per_worker": -2}, "cpus_per_worker must be an integer ≥ 0"),
        ({"max_failures": -2}, "max_failures must be an integer ≥ -1"),
        ({"folder": "s3://bucket/run"}, "a path that all workers see"),
    ],
)
def test_arguments_that_can_never_work(options, reason):
    with pytest.raises(ArgumentError, match=reason):
        fit(print, **options)


def test_what_is_no_function():
    with pytest.raises(ArgumentError, match="train_fn must be a function"):
        fit([1, 2])


def test_without_ray_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[ray\]'"):
        fit(print)
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[ray\]'"):
        distribution.ray.run_folder()


@pytest.mark.skipif(NO_RAY, reason="Ray is not installed: pip install 'exburn[ray]'")
@pytest.mark.parametrize(
    ("way", "devices", "began"),
    [
        ("killed", 2, 4),
        ("lost", 1, 3),
    ],
)
def test_a_run_goes_on_after_the_loss_of_a_worker(way, devices, began, tmp_path):
    found = result_of([str(HERE / "ray_run.py"), way, str(tmp_path)])
    history = found["history"]
    assert (history.pop("devices"), found["began"]) == (devices, began)
    assert found["epoch-0"] == 2  # those that went on had a checkpoint
    expected = trained([], mesh=None).history
    assert set(history) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)


def result_of(command: list[str]) -> dict:
    """What a program printed, in a process that leaves nothing of Ray behind."""
    root = str(HERE.parents[1])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {
        "PYTHONPATH": paths,
        "JAX_PLATFORMS": "cpu",
        # So long Ray waits for the workers that were there, before it takes fewer.
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
        "RAY_USAGE_STATS_ENABLED": "0",  # a test reports to nobody
    }
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = [s for s in done.stdout.splitlines() if s.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[-1][7:])
