"""Tests of ``exburn.metrics.contract.variable``."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn import metrics
from exburn.errors import NotBuiltError, ShapeError


def test_variables_behave_like_arrays():
    metric = metrics.Sum()
    (total,) = metric.variables
    metric.update_state([3.0])
    assert float(total) == 3 and int(total) == 3 and bool(total)
    assert (total + 1, 1 - total, total / 2, -total) == (4, -2, 1.5, -3)
    assert jnp.asarray(total) == 3 and np.asarray(total) == 3
    assert total > 2 and total <= 3
    total.assign_sub(1)
    assert metric.result() == 2
    with pytest.raises(ShapeError):
        total.assign(np.ones(3))


def test_not_initialized():
    class Forgot(metrics.Metric):
        def __init__(self):
            self.add_variable()

    with pytest.raises(NotBuiltError, match="super"):
        Forgot()
    with pytest.raises(NotImplementedError, match="update"):
        metrics.Metric().update_state(1, 2)
