"""Tests of ``exburn.metrics.contract.base``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.metrics.protocol import BITS, LOGITS, OTHER, PROBS, N, spec

from exburn import metrics
from exburn.errors import ArgumentError, NotBuiltError, ShapeError


def test_pure_functions_map_over_many_streams():
    metric = metrics.AUC(num_thresholds=50)
    many = jnp.stack([PROBS, PROBS[::-1]])
    update = lambda p: metric.update(metric.init(), BITS, p)  # noqa: E731
    states = jax.vmap(update)(many)
    values = jax.vmap(metric.compute)(states)
    expected = [metric.compute(update(p)) for p in many]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_symbolic_sizes_are_no_misfit():
    metric = metrics.SparseCategoricalAccuracy()
    metric.build(spec("b", "t", dtype="int32"), spec("b", "t", 5))
    metric = metrics.MeanSquaredError()
    metric.build(spec("b", "t"), spec("b", 12))  # t may well be 12


def test_states_that_need_shapes():
    for metric in (metrics.F1Score(), metrics.R2Score(), metrics.AUC(multi_label=True)):
        with pytest.raises(NotBuiltError):
            metric.init()
    with pytest.raises(ShapeError, match="sample_weight"):
        metrics.MeanSquaredError().update_state(OTHER, LOGITS, np.ones(N - 1))


def test_update_state_without_weights():
    class Last(metrics.Metric):
        def __init__(self):
            super().__init__()
            self.value = self.add_variable()

        def update_state(self, y_true, y_pred):
            self.value.assign(y_pred[-1])

        def result(self):
            return self.value.value

    metric = Last()
    assert metric.per_sample is False
    assert metric.compute(metric.update(metric.init(), None, jnp.arange(3.0))) == 2
    with pytest.raises(ArgumentError, match="sample_weight=None"):
        metric.update(metric.init(), np.ones(2), np.ones(2), sample_weight=np.ones(2))
