"""Where the time of a training step goes."""

import numpy as np
import pytest
from tests.elixir.gradients.models import X, Y, model

import exburn
from exburn import layers


@pytest.mark.long
def test_profile_step_changes_nothing():
    made = model(layers.Dense(5, "tanh"))
    before = made.get_weights()
    found = exburn.profile_step(made, (X, Y), warmup=1, runs=2)
    assert found.keys() == {
        *("forward_ms", "backward_ms", "optimizer_ms", "total_ms", "loss")
    }
    assert found["loss"] == pytest.approx(made.evaluate(X, Y, verbose=0), rel=1e-5)
    assert found["forward_ms"] > 0 and found["total_ms"] > 0
    for a, b in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert made.optimizer.iterations == 0
