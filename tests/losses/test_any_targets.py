"""Tests of ``exburn.losses.any_targets``."""

import jax
import numpy as np
from tests.losses.arrays import BITS, LABELS, LOGITS, ONE_HOT, PROBS

from exburn import losses
from exburn.losses.catalogue import as_loss

LOSSES = [
    (losses.CrossEntropy(label_smoothing=0.2), LABELS, LOGITS),
    (losses.CrossEntropy(from_logits=False), ONE_HOT, PROBS),
    (losses.AutoCrossentropy(), LABELS, PROBS),
]


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


BAD_ARGUMENTS = [
    lambda: losses.CrossEntropy(from_logits="maybe"),
]
