"""Names of data sets and of their packages."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_bare_name_is_refused():
    code = "import datasets"
    # Under PYTHONSAFEPATH, which CI sets, the folder would not be found at all.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()
    assert done.returncode == 1
    assert any("MissingDependencyError: import datasets" in line for line in last)
    assert "exburn.datasets" in done.stderr and "Hugging Face" in done.stderr


def test_nothing_optional_is_imported():
    code = (
        "import sys, exburn.datasets as d; assert 'moons' in dir(d)\n"
        "found = {'pandas', 'polars', 'torch', 'grain', 'scipy', 'sklearn', 'absl',"
        " 'tensorflow', 'datasets', 'mnist1d', 'narwhals', 'tarfile'}\n"
        "found &= set(sys.modules)\n"
        "before = set(sys.modules)\n"
        "d.moons.load_data(); d.moons\n"
        "print(sorted(found - allowed))"
    )
    allowed = "import sys, jax, flax.nnx, optax, rich; allowed = set(sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", allowed + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_an_unknown_data_set():
    import exburn.datasets

    with pytest.raises(AttributeError, match="no attribute 'mnits'"):
        exburn.datasets.mnits  # noqa: B018
    for name in exburn.datasets.__all__:
        assert getattr(exburn.datasets, name) is not None
    assert importlib.import_module("exburn.datasets.mnist").load_data
