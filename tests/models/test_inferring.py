"""``evaluate`` and ``predict``: what they take, return and refuse."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, NotCompiledError

X = np.arange(40, dtype=np.float32).reshape(10, 4)
Y = X.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def model():
    made = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    made.set_weights([np.ones((4, 1)), np.zeros(1)])
    made.compile("sgd", "mse", metrics=["mae"])
    return made


def test_results_are_a_list_or_a_dict(model):
    values = model.evaluate(X, Y + 2, verbose=0)
    assert values == pytest.approx([4, 2], rel=1e-4)
    logs = model.evaluate(X, Y + 2, verbose=0, return_dict=True, steps=2, batch_size=3)
    assert list(logs) == ["loss", "mae"] and logs["mae"] == pytest.approx(2, rel=1e-4)


def test_predictions_are_of_numpy_and_targets_are_left_out(model):
    outputs = model.predict(X, verbose=0, batch_size=3)
    assert type(outputs) is np.ndarray
    np.testing.assert_allclose(outputs, Y, rtol=1e-6)
    batches = ((X[i : i + 5], Y[i : i + 5]) for i in (0, 5))
    np.testing.assert_array_equal(model.predict(batches, verbose=0), outputs)
    np.testing.assert_array_equal(model.predict(X, 3, 0, steps=1), outputs[:3])


def test_what_is_refused(model):
    for op, arguments in (("evaluate", (X, Y)), ("predict", (X,))):
        for options in ({"steps": 0}, {"batch_size": 0}, {"verbose": "loud"}):
            with pytest.raises(ArgumentError, match=op):
                getattr(model, op)(*arguments, **options)
    fresh = exburn.Sequential([layers.Dense(1)])
    assert fresh.predict(X, verbose=0).shape == (10, 1)  # needs no compile
    with pytest.raises(NotCompiledError, match="evaluate"):
        fresh.evaluate(X, Y)
