"""Chunks of evaluations that stay on a device which takes copies."""

import jax
import numpy as np
import pytest

import exburn
from exburn.training.feed import array_feed, chunking
from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.placement import OneDevice

ROWS, WIDTH = 1 << 10, 300  # more than 1 MiB


@pytest.fixture
def sent(monkeypatch):
    """Bytes of the arrays that were sent, as a device with memory of its own does."""
    monkeypatch.setattr(chunking, "chosen_platform", lambda: "gpu")
    sizes = []

    def send(self, tree):
        copy = jax.tree.map(np.array, tree)
        sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(tree)))
        return jax.device_put(copy)

    monkeypatch.setattr(OneDevice, "send", send)
    return sizes


@pytest.fixture(scope="module")
def model():
    model = exburn.Sequential(
        [exburn.Input((WIDTH,)), exburn.layers.Dense(1, use_bias=False)]
    )
    model.compile("sgd", "mse", seed=0, steps_per_execution=4)
    return model


def arrays():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    return x, rng.standard_normal((ROWS, 1)).astype(np.float32)


def check(model, use, x, y):
    outputs = x @ np.asarray(model.weights[0])
    if use == "predict":
        predictions = model.predict(x, batch_size=64, verbose=0)
        np.testing.assert_allclose(predictions, outputs, rtol=1e-3, atol=1e-4)
    else:
        loss = model.evaluate(x, y, batch_size=64, verbose=0)
        assert loss == pytest.approx(float(np.square(outputs - y).mean()), rel=1e-3)


def kept_of(model, use):
    stores = model._training_session.trainer.stores
    return stores["predict" if use == "predict" else "test"]


@pytest.mark.parametrize("use", ["evaluate", "predict"])
def test_they_are_sent_twice_and_then_never(model, sent, use):
    x, y = arrays()
    check(model, use, x, y)
    assert not kept_of(model, use).keys()  # most data are evaluated once
    check(model, use, x, y)
    whole = sum(sent)
    programs = dict(model.trace_counts)
    assert len(kept_of(model, use).keys()) == (4 if use == "predict" else 8)
    for _ in range(2):
        check(model, use, x, y)
    assert sum(sent) == whole and model.trace_counts == programs
    x[70] = 3  # in the first of four chunks
    check(model, use, x, y)
    assert 0 < sum(sent) - whole < whole / 4
    x[:] = x[::-1].copy()
    check(model, use, x, y)
    y[-1] = 100
    check(model, use, x, y)
    check(model, use, x[:-3], y[:-3])  # other rows, whose last chunk is a copy
    assert not kept_of(model, use).keys()
    for _ in range(2):
        check(model, use, x[:-3], y[:-3])
    del x, y
    assert not kept_of(model, use).keys()


def test_an_evaluation_that_ends_early_leaves_what_was_there(model, sent):
    x, y = arrays()
    for _ in range(2):
        check(model, "evaluate", x, y)
    keys = kept_of(model, "evaluate").keys()

    class Stop(exburn.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            self.model.stop_evaluating = True

    x[0] = 1
    model.evaluate(x, y, batch_size=64, verbose=0, callbacks=[Stop()])
    assert kept_of(model, "evaluate").keys() == keys
    check(model, "evaluate", x, y)


def test_bad_values_are_told_once_they_are_there(model, sent):
    x, y = arrays()
    for _ in range(3):
        check(model, "evaluate", x, y)
    x[1000, 7] = np.inf
    for _ in range(2):
        with pytest.raises(exburn.errors.DataError, match=r"row 1,?000"):
            model.evaluate(x, y, batch_size=64, verbose=0)
    x[1000, 7] = 0
    check(model, "evaluate", x, y)


def test_a_validation_in_each_of_many_fits(model, sent):
    (x, y), (v, w) = arrays(), arrays()
    v += 1

    def fit():
        sent.clear()
        options = {"batch_size": 64, "verbose": 0, "validation_data": (v, w)}
        history = model.fit(x[:64], y[:64], **options).history["val_loss"]
        outputs = v @ np.asarray(model.weights[0])
        assert history == pytest.approx(
            [float(np.square(outputs - w).mean())], rel=1e-3
        )
        return sum(sent)

    assert [fit() > 0 for _ in range(4)] == [True, True, False, False]
    v[3] = 2
    assert fit()


@pytest.fixture
def trials(monkeypatch):
    """Whether each run through chunks was one on trial, and what that proved."""
    tried, run = [], ArrayFeed._try_kept

    def noting(self, *place):
        yield from run(self, *place)
        tried.append(self.is_proven)

    monkeypatch.setattr(ArrayFeed, "_try_kept", noting)
    return tried


@pytest.mark.parametrize("use", ["evaluate", "predict"])
@pytest.mark.parametrize("by_thread", [True, False])
def test_they_are_used_before_they_are_compared(
    model, sent, trials, use, by_thread, monkeypatch
):
    monkeypatch.setattr(array_feed, "_COMPARED", 0 if by_thread else 1 << 60)
    x, y = arrays()
    for _ in range(4):
        check(model, use, x, y)
    assert trials and all(trials)
    count, whole = len(trials), sum(sent)
    for at in (3, ROWS // 2, -1):
        x[at] *= -1
        check(model, use, x, y)
        assert trials[count:] == [False]
        check(model, use, x, y)
        check(model, use, x, y)
        assert trials[count + 1 :][-1]
        count = len(trials)
    assert whole < sum(sent) < 2 * whole


def test_others_are_none_of_them(model, sent, trials):
    x, y = arrays()
    for _ in range(4):
        check(model, "predict", x, y)
    count = len(trials)
    outputs = x @ np.asarray(model.weights[0])
    for options in ({"batch_size": 32}, {"batch_size": 64, "steps": 3}):
        rows = len(outputs) if "steps" not in options else 192
        for _ in range(2):
            predictions = model.predict(x, verbose=0, **options)
            np.testing.assert_allclose(
                predictions, outputs[:rows], rtol=1e-3, atol=1e-4
            )
    seen = []
    hook = exburn.callbacks.LambdaCallback(
        on_predict_batch_end=lambda batch, logs: seen.append(logs["outputs"])
    )
    for _ in range(3):
        x[5] += 1
        model.predict(x, batch_size=64, verbose=0, callbacks=[hook])
        np.testing.assert_allclose(
            np.concatenate(seen[-16:]), x @ np.asarray(model.weights[0]), 1e-3, 1e-4
        )
    assert all(trials[count:])


def test_padding_of_the_last_chunk_is_part_of_it(model, sent, trials):
    x, y = (array[:-37] for array in arrays())
    for _ in range(4):
        check(model, "evaluate", x, y)
    assert trials and all(trials)
    x[-1] += 5
    check(model, "evaluate", x, y)
    assert not trials[-1]
    check(model, "evaluate", x, y)
