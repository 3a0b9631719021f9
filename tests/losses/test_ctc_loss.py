"""Tests of ``exburn.losses.ctc_loss``."""

import jax
import numpy as np
import pytest
from tests.losses.arrays import FRAMES, SEQUENCES
from tests.losses.reference import FRAMES as FRAMES_REFERENCE
from tests.losses.reference import SEQUENCES as SEQUENCES_REFERENCE

from exburn import losses
from exburn.errors import TargetError

LOSSES = [
    (losses.CTC(), SEQUENCES, FRAMES),
]


CASES = [
    ("CTC", {}, SEQUENCES_REFERENCE, FRAMES_REFERENCE),
]


@pytest.mark.parametrize(
    ("labels", "steps", "reason"),
    [
        ([[1, 0, 2]], 9, "pad"),
        ([[1, 1, 1]], 4, "time steps"),
        ([[1, 2, 3]], 9, "whole numbers"),
    ],
)
def test_sequences_are_checked(labels, steps, reason):
    pred = jax.ShapeDtypeStruct((1, steps, 3), "float32")
    with pytest.raises(TargetError, match=reason):
        losses.CTC().check_targets(np.array(labels), pred)
