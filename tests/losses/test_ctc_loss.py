"""Tests of ``exburn.losses.ctc_loss``."""

import jax
import numpy as np
import pytest
from tests.losses.arrays import (
    FRAMES,
    SEQUENCES,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import FRAMES as FRAMES_REFERENCE
from tests.losses.reference import SEQUENCES as SEQUENCES_REFERENCE
from tests.losses.reference import (
    check_reductions_with_weights,
    check_value_and_gradient,
)

from exburn import losses
from exburn.errors import TargetError

EVERY = [
    (losses.CTC(), SEQUENCES, FRAMES),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

CASES = [
    ("CTC", {}, SEQUENCES_REFERENCE, FRAMES_REFERENCE),
]

IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


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


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(loss, y_true, y_pred):
    check_config_round_trip(loss, y_true, y_pred)


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    CASES,
    ids=IDS,
)
def test_value_and_gradient(name, options, y_true, y_pred):
    check_value_and_gradient(name, options, y_true, y_pred)


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    # Those that mask by themselves: see test_masks.
    [case for case in CASES if "ignore_class" not in case[1] and case[0] != "Circle"],
)
def test_reductions_with_weights(name, options, y_true, y_pred):
    check_reductions_with_weights(name, options, y_true, y_pred)
