"""The metrics of ``compile`` as one metric."""

import numpy as np
import pytest

import exburn
from exburn.errors import NotBuiltError

X = np.ones((4, 2), np.float32)


def test_it_has_the_metrics_once_a_batch_told_whose_they_are():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mse"])
    whole = next(m for m in model.metrics if m.name == "compile_metrics")
    assert not whole.built and whole.metrics == [] and whole.variables == []
    with pytest.raises(NotBuiltError, match="update_state"):
        whole.result()
    y, predicted = np.zeros((4, 1)), np.array([[1.0], [1], [1], [3]], np.float32)
    whole.update_state(y, predicted, np.array([1.0, 1, 1, 0]))
    assert whole.built and len(whole.metrics) == 2
    found = {name: float(value) for name, value in whole.result().items()}
    assert list(found.values()) == [1.5, 1.0]  # weights are for weighted_metrics
    whole.update_state(y[:2], predicted[2:])  # of another size
    assert float(next(iter(whole.result().values()))) == pytest.approx(10 / 6)
