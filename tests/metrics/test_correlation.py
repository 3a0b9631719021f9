"""Tests of ``exburn.metrics.correlation``."""

import numpy as np
from scipy import stats
from tests.metrics.protocol import LOGITS, OTHER, spec
from tests.metrics.reference import REAL, REAL_2
from tests.metrics.with_sklearn import GUESS, N, rng
from tests.metrics.with_sklearn import REAL as REAL_SKLEARN

from exburn import metrics
from exburn.errors import ShapeError

METRICS = [
    (metrics.PearsonCorrelation(), OTHER, LOGITS),
    (metrics.PearsonCorrelation(axis=0), OTHER, LOGITS),
    (metrics.ConcordanceCorrelation(axis=0), OTHER, LOGITS),
]


MISFITS = [
    (metrics.PearsonCorrelation(), spec("b", 1), spec("b", 1), ShapeError),
]

CASES = [
    ("PearsonCorrelation", {}, REAL, REAL_2),
    ("ConcordanceCorrelation", {}, REAL, REAL_2),
]


def test_correlation_of_constants_is_zero():
    value = metrics.pearson_correlation(np.ones((1, 3)), OTHER[:1])
    assert value.tolist() == [0]


FUNCTIONS = [
    ("pearson_correlation", REAL[0], REAL_2[0], {}),
    ("concordance_correlation", REAL[0], REAL_2[0], {"axis": 0}),
]


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
