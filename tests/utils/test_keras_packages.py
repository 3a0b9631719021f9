"""Packages that others wrote for Keras 3, on Keras and on ExBurn.

None of them is a dependency: `pip install --no-deps --target FOLDER PACKAGE…` (each
script tells which), and the folder on PYTHONPATH. `pytest -m nightly
tests/utils/test_keras_packages.py` runs those that are there.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "keras_packages"


@pytest.fixture
def run(tmp_path):
    """Runs a script, on Keras and then on ExBurn; what they wrote."""

    def run_both(script, package):
        for name in (package, "keras"):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed")
        results = []
        for way in ([], ["-m", "exburn.as_keras"]):
            out = tmp_path / f"{len(results)}.npz"
            before = [tmp_path / "0.npz"] if way else []
            command = [sys.executable, *way, FOLDER / script, out, *before]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            results.append(dict(np.load(out)))
        return results

    return run_both


def test_layers_of_keras_sig_have_the_values_they_have_on_keras(run):
    theirs, ours = run("signatures.py", "keras_sig")
    assert len(theirs) == 7
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=name)


def test_keras_tuner_tries_the_same_and_finds_its_best_again(run):
    theirs, ours = run("tuner.py", "keras_tuner")
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-6, err_msg=name)


def test_bayesflow_comes_to_the_same_posterior(run, record_property):
    theirs, ours = run("posterior.py", "bayesflow")
    np.testing.assert_allclose(ours["losses"][-1], theirs["losses"][-1], rtol=0.05)
    spread = theirs["means"].std()
    assert np.abs(ours["means"] - theirs["means"]).mean() < 0.1 * spread
    times = theirs["seconds"] / ours["seconds"]
    record_property("times the speed: quickest, median, with compilation", times)
    print("times the speed: quickest, median, with compilation", times.round(2))
    assert times[0] > 1  # the figure is for an idle machine


def test_backbones_of_keras_hub_predict_as_on_keras_and_train(run):
    theirs, ours = run("backbones.py", "keras_hub")
    outputs = {name for name in theirs if " output " in name}
    assert len({name.split()[0] for name in outputs}) == 26
    for name in outputs:
        np.testing.assert_allclose(
            np.asarray(ours[name], "float64"),
            np.asarray(theirs[name], "float64"),
            atol=1e-4,
            err_msg=name,
        )
    for name in [name for name in ours if name.endswith("losses")]:
        first, second = ours[name]
        assert np.isfinite([first, second]).all() and second < first, name
