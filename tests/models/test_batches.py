"""One batch at a time."""

from __future__ import annotations

import numpy as np
import pytest

import exburn
import exburn as keras
from exburn import layers
from exburn.training import trainer
from exburn.training.feed.chunking import single_chunk


def line():
    layer = layers.Dense(1, kernel_initializer="ones")
    model = exburn.Sequential([exburn.Input((1,)), layer])
    model.compile(exburn.optimizers.SGD(0.0), "mse")
    return model


def test_on_batch_methods_return_the_batchs_own_values():
    model = line()
    ones = np.ones((2, 1), np.float32)
    assert model.train_on_batch(ones, ones * 3) == pytest.approx(4)
    assert model.train_on_batch(ones, ones * 2) == pytest.approx(1)
    assert model.test_on_batch(ones, ones * 4) == pytest.approx(9)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 4)).astype("float32")
Y = RNG.integers(0, 3, 96)


def classifier(**options):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=1, **options)
    return model


@pytest.mark.parametrize("use", ["train", "test", "predict"])
def test_single_batches_of_one_size_are_not_padded(use, monkeypatch):
    model, taken = classifier(), []

    def noted(batch, rows, **options):
        taken.append(rows)
        return single_chunk(batch, rows, **options)

    monkeypatch.setattr(trainer, "single_chunk", noted)

    def run(rows):
        if use == "predict":
            return model.predict_on_batch(X[:rows])
        return getattr(model, f"{use}_on_batch")(X[:rows], Y[:rows])

    for rows in (33, 20, 3, 33, 2, 20, 3, 1):
        run(rows)
    assert taken == [33, 33, 3, 33, 3, 33, 3, 1]
    for rows in range(65, 90):  # further sizes share a program
        run(rows)
    assert taken[8:] == [128] * 25
    assert sum(model.trace_counts.values()) == 4
    if use == "predict":
        made = model.predict(X[:33], verbose=0)
        np.testing.assert_allclose(run(33), made, atol=1e-6)


def test_train_on_batch_equals_one_step_of_fit(blobs, classifier):
    x, y = blobs
    a, b = classifier(), classifier()
    a.fit(x[:20], y[:20], batch_size=20, epochs=1, shuffle=False, verbose=0)
    logs = b.train_on_batch(x[:20], y[:20], return_dict=True)
    assert logs["loss"] == pytest.approx(a.history.history["loss"][0], rel=1e-6)
    for one, two in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    assert b.test_on_batch(x[:5], y[:5], return_dict=True)["loss"] > 0
    assert b.predict_on_batch(x[:5]).shape == (5, 3)
