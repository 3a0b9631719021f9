"""Tests of ``exburn.metrics.means``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.metrics.protocol import LOGITS, OTHER, distance
from tests.metrics.reference import REAL, ROWS, UNIT
from tests.metrics.subclasses import PROBS

from exburn import losses, metrics

METRICS = [
    (metrics.MeanMetricWrapper(losses.Huber(delta=0.5)), OTHER, LOGITS),
]


STATES = [
    ("Mean", (), ("total", "count"), (PROBS,)),
    ("Sum", (), ("total",), (PROBS,)),
]


def test_function_metrics_round_trip():
    config = metrics.serialize(metrics.MeanMetricWrapper(distance, name="d"))
    again = metrics.deserialize(config, {"distance": distance})
    again.update_state(OTHER, LOGITS)
    assert again.name == "d" and again.result() > 0
    known = metrics.serialize(metrics.get("huber"))
    assert metrics.deserialize(known).get_config() == known["config"]


BAD_ARGUMENTS = [
    lambda: metrics.MeanMetricWrapper("mse"),
]


@pytest.mark.parametrize("weights", [None, ROWS, UNIT], ids=["none", "rows", "entries"])
@pytest.mark.parametrize("name", ["Mean", "Sum"])
def test_reductions(name, weights, golden):
    def compute(module):
        metric = getattr(module, name)()
        for i, values in enumerate(REAL):
            weight = None if weights is None else weights[i]
            if name == "Sum" and weights is ROWS:
                weight = weight[:, None]
            metric.update_state(values, sample_weight=weight)
        return metric.result()

    theirs = golden(lambda: compute(keras.metrics))
    np.testing.assert_allclose(compute(metrics), theirs, rtol=1e-5)


def test_sequences_with_weights_for_each_step(golden):
    rng = np.random.default_rng(2)
    labels, scores = rng.integers(0, 4, (3, 6)), rng.normal(size=(3, 6, 4))
    weight = rng.uniform(size=(3, 6)).astype("float32")

    def compute(module):
        metric = module.SparseCategoricalAccuracy()
        metric.update_state(labels, scores, weight)
        return metric.result()

    theirs = golden(lambda: compute(keras.metrics))
    np.testing.assert_allclose(compute(metrics), theirs, rtol=1e-6)
