"""Tests of ``exburn.metrics.f_score``."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.metrics.protocol import (
    BITS,
    ONE_HOT,
    PROBS,
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
    spec,
)
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import ONE_HOT as ONE_HOT_REFERENCE
from tests.metrics.reference import PROBS as PROBS_REFERENCE
from tests.metrics.reference import UNIT, check_streams
from tests.metrics.with_sklearn import CHOSEN, LABELS, value, weighted
from tests.metrics.with_sklearn import PROBS as PROBS_SKLEARN

from exburn import metrics
from exburn.errors import (
    ArgumentError,
    ShapeError,
)

EVERY = [
    (metrics.F1Score(average="macro"), ONE_HOT, PROBS),
    (metrics.FBetaScore(beta=2.0, threshold=0.3), BITS, PROBS),
]

NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]

MISFITS = [
    (metrics.F1Score(), spec("b"), spec("b", 3), ShapeError),
    (metrics.F1Score(), spec("b", 3, 3), spec("b", 3, 3), ShapeError),
]

CASES = [
    ("F1Score", {}, ONE_HOT_REFERENCE, PROBS_REFERENCE),
    ("F1Score", {"threshold": 0.4, "average": "macro"}, BITS_REFERENCE, UNIT),
    (
        "FBetaScore",
        {"beta": 2.0, "average": "micro", "threshold": 0.4},
        BITS_REFERENCE,
        UNIT,
    ),
    (
        "FBetaScore",
        {"beta": 0.5, "average": "weighted"},
        ONE_HOT_REFERENCE,
        PROBS_REFERENCE,
    ),
]

UNWEIGHTED = list({case[0]: case for case in CASES}.values())[::3]  # of each kind one

CASES_SKLEARN = {
    "f1": (
        metrics.F1Score(),
        np.eye(3)[LABELS],
        PROBS_SKLEARN,
        lambda: weighted(sk.f1_score, LABELS, CHOSEN, average=None),
    ),
    "f1_macro": (
        metrics.F1Score(average="macro"),
        np.eye(3)[LABELS],
        PROBS_SKLEARN,
        lambda: weighted(sk.f1_score, LABELS, CHOSEN, average="macro"),
    ),
    "f2_weighted": (
        metrics.FBetaScore(beta=2.0, average="weighted"),
        np.eye(3)[LABELS],
        PROBS_SKLEARN,
        lambda: weighted(sk.fbeta_score, LABELS, CHOSEN, beta=2, average="weighted"),
    ),
    "f1_micro": (
        metrics.F1Score(average="micro"),
        np.eye(3)[LABELS],
        PROBS_SKLEARN,
        lambda: weighted(sk.f1_score, LABELS, CHOSEN, average="micro"),
    ),
}


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


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(metric, y_true, y_pred):
    check_config_round_trip(metric, y_true, y_pred)


@pytest.mark.parametrize(
    "make",
    [
        lambda: metrics.F1Score(average="mean"),
        lambda: metrics.FBetaScore(beta=0.0),
        lambda: metrics.F1Score(threshold=0),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras' own
@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred", "weighted"),
    [(*case, True) for case in CASES] + [(*case, False) for case in UNWEIGHTED],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_streams(name, options, y_true, y_pred, weighted):
    check_streams(name, options, y_true, y_pred, weighted)


@pytest.mark.parametrize("name", CASES_SKLEARN)
def test_weighted_streams(name):
    metric, y_true, y_pred, expected = CASES_SKLEARN[name]
    np.testing.assert_allclose(value(metric, y_true, y_pred), expected(), rtol=2e-5)
