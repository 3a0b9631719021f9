"""Tests of ``exburn.metrics.correlation``."""

import numpy as np
import pytest
from scipy import stats
from tests.golden import keras
from tests.metrics.protocol import (
    LOGITS,
    OTHER,
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
    spec,
)
from tests.metrics.reference import REAL, REAL_2, check_streams
from tests.metrics.with_sklearn import GUESS, N, rng
from tests.metrics.with_sklearn import REAL as REAL_SKLEARN

from exburn import metrics
from exburn.errors import (
    ShapeError,
)

EVERY = [
    (metrics.PearsonCorrelation(), OTHER, LOGITS),
    (metrics.PearsonCorrelation(axis=0), OTHER, LOGITS),
    (metrics.ConcordanceCorrelation(axis=0), OTHER, LOGITS),
]

NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]

MISFITS = [
    (metrics.PearsonCorrelation(), spec("b", 1), spec("b", 1), ShapeError),
]

CASES = [
    ("PearsonCorrelation", {}, REAL, REAL_2),
    ("ConcordanceCorrelation", {}, REAL, REAL_2),
]

UNWEIGHTED = list({case[0]: case for case in CASES}.values())[::3]  # of each kind one


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padding_has_no_effect(metric, y_true, y_pred):
    check_padding_has_no_effect(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY[::4], ids=NAMES[::4])
def test_keras_surface(metric, y_true, y_pred):
    check_keras_surface(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred", "error"), MISFITS)
def test_misfits_are_errors(metric, y_true, y_pred, error):
    with pytest.raises(error) as caught:
        metric.build(y_true, y_pred)
    assert len(str(caught.value).splitlines()) <= 12


def test_correlation_of_constants_is_zero():
    value = metrics.pearson_correlation(np.ones((1, 3)), OTHER[:1])
    assert value.tolist() == [0]


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(metric, y_true, y_pred):
    check_config_round_trip(metric, y_true, y_pred)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras' own
@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred", "weighted"),
    [(*case, True) for case in CASES] + [(*case, False) for case in UNWEIGHTED],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_streams(name, options, y_true, y_pred, weighted):
    check_streams(name, options, y_true, y_pred, weighted)


@pytest.mark.parametrize(
    ("name", "y_true", "y_pred", "options"),
    [
        ("pearson_correlation", REAL[0], REAL_2[0], {}),
        ("concordance_correlation", REAL[0], REAL_2[0], {"axis": 0}),
    ],
)
def test_functions(name, y_true, y_pred, options, golden):
    function = lambda: getattr(keras.metrics, name)  # noqa: E731
    expected = golden(lambda: function()(y_true, y_pred, **options))
    value = getattr(metrics, name)(y_true, y_pred, **options)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_pearson_over_the_batch():
    metric = metrics.PearsonCorrelation(axis=0)
    metric.update_state(REAL_SKLEARN[:, 0], GUESS[:, 0])
    expected = stats.pearsonr(REAL_SKLEARN[:, 0], GUESS[:, 0]).statistic
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
    repeats = rng.integers(0, 4, N)
    metric.reset_state()
    metric.update_state(REAL_SKLEARN[:, 0], GUESS[:, 0], repeats)
    expected = stats.pearsonr(
        *(np.repeat(x[:, 0], repeats) for x in (REAL_SKLEARN, GUESS))
    ).statistic
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
