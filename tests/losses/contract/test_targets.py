"""Tests of ``exburn.losses.contract.targets``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.losses.arrays import (
    BITS,
    FRAMES,
    LABELS,
    LOGITS,
    ONE_HOT,
    PROBS,
    SEQUENCES,
    UNIT_ROWS,
)

from exburn import losses
from exburn.errors import TargetError
from exburn.losses.catalogue import as_loss

EVERY = [
    (losses.BinaryCrossentropy(label_smoothing=0.1), BITS, PROBS),
    (losses.BinaryCrossentropy(from_logits=True), BITS, LOGITS),
    (losses.BinaryFocalCrossentropy(gamma=1.5, alpha=0.3), BITS, PROBS),
    (losses.CategoricalCrossentropy(from_logits=True), ONE_HOT, LOGITS),
    (losses.CategoricalCrossentropy(), ONE_HOT, PROBS),
    (losses.CategoricalFocalCrossentropy(gamma=0.5), ONE_HOT, PROBS),
    (losses.CategoricalGeneralizedCrossEntropy(q=0.7), LABELS, PROBS),
    (losses.SparseCategoricalCrossentropy(from_logits=True), LABELS, LOGITS),
    (losses.SparseCategoricalCrossentropy(ignore_class=2), LABELS, PROBS),
    (losses.CrossEntropy(label_smoothing=0.2), LABELS, LOGITS),
    (losses.CrossEntropy(from_logits=False), ONE_HOT, PROBS),
    (losses.AutoCrossentropy(), LABELS, PROBS),
    (losses.CategoricalHinge(), ONE_HOT, LOGITS),
    (losses.Hinge(), BITS, LOGITS),
    (losses.SquaredHinge(), BITS, LOGITS),
    (losses.KLDivergence(), PROBS[::-1], PROBS),
    (losses.Poisson(), np.abs(LOGITS), PROBS),
    (losses.MeanSquaredError(), PROBS, LOGITS),
    (losses.MeanAbsoluteError(), PROBS, LOGITS),
    (losses.MeanAbsolutePercentageError(), PROBS, LOGITS),
    (losses.MeanSquaredLogarithmicError(), PROBS, np.abs(LOGITS)),
    (losses.Huber(delta=0.5), PROBS, LOGITS),
    (losses.LogCosh(), PROBS, LOGITS),
    (losses.CosineSimilarity(axis=1), PROBS, LOGITS),
    (losses.Dice(), BITS, PROBS),
    (losses.Dice(axis=(1,)), BITS, PROBS),
    (losses.Tversky(alpha=0.3, beta=0.6), BITS, PROBS),
    (losses.Circle(gamma=8.0, margin=0.3), LABELS, UNIT_ROWS),
    (losses.CTC(), SEQUENCES, FRAMES),
    (losses.FunctionLoss(lambda t, p: jnp.abs(t - p), name="l1"), PROBS, LOGITS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

NAN = float("nan")

BAD_TARGETS = [
    ("sparse_categorical_crossentropy", [0, 1, 3], (3, 3), 3, 2),
    ("sparse_categorical_crossentropy", [0, -1, 2], (3, 3), -1, 1),
    ("sparse_categorical_crossentropy", [0.0, 0.5, 2.0], (3, 3), 0.5, 1),
    ("sparse_categorical_crossentropy", [0.0, NAN], (2, 3), NAN, 1),
    ("cross_entropy", [[0, 1], [2, 9]], (2, 2, 3), 9, 1),
    ("cross_entropy", [[0.0, 1.0], [0.0, 2.0]], (2, 2), 2, 1),
    ("categorical_crossentropy", [[0.0, 1.5]], (1, 2), 1.5, 0),
    ("binary_crossentropy", [[0], [1], [2]], (3, 1), 2, 2),
    ("binary_crossentropy", [[0.0], [NAN]], (2, 1), NAN, 1),
    ("crossentropy", [0, 1, -1], (3, 1), -1, 2),
    ("crossentropy", [0, 1, 5], (3, 4), 5, 2),
    ("hinge", [[0.0], [1.0], [-1.0]], (3, 1), -1, 2),
    ("poisson", [[1.0], [-2.0]], (2, 1), -2, 1),
    ("msle", [[1.0], [-2.0]], (2, 1), -2, 1),
    ("kl_divergence", [[1.0, -2.0]], (1, 2), -2, 0),
    ("dice", [[0.0, 255.0]], (1, 2), 255, 0),
]


@pytest.mark.parametrize(("name", "y_true", "shape", "value", "row"), BAD_TARGETS)
def test_bad_targets_are_named(name, y_true, shape, value, row):
    pred = jax.ShapeDtypeStruct(shape, "float32")
    with pytest.raises(TargetError) as caught:
        as_loss(name).check_targets(np.asarray(y_true), pred)
    found = caught.value.details
    np.testing.assert_equal(found["first offending value"], value)
    assert found["row"] == row


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_good_targets_pass(loss, y_true, y_pred):
    loss.check_targets(y_true, y_pred)
