"""Tests of ``exburn.losses.regression``."""

import numpy as np
from tests.losses.arrays import LOGITS, PROBS
from tests.losses.reference import POSITIVE, REAL, REAL_TRUE

from exburn import losses

LOSSES = [
    (losses.MeanSquaredError(), PROBS, LOGITS),
    (losses.MeanAbsoluteError(), PROBS, LOGITS),
    (losses.MeanAbsolutePercentageError(), PROBS, LOGITS),
    (losses.MeanSquaredLogarithmicError(), PROBS, np.abs(LOGITS)),
    (losses.Huber(delta=0.5), PROBS, LOGITS),
    (losses.LogCosh(), PROBS, LOGITS),
    (losses.CosineSimilarity(axis=1), PROBS, LOGITS),
]


CASES = [
    ("MeanSquaredError", {}, REAL_TRUE, REAL),
    ("MeanAbsoluteError", {}, REAL_TRUE, REAL),
    ("MeanAbsolutePercentageError", {}, POSITIVE, REAL),
    ("MeanSquaredLogarithmicError", {}, POSITIVE, REAL),
    ("Huber", {}, REAL_TRUE, REAL),
    ("Huber", {"delta": 0.3}, REAL_TRUE, REAL),
    ("LogCosh", {}, REAL_TRUE, REAL * 10),
    ("CosineSimilarity", {}, REAL_TRUE, REAL),
]


BAD_ARGUMENTS = [
    lambda: losses.Huber(delta=0),
]
