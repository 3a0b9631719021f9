"""Tests of ``exburn.metrics.auc``."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.metrics.protocol import (
    BITS,
    PROBS,
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
    spec,
)
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import (
    BITS_1,
    BITS_FLAT,
    REAL,
    UNIT,
    UNIT_1,
    UNIT_FLAT,
    check_streams,
)
from tests.metrics.subclasses import BITS as BITS_SUBCLASSES
from tests.metrics.subclasses import PROBS as PROBS_SUBCLASSES
from tests.metrics.subclasses import check_the_state_has_the_names_of_keras
from tests.metrics.with_sklearn import BITS as BITS_SKLEARN
from tests.metrics.with_sklearn import SCORES, value, weighted

from exburn import metrics
from exburn.errors import (
    ArgumentError,
    ShapeError,
)

EVERY = [
    (metrics.AUC(curve="PR", thresholds=[0.2, 0.4, 0.5]), BITS, PROBS),
    (metrics.AUC(multi_label=True, label_weights=[1.0, 2.0, 3.0]), BITS, PROBS),
]

NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]

MISFITS = [
    (metrics.AUC(), spec("b", 1), spec("b", 3), ShapeError),
    (metrics.AUC(multi_label=True), spec("b"), spec("b"), ShapeError),
    (metrics.AUC(label_weights=[1, 2]), spec("b", 3), spec("b", 3), ShapeError),
]

CASES = [
    ("AUC", {}, BITS_FLAT, UNIT_FLAT),
    ("AUC", {"curve": "PR"}, BITS_1, UNIT_1),
    ("AUC", {"curve": "PRGAIN"}, BITS_REFERENCE, UNIT),
    ("AUC", {"curve": "PR", "summation_method": "minoring"}, BITS_REFERENCE, UNIT),
    (
        "AUC",
        {"summation_method": "majoring", "from_logits": True},
        BITS_REFERENCE,
        REAL,
    ),
    ("AUC", {"thresholds": [0.1, 0.25, 0.9]}, BITS_REFERENCE, UNIT),
    ("AUC", {"multi_label": True, "num_labels": 4}, BITS_REFERENCE, UNIT),
    ("AUC", {"multi_label": True, "curve": "PR"}, BITS_REFERENCE, UNIT),
    (
        "AUC",
        {"multi_label": True, "num_labels": 4, "label_weights": [1.0, 2.0, 0.0, 3.0]},
        BITS_REFERENCE,
        UNIT,
    ),
    ("AUC", {"label_weights": [1.0, 2.0, 0.0, 3.0]}, BITS_REFERENCE, UNIT),
]

UNWEIGHTED = list({case[0]: case for case in CASES}.values())[::3]  # of each kind one

CASES_SKLEARN = {
    "auc": (  # scores are multiples of 1/100: thresholds between them are exact
        metrics.AUC(thresholds=(np.arange(100) + 0.5) / 100),
        BITS_SKLEARN,
        SCORES,
        lambda: weighted(sk.roc_auc_score, BITS_SKLEARN, SCORES),
    ),
}

STATES = [
    (
        "AUC",
        (5,),
        ("true_positives", "true_negatives"),
        (BITS_SUBCLASSES, PROBS_SUBCLASSES),
    ),
]


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
        lambda: metrics.AUC(num_thresholds=1),
        lambda: metrics.AUC(curve="lift"),
        lambda: metrics.AUC(num_labels=3),
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


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # by Keras
@pytest.mark.parametrize(("name", "arguments", "attributes", "data"), STATES)
def test_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    check_the_state_has_the_names_of_keras(name, arguments, attributes, data)
