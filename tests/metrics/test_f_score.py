"""Tests of ``exburn.metrics.f_score``."""

import numpy as np
from sklearn import metrics as sk
from tests.metrics.protocol import BITS, ONE_HOT, PROBS, spec
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import ONE_HOT as ONE_HOT_REFERENCE
from tests.metrics.reference import PROBS as PROBS_REFERENCE
from tests.metrics.reference import UNIT
from tests.metrics.with_sklearn import CHOSEN, LABELS, weighted
from tests.metrics.with_sklearn import PROBS as PROBS_SKLEARN

from exburn import metrics
from exburn.errors import ShapeError

METRICS = [
    (metrics.F1Score(average="macro"), ONE_HOT, PROBS),
    (metrics.FBetaScore(beta=2.0, threshold=0.3), BITS, PROBS),
]


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


WEIGHTED = {
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


BAD_ARGUMENTS = [
    lambda: metrics.F1Score(average="mean"),
    lambda: metrics.FBetaScore(beta=0.0),
    lambda: metrics.F1Score(threshold=0),
]
