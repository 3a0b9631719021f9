"""The recorded arrays of Keras are those of Keras, and none is left over."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.golden import Recording, compare
from tests.tables import function_names

TESTS = Path(__file__).resolve().parents[1]
FILES = sorted(TESTS.rglob("golden/*.npz"))
EVERY = 25  # of so many recorded tests of a file, one is computed again


def test_a_recording_gives_back_what_was_put_in(tmp_path):
    tree = {"out": [np.arange(3), (np.float32(0.5), None)], "name": "elu", "n": 3}
    first = Recording(tmp_path / "golden" / "test_x.npz")
    first.put("test_x[elu]#0", tree)
    first.put("test_x[elu]#1", np.ones(2, "float16"))
    first.put("test_x[elu]#0", tree | {"n": 4})
    first.save(tmp_path / "golden" / "test_x.npz")
    again = Recording(tmp_path / "golden" / "test_x.npz")
    assert list(again.forms) == ["test_x[elu]#0", "test_x[elu]#1"]
    compare(again.get("test_x[elu]#0"), first.get("test_x[elu]#0"), 0)
    assert again.get("test_x[elu]#0")["out"][1] == (0.5, None)
    assert again.get("test_x[elu]#1").dtype == "float16"
    with pytest.raises(KeyError, match="--regenerate"):
        again.get("test_x[relu]#0")


def test_other_numbers_are_seen():
    with pytest.raises(AssertionError):
        compare([np.array([1.0, 2.0])], [np.array([1.0, 2.1])], 1e-4)
    with pytest.raises(AssertionError):
        compare({"a": np.array([1])}, {"b": np.array([1])}, 1e-4)
    with pytest.raises(AssertionError):
        compare(0.5, 0.6, 1e-4)
    compare(0.5, 0.50001, 1e-4)


def test_every_recording_is_of_a_test_that_is_there():
    for file in FILES:
        module = file.parents[1] / f"{file.stem}.py"
        assert module.exists(), f"{file} is of no test: delete it"
        recorded = {
            key.partition("#")[0].partition("[")[0] for key in Recording(file).forms
        }
        assert recorded <= function_names(module), (
            f"{file} has recordings of tests that are gone"
        )


def test_keras_gives_what_is_recorded():
    chosen = []
    for file in FILES:
        names = dict.fromkeys(k.rpartition("#")[0] for k in Recording(file).forms)
        module = file.parents[1] / f"{file.stem}.py"
        chosen += [f"{module}::{name}" for name in list(names)[::EVERY]]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--recompute"),
            *("-m", "", "-p", "no:cacheprovider", *chosen),
        ],
        cwd=TESTS.parent,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
