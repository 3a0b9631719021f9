"""Tests of ``exburn.losses.any_targets``."""

import jax
import numpy as np
import pytest
from tests.losses.arrays import (
    BITS,
    LABELS,
    LOGITS,
    ONE_HOT,
    PROBS,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)

from exburn import losses
from exburn.errors import (
    ArgumentError,
)
from exburn.losses.catalogue import as_loss

EVERY = [
    (losses.CrossEntropy(label_smoothing=0.2), LABELS, LOGITS),
    (losses.CrossEntropy(from_logits=False), ONE_HOT, PROBS),
    (losses.AutoCrossentropy(), LABELS, PROBS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


def test_cross_entropy_takes_both_kinds_of_targets():
    for smoothing in (0.0, 0.3):
        loss = losses.CrossEntropy(label_smoothing=smoothing)
        np.testing.assert_allclose(
            loss(LABELS, LOGITS), loss(ONE_HOT, LOGITS), rtol=1e-6
        )
        probable = loss.with_from_logits(False)
        softmax = jax.nn.softmax(LOGITS)
        np.testing.assert_allclose(
            probable(LABELS, softmax), loss(LABELS, LOGITS), rtol=1e-5
        )
        np.testing.assert_allclose(
            probable(ONE_HOT, softmax), probable(LABELS, softmax), rtol=1e-6
        )
    assert loss.from_logits == "auto"


def test_named_crossentropy_looks_at_the_shapes():
    for name in ("crossentropy", "ce"):
        loss = as_loss(name)
        bits = BITS[:, :1]
        np.testing.assert_allclose(
            loss(bits, PROBS[:, :1]), losses.BinaryCrossentropy()(bits, PROBS[:, :1])
        )
        np.testing.assert_allclose(loss(LABELS, PROBS), loss(ONE_HOT, PROBS))


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(loss, y_true, y_pred):
    check_config_round_trip(loss, y_true, y_pred)


@pytest.mark.parametrize(
    "make",
    [
        lambda: losses.CrossEntropy(from_logits="maybe"),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()
