"""Runs recorded once, which many tests read."""

import numpy as np
import pytest

import exburn
from exburn import layers


def small_model():
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(3)],
        name="small",
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    return model


def rows(count=64):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(count, 4)).astype("float32")
    return x, draw.integers(0, 3, count)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A folder of runs: ``first`` ended, ``first-2`` by an exception of a hook."""
    folder = tmp_path_factory.mktemp("recorded")
    model, (x, y) = small_model(), rows()
    fit = {"batch_size": 16, "verbose": 0, "validation_split": 0.25}
    history = model.fit(x, y, epochs=4, run=folder / "first", **fit)
    assert history.run == folder / "first"

    def fail(logs):
        if logs["epoch"] == 1:
            raise RuntimeError("the hook failed")

    with pytest.raises(RuntimeError, match="the hook failed"):
        model.fit(x, y, epochs=3, run=folder / "first", callbacks=[fail], **fit)
    return folder


@pytest.fixture
def first(recorded):
    return recorded / "first"
