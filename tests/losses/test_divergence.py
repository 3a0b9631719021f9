"""Tests of ``exburn.losses.divergence``."""

import numpy as np
from tests.losses.arrays import LABELS, LOGITS, PROBS
from tests.losses.reference import COUNTS, POSITIVE, PROBS_TRUE
from tests.losses.reference import LABELS as LABELS_REFERENCE
from tests.losses.reference import PROBS as PROBS_REFERENCE

from exburn import losses

LOSSES = [
    (losses.CategoricalGeneralizedCrossEntropy(q=0.7), LABELS, PROBS),
    (losses.KLDivergence(), PROBS[::-1], PROBS),
    (losses.Poisson(), np.abs(LOGITS), PROBS),
]


CASES = [
    ("KLDivergence", {}, PROBS_TRUE, PROBS_REFERENCE),
    ("Poisson", {}, COUNTS, POSITIVE),
    ("CategoricalGeneralizedCrossEntropy", {}, LABELS_REFERENCE, PROBS_REFERENCE),
    (
        "CategoricalGeneralizedCrossEntropy",
        {"q": 0.8},
        LABELS_REFERENCE,
        PROBS_REFERENCE,
    ),
]


BAD_ARGUMENTS = [
    lambda: losses.CategoricalGeneralizedCrossEntropy(q=1.0),
]
