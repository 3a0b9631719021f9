"""Tests of ``exburn.losses.focal``."""

import jax
import numpy as np
import pytest
from tests.losses.arrays import BITS, ONE_HOT, PROBS
from tests.losses.reference import BINARY, REAL, UNIT
from tests.losses.reference import ONE_HOT as ONE_HOT_REFERENCE
from tests.losses.reference import PROBS as PROBS_REFERENCE

from exburn import Sequential, errors, losses
from exburn.layers import Dense, Input

LOSSES = [
    (losses.BinaryFocalCrossentropy(gamma=1.5, alpha=0.3), BITS, PROBS),
    (losses.CategoricalFocalCrossentropy(gamma=0.5), ONE_HOT, PROBS),
    (
        losses.SparseCategoricalFocalCrossentropy(gamma=0.5, alpha=[0.2, 0.3, 0.5]),
        np.argmax(ONE_HOT, -1),
        PROBS,
    ),
]


CASES = [
    ("BinaryFocalCrossentropy", {}, BINARY, UNIT),
    ("BinaryFocalCrossentropy", {"gamma": 0.7, "from_logits": True}, BINARY, REAL),
    (
        "BinaryFocalCrossentropy",
        {"apply_class_balancing": True, "alpha": 0.3, "label_smoothing": 0.1},
        BINARY,
        UNIT,
    ),
    ("CategoricalFocalCrossentropy", {}, ONE_HOT_REFERENCE, PROBS_REFERENCE),
    (
        "CategoricalFocalCrossentropy",
        {"gamma": 3.0, "alpha": 0.5, "from_logits": True, "label_smoothing": 0.1},
        ONE_HOT_REFERENCE,
        REAL,
    ),
]


OF_LABELS = {
    "probabilities": ({"gamma": 1.5, "alpha": 0.4}, PROBS_REFERENCE),
    "logits": ({"gamma": 1.5, "from_logits": True}, REAL),
    "weights": ({"alpha": [0.1, 0.2, 0.3, 0.4]}, PROBS_REFERENCE),
    "no focus": ({"gamma": 0.0, "alpha": 1.0}, PROBS_REFERENCE),
}


@pytest.mark.parametrize("case", OF_LABELS)
def test_labels_give_what_one_hot_targets_give(case):
    options, y_pred = OF_LABELS[case]
    labels = ONE_HOT_REFERENCE.argmax(-1)
    sparse = losses.SparseCategoricalFocalCrossentropy(**options)
    one_hot = losses.CategoricalFocalCrossentropy(**options)
    ours = jax.value_and_grad(lambda p: sparse(labels, p))(y_pred)
    theirs = jax.value_and_grad(lambda p: one_hot(ONE_HOT_REFERENCE, p))(y_pred)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-6), ours, theirs
    )


@pytest.mark.parametrize("from_logits", [False, True])
def test_a_row_that_is_ignored_counts_for_nothing(from_logits):
    loss = losses.SparseCategoricalFocalCrossentropy(
        ignore_class=9, from_logits=from_logits
    )
    y_pred = np.float32([[0.2, 0.8], [np.inf, np.nan]])
    value, slope = jax.value_and_grad(lambda p: loss([1, 9], p))(y_pred)
    assert float(value) == float(loss([1], y_pred[:1]))
    assert np.isfinite(slope).all() and not slope[1].any()


def test_the_slope_at_certainty_is_finite():
    loss = losses.SparseCategoricalFocalCrossentropy(gamma=0.5)
    for y_pred in (np.float32([[0.0, 1.0]]), np.float32([[1.0, 0.0]])):
        assert np.isfinite(jax.grad(lambda p: loss([1], p))(y_pred)).all()


def test_what_is_no_label_or_weight_is_refused():
    loss = losses.SparseCategoricalFocalCrossentropy
    with pytest.raises(errors.ArgumentError, match="one for each class"):
        loss(alpha=[0.5, 0.5])([0, 1], PROBS_REFERENCE[:2])
    with pytest.raises(errors.TargetError, match="sparse_categorical_focal|one-hot"):
        loss()(ONE_HOT_REFERENCE, PROBS_REFERENCE)
    with pytest.raises(errors.TargetError, match="'sparse_categorical_focal_cross"):
        losses.CategoricalFocalCrossentropy()(np.array([0, 1]), PROBS_REFERENCE[:2])
    with pytest.raises(errors.ArgumentError, match="ignore_class"):
        loss(ignore_class=0.5)


def test_a_model_trains_on_labels_and_a_strange_one_is_told():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype("float32")
    model = Sequential([Input((4,)), Dense(4, "softmax")])
    loss = losses.SparseCategoricalFocalCrossentropy(ignore_class=-1)
    model.compile("adam", loss, jit_compile=True)
    y = np.where(x[:, 0] > 1, -1, x.argmax(-1))
    history = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    with pytest.raises(errors.TargetError):
        model.fit(x, np.full(64, 4), verbose=0)
