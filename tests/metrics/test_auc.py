"""Tests of ``exburn.metrics.auc``."""

import numpy as np
from sklearn import metrics as sk
from tests.metrics.protocol import BITS, PROBS, spec
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import BITS_1, BITS_FLAT, REAL, UNIT, UNIT_1, UNIT_FLAT
from tests.metrics.subclasses import BITS as BITS_SUBCLASSES
from tests.metrics.subclasses import PROBS as PROBS_SUBCLASSES
from tests.metrics.with_sklearn import BITS as BITS_SKLEARN
from tests.metrics.with_sklearn import SCORES, weighted

from exburn import metrics
from exburn.errors import ShapeError

METRICS = [
    (metrics.AUC(curve="PR", thresholds=[0.2, 0.4, 0.5]), BITS, PROBS),
    (metrics.AUC(multi_label=True, label_weights=[1.0, 2.0, 3.0]), BITS, PROBS),
]


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


WEIGHTED = {
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


BAD_ARGUMENTS = [
    lambda: metrics.AUC(num_thresholds=1),
    lambda: metrics.AUC(curve="lift"),
    lambda: metrics.AUC(num_labels=3),
]
