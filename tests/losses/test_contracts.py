"""What losses promise beyond their values: shapes, targets, padding, configurations."""

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
    spec,
)

from exburn import losses
from exburn.errors import ShapeError, TargetError
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


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    """Non-finite padding changes neither the value nor any gradient."""
    rows = np.array([True] * 4 + [False] * 2)
    junk = np.full((2, *y_pred.shape[1:]), np.nan)
    junk[1] = np.inf
    padded = np.concatenate([y_pred, junk.astype("float32")])
    targets = np.concatenate([y_true, np.zeros((2, *y_true.shape[1:]), y_true.dtype)])

    @jax.jit
    def both(y_pred, padded):
        plain = jax.value_and_grad(lambda p: loss(y_true, p))(y_pred)
        masked = jax.value_and_grad(lambda p: loss(targets, p, row_mask=rows))(padded)
        return plain, masked

    (value, slope), (padded_value, padded_slope) = both(y_pred, padded)
    np.testing.assert_allclose(padded_value, value, rtol=1e-6)
    np.testing.assert_allclose(padded_slope[:4], slope, rtol=1e-5, atol=1e-7)
    assert not np.asarray(padded_slope[4:]).any()


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


def test_vector_targets_have_one_value_per_sample():
    loss = losses.MeanSquaredError(reduction="none")
    assert loss(np.zeros(3), np.arange(3.0)).tolist() == [0, 1, 4]
    assert loss(np.zeros(3), np.arange(3.0)[:, None]).tolist() == [0, 1, 4]
    assert loss(np.zeros((3, 1)), np.arange(3.0)).tolist() == [0, 1, 4]


def test_inside_vmap_and_scan():
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    many = jnp.stack([LOGITS, 2 * LOGITS])
    expected = [loss(LABELS, one) for one in many]
    np.testing.assert_allclose(jax.vmap(lambda p: loss(LABELS, p))(many), expected)
    _, scanned = jax.lax.scan(lambda c, p: (c, loss(LABELS, p)), 0, many)
    np.testing.assert_allclose(scanned, expected, rtol=1e-6)


MISFITS = [
    ("mse", spec("b", 3), spec("b", 1), ShapeError),
    ("mse", spec("b"), spec("b", 3), ShapeError),
    ("mae", spec("b", 1), spec("b", 3), ShapeError),
    ("huber", spec("b", 4, 3), spec("b", 3), ShapeError),
    ("bce", spec("b"), spec("b", 3), ShapeError),
    ("hinge", spec("b", 2), spec("b", 3), ShapeError),
    ("dice", spec("b", 8, 8), spec("b", 8, 8, 3), ShapeError),
    ("categorical_crossentropy", spec("b", dtype="int32"), spec("b", 3), TargetError),
    ("categorical_crossentropy", spec("b", 1), spec("b", 3), TargetError),
    ("categorical_crossentropy", spec("b", 2), spec("b", 3), ShapeError),
    ("categorical_crossentropy", spec("b", 1), spec("b", 1), ShapeError),
    ("categorical_focal_crossentropy", spec("b"), spec("b", 3), TargetError),
    ("sparse_categorical_crossentropy", spec("b", 3), spec("b", 3), TargetError),
    ("sparse_categorical_crossentropy", spec("b", 7), spec("b", 7, 7, 2), ShapeError),
    ("sparse_categorical_crossentropy", spec("b"), spec("b", 1), ShapeError),
    ("categorical_generalized_cross_entropy", spec("b", 3), spec("b", 3), TargetError),
    ("cross_entropy", spec("b", 2), spec("b", 3), ShapeError),
    ("crossentropy", spec("b", 3), spec("b", 1), ShapeError),
    ("ctc", spec("b", 5), spec("b", 5), ShapeError),
    ("circle", spec("b", 5), spec("b", 5), TargetError),
    ("circle", spec("b"), spec("b", 5, 5), ShapeError),
]


@pytest.mark.parametrize(("name", "y_true", "y_pred", "error"), MISFITS)
def test_misfits_are_errors(name, y_true, y_pred, error):
    with pytest.raises(error) as caught:
        as_loss(name).check_shapes(y_true, y_pred)
    assert len(str(caught.value).splitlines()) <= 12
    with pytest.raises((ShapeError, TargetError)):  # and again when it is called
        fixed = [
            np.zeros([4 if not isinstance(n, int) else n for n in s.shape], s.dtype)
            for s in (y_true, y_pred)
        ]
        as_loss(name)(*fixed)


FITS = [
    ("mse", spec("b"), spec("b", 1)),
    ("mse", spec("b", 1), spec("b")),
    ("mse", spec("b", "t"), spec("b", "t", 1)),
    ("mse", spec("b", "t", 2), spec("b", 8, 2)),
    ("bce", spec("b"), spec("b")),
    ("sparse_categorical_crossentropy", spec("b", 1), spec("b", 3)),
    ("sparse_categorical_crossentropy", spec("b", "t"), spec("b", "t", 3)),
    ("cross_entropy", spec("b", "t"), spec("b", "t", 3)),
    ("cross_entropy", spec("b", 3), spec("b", 3)),
]


@pytest.mark.parametrize(("name", "y_true", "y_pred"), FITS)
def test_fits_are_not(name, y_true, y_pred):
    as_loss(name).check_shapes(y_true, y_pred)


def test_message_of_a_misfit():
    with pytest.raises(ShapeError) as caught:
        as_loss("mse").check_shapes(spec("b", 3), spec("b", 1))
    assert str(caught.value) == (
        "mean_squared_error: targets must have the shape of the predictions\n"
        "  y_true: float32[b, 3]\n"
        "  y_pred: float32[b, 1]\n"
        "  → Give the last layer as many units as the targets have columns."
    )


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


def test_ignored_class_may_be_out_of_range():
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    loss.check_targets(np.array([0, 255], "uint8"), PROBS)
    with pytest.raises(TargetError):
        loss.check_targets(np.array([0, 254], "uint8"), PROBS)


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


@pytest.mark.parametrize("label", [3, -1])
def test_labels_out_of_range_on_the_device_give_nan(label):
    """Not the loss of another class, and not 0 as in Keras."""
    for from_logits in (True, False):
        value = losses.sparse_categorical_crossentropy([label], PROBS[:1], from_logits)
        assert np.isnan(value).all()


def test_no_one_hot_array_is_made():
    """The largest arrays of the forward pass have the logits' size, and no int one."""
    logits, labels = jnp.zeros((8, 1000)), jnp.zeros(8, "int32")
    function = losses.SparseCategoricalCrossentropy(from_logits=True)
    program = str(jax.make_jaxpr(function)(labels, logits))
    assert "bool[8,1000]" not in program
    assert "i32[8,1000]" not in program


def test_saturated_predictions_keep_finite_gradients():
    extreme = jnp.array([[1e4, -1e4], [-1e4, 1e4]])
    for loss in (
        losses.BinaryCrossentropy(from_logits=True),
        losses.BinaryFocalCrossentropy(gamma=0.5, from_logits=True),
        losses.CategoricalCrossentropy(from_logits=True),
        losses.CategoricalFocalCrossentropy(gamma=0.5, from_logits=True),
    ):
        slope = jax.jit(jax.grad(lambda p, loss=loss: loss(jnp.eye(2), p)))(extreme)
        assert np.isfinite(slope).all(), loss.name
    hard = jnp.array([[1.0, 0.0]])
    loss = losses.CategoricalGeneralizedCrossEntropy()
    assert np.isfinite(jax.jit(jax.grad(lambda p: loss([1], p)))(hard)).all()
    masked = jnp.array([[0.0, -jnp.inf]])
    assert losses.categorical_crossentropy([[1.0, 0.0]], masked, True)[0] == 0


# ----------------------------------------------------------- names, configurations
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


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY[:-1], ids=NAMES[:-1])
def test_config_round_trip(loss, y_true, y_pred):
    loss = type(loss).from_config(
        {**loss.get_config(), "name": "mine", "reduction": "sum", "dtype": "float32"}
    )
    again = losses.deserialize(losses.serialize(loss))
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()
    assert (again.name, again.reduction, again.dtype) == ("mine", "sum", "float32")
    assert as_loss(losses.serialize(loss)).get_config() == loss.get_config()


def test_weights_that_do_not_fit():
    for weight in (np.ones(3), np.ones((4, 2)), np.ones((4, 1, 1))):
        with pytest.raises(ShapeError, match="sample_weight"):
            losses.MeanSquaredError()(PROBS, LOGITS, weight)
    with pytest.raises(ShapeError, match="mask"):
        losses.MeanSquaredError()(PROBS, LOGITS, mask=np.ones((3, 3), bool))
    with pytest.raises(ShapeError, match="over the batch"):
        losses.Dice()(BITS, PROBS, np.ones(4))
