"""Tests of ``exburn.losses.contract.reduction``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.losses.arrays import BITS, LOGITS, PROBS
from tests.losses.reference import by_reduction, close

from exburn import losses
from exburn.errors import ShapeError


def test_masks_hide_what_is_not_finite():
    y_pred = np.array([[[1.0], [np.nan]], [[2.0], [3.0]]], "float32")
    mask = np.array([[True, False], [True, True]])
    loss = losses.MeanSquaredError()
    value, slope = jax.value_and_grad(lambda p: loss(jnp.zeros_like(p), p, mask=mask))(
        jnp.asarray(y_pred)
    )
    assert value == pytest.approx(14 / 3)
    assert np.isfinite(slope).all()
    weight = np.array([2.0, 1.0])
    weighted = loss(np.zeros_like(y_pred), y_pred, weight, mask=mask)
    assert weighted == pytest.approx((2 * 1 + 4 + 9) / 3)


def test_everything_masked_is_zero():
    nothing = np.zeros(4, bool)
    for reduction in ("mean", "sum", "mean_with_sample_weight"):
        loss = losses.MeanSquaredError(reduction=reduction)
        assert loss(PROBS, LOGITS, np.ones(4), row_mask=nothing) == 0


def test_weights_that_do_not_fit():
    for weight in (np.ones(3), np.ones((4, 2)), np.ones((4, 1, 1))):
        with pytest.raises(ShapeError, match="sample_weight"):
            losses.MeanSquaredError()(PROBS, LOGITS, weight)
    with pytest.raises(ShapeError, match="mask"):
        losses.MeanSquaredError()(PROBS, LOGITS, mask=np.ones((3, 3), bool))
    with pytest.raises(ShapeError, match="over the batch"):
        losses.Dice()(BITS, PROBS, np.ones(4))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MeanSquaredError", {}),
        ("SparseCategoricalCrossentropy", {"from_logits": True}),
        ("SparseCategoricalCrossentropy", {"from_logits": True, "ignore_class": 1}),
    ],
)
def test_masks(name, options, weighted, golden):
    rng = np.random.default_rng(2)
    y_pred = rng.normal(size=(3, 5, 4)).astype("float32")
    y_true = rng.integers(0, 4, size=(3, 5)).astype("int32")
    if name == "MeanSquaredError":
        y_true = np.eye(4, dtype="float32")[y_true]
    mask = rng.integers(0, 2, size=(3, 5)).astype(bool)
    weight = rng.uniform(size=(3, 5)).astype("float32") if weighted else None
    arguments = (y_true, jnp.asarray(y_pred), weight)
    compute = lambda m: by_reduction(m, name, options, *arguments, mask=mask)  # noqa: E731
    theirs = golden(lambda: compute(keras.losses))
    for mine, expected in zip(compute(losses), theirs, strict=True):
        close(mine, expected)


def test_row_weights_of_sequences():
    """As of [batch, 1]; Keras broadcasts [batch] with the last axis."""
    rng = np.random.default_rng(2)
    y_true, y_pred = np.eye(4)[rng.integers(0, 4, (3, 5))], rng.normal(size=(3, 5, 4))
    weight = np.array([0.5, 2.0, 0.0], "float32")
    squares = ((y_true - y_pred) ** 2).mean(-1) * weight[:, None]
    close(losses.MeanSquaredError()(y_true, y_pred, weight), squares.mean())
