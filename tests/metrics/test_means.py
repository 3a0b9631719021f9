"""Tests of ``exburn.metrics.means``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.metrics.protocol import (
    LOGITS,
    OTHER,
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
    distance,
)
from tests.metrics.reference import REAL, ROWS, UNIT
from tests.metrics.subclasses import PROBS, check_the_state_has_the_names_of_keras

from exburn import losses, metrics
from exburn.errors import (
    ArgumentError,
)

EVERY = [
    (metrics.MeanMetricWrapper(losses.Huber(delta=0.5)), OTHER, LOGITS),
]

NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]

STATES = [
    ("Mean", (), ("total", "count"), (PROBS,)),
    ("Sum", (), ("total",), (PROBS,)),
]


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padding_has_no_effect(metric, y_true, y_pred):
    check_padding_has_no_effect(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY[::4], ids=NAMES[::4])
def test_keras_surface(metric, y_true, y_pred):
    check_keras_surface(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(metric, y_true, y_pred):
    check_config_round_trip(metric, y_true, y_pred)


def test_function_metrics_round_trip():
    config = metrics.serialize(metrics.MeanMetricWrapper(distance, name="d"))
    again = metrics.deserialize(config, {"distance": distance})
    again.update_state(OTHER, LOGITS)
    assert again.name == "d" and again.result() > 0
    known = metrics.serialize(metrics.get("huber"))
    assert metrics.deserialize(known).get_config() == known["config"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: metrics.MeanMetricWrapper("mse"),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


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


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # by Keras
@pytest.mark.parametrize(("name", "arguments", "attributes", "data"), STATES)
def test_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    check_the_state_has_the_names_of_keras(name, arguments, attributes, data)
