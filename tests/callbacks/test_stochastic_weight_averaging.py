"""Tests of ``exburn.callbacks.stochastic_weight_averaging``."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import LambdaCallback, StochasticWeightAveraging
from exburn.errors import CallbackError

X = np.arange(12, dtype="float32").reshape(6, 2) / 12
Y = X.sum(1, keepdims=True)


def make(rate=0.1):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile(exburn.optimizers.SGD(rate), "mse", seed=0)
    return model


@pytest.mark.parametrize(("every", "counted"), [(1, [2, 3, 4]), (2, [2, 4])])
def test_the_model_ends_with_the_mean_of_the_last_epochs(every, counted):
    model, kernels = make(), []
    seen = LambdaCallback(
        on_epoch_end=lambda epoch, logs: kernels.append(model.get_weights()[0])
    )
    averaging = StochasticWeightAveraging(2, every=every)
    model.fit(X, Y, epochs=5, verbose=0, callbacks=[seen, averaging])
    assert averaging.averaged == len(counted)
    mean = np.mean([kernels[i] for i in counted], axis=0)
    np.testing.assert_allclose(model.get_weights()[0], mean, rtol=1e-6)


def test_its_own_rate_holds_from_the_first_epoch_that_counts():
    model, rates = make(), []
    seen = LambdaCallback(
        on_epoch_end=lambda *_: rates.append(float(model.optimizer.learning_rate))
    )
    averaging = StochasticWeightAveraging(1, learning_rate=0.5)
    model.fit(X, Y, epochs=3, verbose=0, callbacks=[averaging, seen])
    assert rates == pytest.approx([0.1, 0.5, 0.5])


def test_the_state_of_a_run_that_goes_on():
    first = StochasticWeightAveraging(0)
    model = make()
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[first])
    second = StochasticWeightAveraging(0)
    second.load_state_dict(first.state_dict())
    assert second.averaged == 2
    np.testing.assert_array_equal(
        second.state_dict()["mean"][0], first.state_dict()["mean"][0]
    )


def test_what_cannot_work_is_refused():
    for options in ({"start_epoch": -1}, {"start_epoch": 1.5}):
        with pytest.raises(CallbackError, match="start_epoch"):
            StochasticWeightAveraging(**options)
    with pytest.raises(CallbackError, match="every"):
        StochasticWeightAveraging(1, every=0)
    with pytest.raises(CallbackError, match="below epochs"):
        make().fit(X, Y, epochs=2, verbose=0, callbacks=[StochasticWeightAveraging(2)])
    schedule = exburn.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    averaging = StochasticWeightAveraging(0, learning_rate=0.1)
    with pytest.raises(CallbackError, match="schedule"):
        make(schedule).fit(X, Y, epochs=1, verbose=0, callbacks=[averaging])
