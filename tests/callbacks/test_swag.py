"""Tests of ``exburn.callbacks.swag``."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import SWAG, LambdaCallback
from exburn.errors import CallbackError

X = np.arange(12, dtype="float32").reshape(6, 2) / 12
Y = X.sum(1, keepdims=True)


def make():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile(exburn.optimizers.SGD(0.1), "mse", seed=0)
    return model


def test_moments_are_those_of_the_epochs():
    model, kernels = make(), []
    seen = LambdaCallback(
        on_epoch_end=lambda epoch, logs: kernels.append(model.get_weights()[0])
    )
    swag = SWAG(1, rank=2)
    model.fit(X, Y, epochs=5, verbose=0, callbacks=[seen, swag])
    late = np.array(kernels[1:])
    np.testing.assert_allclose(swag.mean[0], late.mean(0), rtol=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], late.mean(0), rtol=1e-6)
    np.testing.assert_allclose(swag.variance[0], late.var(0), rtol=1e-3, atol=1e-7)
    away = [late[i] - late[: i + 1].mean(0) for i in (2, 3)]
    np.testing.assert_allclose(swag.deviations[0], away, rtol=1e-4, atol=1e-6)


def test_the_state_of_a_run_that_goes_on():
    first, second = SWAG(0), SWAG(0)
    model = make()
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[first])
    second.load_state_dict(first.state_dict())
    assert second.averaged == first.averaged == 2
    for name in ("mean", "variance", "deviations"):
        pair = getattr(first, name), getattr(second, name)
        assert all(np.array_equal(a, b) for a, b in zip(*pair, strict=True))
    model.fit(X, Y, epochs=1, verbose=0, callbacks=[second])
    assert second.averaged == 3 and len(second.deviations[0]) == 3


def test_what_cannot_work_is_refused():
    with pytest.raises(CallbackError, match="rank"):
        SWAG(0, rank=1)
    swag = SWAG(0)
    with pytest.raises(CallbackError, match="two are needed"):
        _ = swag.mean
    make().fit(X, Y, epochs=1, verbose=0, callbacks=[swag])
    with pytest.raises(CallbackError, match="1 epochs"):
        _ = swag.deviations
