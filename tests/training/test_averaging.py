"""Moving averages of the weights, the mean of the last epochs, and its statistics."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import (
    Callback,
    EarlyStopping,
    ModelCheckpoint,
    StochasticWeightAveraging,
    SwapEMAWeights,
)
from exburn.errors import CallbackError
from exburn.optimizers import (
    SGD,
    Adam,
    LossScaleOptimizer,
    MultiOptimizer,
    OptimizerMap,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 100)


def network(optimizer, norm=True):
    middle = [layers.BatchNormalization()] if norm else []
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "tanh"), *middle, layers.Dense(3)]
    )
    model.compile(optimizer, "cross_entropy", metrics=["accuracy"], seed=0)
    return model


def averaging(**options):
    return Adam(0.05, use_ema=True, ema_momentum=0.9, **options)


class Keep(Callback):
    """Keeps what it sees of the weights at the end of every epoch."""

    def __init__(self):
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(self.model.get_weights())


def equal(ours, theirs):
    return all((a == b).all() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("swap_on_epoch", "optimizer"),
    [
        (True, averaging),
        (False, averaging),
        (False, lambda: LossScaleOptimizer(averaging(), 1.0)),
        (True, lambda: MultiOptimizer(OptimizerMap(averaging()))),
    ],
)
def test_validation_sees_the_average_and_training_does_not(swap_on_epoch, optimizer):
    plain, swapped = network(optimizer(), False), network(optimizer(), False)
    ours, theirs = Keep(), Keep()
    options = {"epochs": 3, "validation_data": (X, Y), "verbose": 0}
    a = plain.fit(X, Y, callbacks=[theirs], **options)
    swap = SwapEMAWeights(swap_on_epoch)
    b = swapped.fit(X, Y, callbacks=[swap, ours], **options)
    assert a.history["loss"] == b.history["loss"]
    assert equal(plain.get_weights(), swapped.get_weights())
    assert a.history["val_loss"][0] != b.history["val_loss"][0]
    # The average stays in the model, so that the last validation is repeatable.
    last = swapped.evaluate(X, Y, verbose=0)[0]
    assert last == pytest.approx(b.history["val_loss"][-1], rel=1e-6)
    assert equal(ours.seen[-1], swapped.get_weights()) is swap_on_epoch
    assert not equal(theirs.seen[-1], plain.get_weights())


def test_a_checkpoint_further_on_in_the_list_saves_the_average(tmp_path):
    model = network(averaging())
    path = tmp_path / "last.safetensors"
    saving = ModelCheckpoint(path, save_weights_only=True)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[SwapEMAWeights(True), saving])
    loaded = network("sgd")
    loaded.load_weights(path)
    assert equal(loaded.get_weights(), model.get_weights())


def test_a_run_that_fails_gives_back_the_weights_as_they_were():
    model, keep = network(averaging()), Keep()

    class Fail(Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        model.fit(X, Y, verbose=0, callbacks=[keep, SwapEMAWeights(True), Fail()])
    assert equal(model.get_weights(), keep.seen[0])


def test_swapping_without_an_average_is_an_error_before_training():
    model = network("adam")
    before = model.get_weights()
    with pytest.raises(CallbackError, match="use_ema=True"):
        model.fit(X, Y, verbose=0, callbacks=[SwapEMAWeights()])
    assert equal(model.get_weights(), before)


def test_the_mean_of_the_last_epochs_and_its_statistics():
    model, keep = network("adam"), Keep()
    swa = StochasticWeightAveraging(start_epoch=2, every=2)
    model.fit(X, Y, epochs=7, verbose=0, callbacks=[keep, swa])
    assert swa.averaged == 3
    trained = [0, 1, 2, 3, 6, 7]  # all but the moving statistics
    for i in trained:
        mean = np.mean([keep.seen[epoch][i] for epoch in (2, 4, 6)], axis=0)
        np.testing.assert_allclose(model.get_weights()[i], mean, rtol=1e-5, atol=1e-7)
    hidden = exburn.Model(model.input, model.layers[0].output).predict(X, verbose=0)
    norm = model.layers[1]
    np.testing.assert_allclose(norm.moving_mean, hidden.mean(0), rtol=1e-4, atol=1e-5)
    batches = [hidden[i : i + 32] for i in range(0, 100, 32)]
    variance = sum(b.var(0) * len(b) for b in batches) / 100
    np.testing.assert_allclose(norm.moving_variance, variance, rtol=1e-4)
    counts = model.trace_counts
    assert (counts["train"], counts["statistics"]) == (1, 1)


def test_its_own_learning_rate_holds_from_the_first_epoch_that_counts():
    model, rates = network("sgd", norm=False), []
    model.fit(
        X,
        Y,
        epochs=4,
        verbose=0,
        callbacks=[
            StochasticWeightAveraging(2, learning_rate=0.5),
            lambda logs: rates.append(model.optimizer.learning_rate),
        ],
    )
    assert rates == pytest.approx([0.01, 0.01, 0.5, 0.5])


def test_stopped_too_early_it_warns_and_keeps_the_weights():
    model, keep = network("sgd", norm=False), Keep()
    stop = EarlyStopping("loss", min_delta=1e9)
    swa = StochasticWeightAveraging(5)
    with pytest.warns(UserWarning, match="stopped before epoch 5"):
        model.fit(X, Y, epochs=9, verbose=0, callbacks=[keep, stop, swa])
    assert equal(model.get_weights(), keep.seen[-1])


def test_its_state_goes_on_in_another_object():
    one, two = network("adam", norm=False), network("adam", norm=False)
    keep = Keep()
    whole = StochasticWeightAveraging(1)
    one.fit(X, Y, epochs=4, verbose=0, callbacks=[whole, keep], shuffle=False)
    first, second = StochasticWeightAveraging(1), StochasticWeightAveraging(1)
    inside = Keep()
    two.fit(X, Y, epochs=2, verbose=0, callbacks=[inside, first], shuffle=False)
    two.set_weights(inside.seen[-1])
    second.load_state_dict(first.state_dict())
    two.fit(
        X,
        Y,
        initial_epoch=2,
        epochs=4,
        verbose=0,
        callbacks=[second],
        shuffle=False,
    )
    assert second.averaged == whole.averaged == 3
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_every_average_at_once():
    optimizer = SGD(0.1, momentum=0.9, use_ema=True, ema_overwrite_frequency=3)
    model = network(optimizer)
    history = model.fit(
        X,
        Y,
        epochs=3,
        validation_split=0.2,
        verbose=0,
        callbacks=[SwapEMAWeights(), StochasticWeightAveraging(1)],
    )
    assert np.isfinite(history.history["val_loss"]).all()
