"""What goes between host and device for one batch, and for an epoch of one step."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import exburn
from exburn.training.prepare import Preparer
from exburn.training.program import Program

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)).astype(np.float32)
Y = X.sum(-1, keepdims=True)


def trained():
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("adam", "mse", metrics=["mae"], seed=0)
    made.fit(X, Y, verbose=0)
    return made


@pytest.fixture(scope="module")
def model():
    return trained()


CALLS = {  # what it does, and how many arrays of the host it may send
    "predict_on_batch": (lambda m: m.predict_on_batch(X), 1),
    "test_on_batch": (lambda m: m.test_on_batch(X, Y), 2),
    "train_on_batch": (lambda m: m.train_on_batch(X, Y), 2),
    "predict": (lambda m: m.predict(X, verbose=0), 1),
    "evaluate": (lambda m: m.evaluate(X, Y, verbose=0), 2),
    "an epoch": (lambda m: m.fit(X, Y, verbose=0), 1),
}


@pytest.mark.parametrize(("call", "sent"), CALLS.values(), ids=CALLS)
def test_nothing_is_sent_that_is_there_already(model, call, sent, monkeypatch):
    call(model)
    arguments, put = [], []
    called, device_put = Program.__call__, jax.device_put

    def noted(self, *args, **kwargs):
        leaves = jax.tree.leaves(args)
        arguments.append(sum(not isinstance(leaf, jax.Array) for leaf in leaves))
        return called(self, *args, **kwargs)

    def counted(value, *args, **kwargs):
        put.append(jax.tree.map(np.shape, value))
        return device_put(value, *args, **kwargs)

    monkeypatch.setattr(Program, "__call__", noted)
    monkeypatch.setattr(jax, "device_put", counted)
    call(model)
    assert arguments == [sent]
    assert put == []  # those of an epoch are on the device since the first one


def test_the_count_of_batches_stays_on_the_device(model):
    trainer = model._training_session.trainer
    before = trainer.holder.step
    model.train_on_batch(X, Y)
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    with pytest.raises(exburn.errors.ShapeError):
        model.train_on_batch(X, Y[:, [0, 0]])
    model.train_on_batch(X[:3], Y[:3])
    assert trainer.holder.step == before + 1 + 6 + 1
    assert int(trainer.preparer.initial_state().step) == trainer.holder.step
    trainer.holder.step = 5  # as a loaded model does
    assert int(trainer.preparer.initial_state().step) == 5


def test_a_model_that_moves_leaves_nothing_behind():
    model = trained()  # of its own: from then on data are bound for it
    model.to_device("cpu")
    model.train_on_batch(X, Y)
    assert (
        model._training_session.holder._place is None
    )  # it is bound to the old device


def test_fresh_totals_follow_the_metrics(model):
    trainer = model._training_session.trainer
    totals = trainer.preparer.fresh_totals("test")
    assert trainer.preparer.fresh_totals("test") is totals
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(totals))
    model.compile("adam", "mse", metrics=["mae", "mse"], seed=0)
    assert list(model.evaluate(X, Y, verbose=0, return_dict=True)) == [
        "loss",
        "mae",
        "mse",
    ]


def test_a_batch_is_measured_alone_whatever_another_thread_does(model):
    halves = [(X[:10], Y[:10]), (X[10:], Y[10:])]
    wanted = [model.test_on_batch(*half) for half in halves]

    def measured(half):
        return [model.test_on_batch(*half) for _ in range(200)]

    with ThreadPoolExecutor(2) as threads:
        for values, value in zip(threads.map(measured, halves), wanted, strict=True):
            assert values == [value] * 200


def test_a_fit_that_cannot_begin_leaves_no_data_behind(model, monkeypatch):
    def fail(self, *_):
        raise MemoryError("no room for the optimizer")

    trainer = model._training_session.trainer
    with monkeypatch.context() as patch:
        patch.setattr(Preparer, "initial_state", fail)
        with pytest.raises(MemoryError):
            model.fit(X, Y, verbose=0)
    assert trainer.fitted is None
    with pytest.raises(exburn.errors.ArgumentError, match="no fit is under way"):
        model._check_statistics(None)
    model.fit(X, Y, verbose=0)
    assert trainer.fitted is None
