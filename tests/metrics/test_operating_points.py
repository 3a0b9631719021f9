"""Tests of ``exburn.metrics.operating_points``."""

from tests.metrics.protocol import BITS, PROBS
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import UNIT

from exburn import metrics

METRICS = [
    (metrics.PrecisionAtRecall(0.4, num_thresholds=20), BITS, PROBS),
    (metrics.RecallAtPrecision(0.3), BITS, PROBS),
    (metrics.SensitivityAtSpecificity(0.4), BITS, PROBS),
    (metrics.SpecificityAtSensitivity(0.4), BITS, PROBS),
]


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


BAD_ARGUMENTS = [
    lambda: metrics.PrecisionAtRecall(2),
]
