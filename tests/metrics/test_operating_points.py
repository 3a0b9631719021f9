"""Tests of ``exburn.metrics.operating_points``."""

import pytest
from tests.metrics.protocol import (
    BITS,
    PROBS,
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
)
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import UNIT, check_streams

from exburn import metrics
from exburn.errors import (
    ArgumentError,
)

EVERY = [
    (metrics.PrecisionAtRecall(0.4, num_thresholds=20), BITS, PROBS),
    (metrics.RecallAtPrecision(0.3), BITS, PROBS),
    (metrics.SensitivityAtSpecificity(0.4), BITS, PROBS),
    (metrics.SpecificityAtSensitivity(0.4), BITS, PROBS),
]

NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]

CASES = [
    ("PrecisionAtRecall", {"recall": 0.6}, BITS_REFERENCE, UNIT),
    (
        "RecallAtPrecision",
        {"precision": 0.6, "num_thresholds": 11},
        BITS_REFERENCE,
        UNIT,
    ),
    ("SensitivityAtSpecificity", {"specificity": 0.6}, BITS_REFERENCE, UNIT),
    (
        "SensitivityAtSpecificity",
        {"specificity": 0.2, "num_thresholds": 1},
        BITS_REFERENCE,
        UNIT,
    ),
    (
        "SpecificityAtSensitivity",
        {"sensitivity": 0.6, "class_id": 0},
        BITS_REFERENCE,
        UNIT,
    ),
]

UNWEIGHTED = list({case[0]: case for case in CASES}.values())[::3]  # of each kind one


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padding_has_no_effect(metric, y_true, y_pred):
    check_padding_has_no_effect(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY[::4], ids=NAMES[::4])
def test_keras_surface(metric, y_true, y_pred):
    check_keras_surface(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(metric, y_true, y_pred):
    check_config_round_trip(metric, y_true, y_pred)


@pytest.mark.parametrize(
    "make",
    [
        lambda: metrics.PrecisionAtRecall(2),
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
