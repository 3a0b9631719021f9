"""Compiled programs: one trace each, in chunks that change nothing."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Callback


def test_one_trace_per_program(blobs, classifier):
    x, y = blobs
    model = classifier()
    model.fit(x, y, epochs=3, validation_split=0.2, verbose=0)
    assert model.trace_counts["train"] == 1
    assert model.trace_counts["evaluate"] == 1
    model.fit(x, y, epochs=2, validation_split=0.2, verbose=0)
    assert model.trace_counts["train"] == 1


def test_the_learning_rate_changes_without_a_new_trace(blobs, classifier):
    x, y = blobs
    model = classifier()

    class Halve(Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.01 / (epoch + 1)

    model.fit(x, y, epochs=3, callbacks=[Halve()], verbose=0)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01 / 3)
    model.optimizer.learning_rate = 0.0
    before = model.get_weights()
    model.fit(x, y, epochs=1, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.trace_counts["train"] == 1


def test_chunks_change_nothing(blobs, classifier):
    """Single steps, chunks that divide the epoch, chunks that do not: all equal."""
    x, y = blobs
    results = []
    for steps in (1, 3, 4, 100):
        model = classifier(dropout=0.3, steps_per_execution=steps)
        history = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history
        results.append((history, model.get_weights()))
    for history, weights in results[1:]:
        np.testing.assert_allclose(history["loss"], results[0][0]["loss"], rtol=1e-5)
        for a, b in zip(weights, results[0][1], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_batch_statistics_leave_padding_out(blobs):
    """BatchNormalization on a ragged batch equals the same rows without padding."""
    x, y = blobs
    results = []
    for rows in (203, 11):

        def make():
            model = exburn.Sequential(
                [exburn.Input((8,)), layers.BatchNormalization(), layers.Dense(3)]
            )
            model.compile(exburn.optimizers.SGD(0.1), "cross_entropy", seed=0)
            return model

        padded, alone = make(), make()
        data = x[-rows:], y[-rows:]
        padded.train_on_batch(*data)  # padded to a power of two
        alone.fit(*data, batch_size=rows, shuffle=False, verbose=0)
        for a, b in zip(padded.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)
        results.append(rows)
    assert results == [203, 11]
