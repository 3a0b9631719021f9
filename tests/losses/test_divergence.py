"""Tests of ``exburn.losses.divergence``."""

import numpy as np
import pytest
from tests.losses.arrays import (
    LABELS,
    LOGITS,
    PROBS,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import (
    COUNTS,
    POSITIVE,
    PROBS_TRUE,
    check_reductions_with_weights,
    check_value_and_gradient,
)
from tests.losses.reference import LABELS as LABELS_REFERENCE
from tests.losses.reference import PROBS as PROBS_REFERENCE

from exburn import losses
from exburn.errors import (
    ArgumentError,
)

EVERY = [
    (losses.CategoricalGeneralizedCrossEntropy(q=0.7), LABELS, PROBS),
    (losses.KLDivergence(), PROBS[::-1], PROBS),
    (losses.Poisson(), np.abs(LOGITS), PROBS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

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

IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(loss, y_true, y_pred):
    check_config_round_trip(loss, y_true, y_pred)


@pytest.mark.parametrize(
    "make",
    [
        lambda: losses.CategoricalGeneralizedCrossEntropy(q=1.0),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


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
