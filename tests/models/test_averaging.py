"""Averaged weights in a model, and the statistics that belong to them."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import StochasticWeightAveraging
from exburn.errors import ArgumentError, CallbackError, DataError
from exburn.optimizers import Adam

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


def equal(ours, theirs):
    return all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def test_the_block_of_averaged_weights_by_hand():
    model = network(averaging())
    with pytest.raises(ArgumentError, match="before training"):
        with model.averaged_weights():
            pass
    for _ in range(3):
        model.train_on_batch(X, Y)
    now = model.get_weights()
    with model.averaged_weights():
        average = model.get_weights()
    assert equal(model.get_weights(), now) and not equal(average, now)
    model.train_on_batch(X, Y)  # the state is whole
    bare = network("adam")
    bare.train_on_batch(X, Y)
    with pytest.raises(ArgumentError, match="use_ema=True"):
        with bare.averaged_weights():
            pass


def test_statistics_of_given_data_and_frozen_layers():
    model = network("adam")
    model.update_batch_statistics(X, batch_size=100)
    hidden = exburn.Model(model.input, model.layers[0].output).predict(X, verbose=0)
    norm = model.layers[1]
    np.testing.assert_allclose(norm.moving_mean, hidden.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm.moving_variance, hidden.var(0), rtol=1e-4)
    model.freeze("batch_normalization")
    model.update_batch_statistics(X * 2)
    np.testing.assert_allclose(norm.moving_mean, hidden.mean(0), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="no fit is under way"):
        network("adam").fit(X, Y, verbose=0)
        model.unfreeze()
        model.update_batch_statistics()


@pytest.mark.parametrize(
    ("make", "options", "error"),
    [
        (lambda: StochasticWeightAveraging(-1), {}, CallbackError),
        (lambda: StochasticWeightAveraging(0, every=0), {}, CallbackError),
        (lambda: StochasticWeightAveraging(2), {"epochs": 2}, CallbackError),
        (lambda: StochasticWeightAveraging(0), {"y": None}, DataError),
    ],
)
def test_what_cannot_be_averaged_is_an_error_before_training(make, options, error):
    model = network("sgd")
    before = model.get_weights()
    x = (batch for batch in [(X, Y)] * 9) if "y" in options else X
    options = {"y": Y, "steps_per_epoch": 2, "verbose": 0} | options
    with pytest.raises(error):
        model.fit(x, callbacks=[make()], **options)
    assert equal(model.get_weights(), before)
