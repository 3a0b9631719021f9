"""Runs side by side, and runs in a folder."""

import pytest

from exburn import runs
from exburn.errors import ArgumentError


def test_what_differs_and_what_came_of_it(recorded):
    first, second = recorded / "first", recorded / "first-2"
    found = runs.compare(first, second)
    assert found.differences["fit.epochs"] == [4, 3]
    assert "fit.batch_size" not in found.differences and "id" not in found.differences
    assert [len(values) for values in found.last.values()] == [2] * 4
    value, epoch = found.best["val_loss"][0]
    points = dict(runs.read(first).curve("val_loss"))
    assert points[epoch] == value == min(points.values())
    page = str(found)
    assert "best val_loss" in page and "failed" in page
    with pytest.raises(ArgumentError, match="two runs"):
        runs.compare(first)


def test_the_runs_of_a_folder_and_of_its_folders(recorded):
    names = [run.name for run in runs.find(recorded)]
    assert names == ["first", "first-2"]
    assert [run.name for run in runs.find(recorded.parent)] == names or names


def test_what_a_notebook_shows_of_them(recorded):
    run = runs.read(recorded / "first")
    text = f"<Run first: finished, 4 of 4 epochs, loss {run.last['loss']:.4g}"
    assert repr(run).startswith(text) and len(repr(run)) < 300
    comparison = runs.compare(run, recorded / "first-2")
    assert repr(comparison) == str(comparison)
