"""Tests of the tables that the files of metrics state."""

import numpy as np
import pytest
from tests.golden import keras
from tests.metrics.protocol import (
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
)
from tests.metrics.reference import check_streams
from tests.metrics.subclasses import check_the_state_has_the_names_of_keras
from tests.metrics.with_sklearn import value
from tests.tables import table

from exburn import metrics

CASE = ("name", "options", "y_true", "y_pred")


def names(rows, step=1):
    """The rows, every one or every fourth, named by metric and number."""
    named = [pytest.param(*row, id=f"{row[0].name}-{i}") for i, row in enumerate(rows)]
    return named[::step]


@table("METRICS", "metric", "y_true", "y_pred", rows=names)
def test_padding_has_no_effect(metric, y_true, y_pred):
    check_padding_has_no_effect(metric, y_true, y_pred)


@table("METRICS", "metric", "y_true", "y_pred", rows=lambda rows: names(rows, 4))
def test_keras_surface(metric, y_true, y_pred):
    check_keras_surface(metric, y_true, y_pred)


@table("METRICS", "metric", "y_true", "y_pred", rows=names)
def test_config_round_trip(metric, y_true, y_pred):
    check_config_round_trip(metric, y_true, y_pred)


@table("MISFITS", "metric", "y_true", "y_pred", "error")
def test_misfits_are_errors(metric, y_true, y_pred, error):
    with pytest.raises(error) as caught:
        metric.build(y_true, y_pred)
    assert len(str(caught.value).splitlines()) <= 12


def weighted_and_not(cases):
    """All with weights, and every third metric without."""
    kinds = list({case[0]: case for case in cases}.values())[::3]
    rows = [(*case, True) for case in cases] + [(*case, False) for case in kinds]
    return [pytest.param(*row, id=f"{row[0]}----") for row in rows]


@table("CASES", *CASE, "weighted", rows=weighted_and_not)
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras' own
def test_streams(name, options, y_true, y_pred, weighted):
    check_streams(name, options, y_true, y_pred, weighted)


@table("WEIGHTED", "metric", "y_true", "y_pred", "expected")
def test_weighted_streams(metric, y_true, y_pred, expected):
    np.testing.assert_allclose(value(metric, y_true, y_pred), expected(), rtol=2e-5)


@table("STATES", "name", "arguments", "attributes", "data")
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # by Keras
def test_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    check_the_state_has_the_names_of_keras(name, arguments, attributes, data)


@table("FUNCTIONS", "name", "y_true", "y_pred", "options")
def test_functions(name, y_true, y_pred, options, golden):
    expected = golden(lambda: getattr(keras.metrics, name)(y_true, y_pred, **options))
    values = getattr(metrics, name)(y_true, y_pred, **options)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
