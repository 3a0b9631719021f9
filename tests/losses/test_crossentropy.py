"""Tests of ``exburn.losses.crossentropy``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.losses.arrays import BITS, LABELS, LOGITS, ONE_HOT, PROBS
from tests.losses.reference import BINARY, PROBS_TRUE, REAL, UNIT, close
from tests.losses.reference import LABELS as LABELS_REFERENCE
from tests.losses.reference import ONE_HOT as ONE_HOT_REFERENCE
from tests.losses.reference import PROBS as PROBS_REFERENCE

from exburn import losses
from exburn.errors import ArgumentError, TargetError
from exburn.losses import categorical_crossentropy, sparse_categorical_crossentropy
from exburn.losses.contract.probabilities import EPSILON
from exburn.runtime.kernels.softmax import shares

LOSSES = [
    (losses.BinaryCrossentropy(label_smoothing=0.1), BITS, PROBS),
    (losses.BinaryCrossentropy(from_logits=True), BITS, LOGITS),
    (losses.CategoricalCrossentropy(from_logits=True), ONE_HOT, LOGITS),
    (losses.CategoricalCrossentropy(), ONE_HOT, PROBS),
    (losses.SparseCategoricalCrossentropy(from_logits=True), LABELS, LOGITS),
    (losses.SparseCategoricalCrossentropy(ignore_class=2), LABELS, PROBS),
]


CASES = [
    ("BinaryCrossentropy", {}, BINARY, UNIT),
    ("BinaryCrossentropy", {"label_smoothing": 0.2}, BINARY, UNIT),
    ("BinaryCrossentropy", {"from_logits": True}, BINARY, REAL * 5),
    ("BinaryCrossentropy", {}, BINARY, BINARY),
    ("CategoricalCrossentropy", {}, ONE_HOT_REFERENCE, PROBS_REFERENCE),
    ("CategoricalCrossentropy", {}, ONE_HOT_REFERENCE, UNIT),
    (
        "CategoricalCrossentropy",
        {"label_smoothing": 0.1},
        ONE_HOT_REFERENCE,
        PROBS_REFERENCE,
    ),
    ("CategoricalCrossentropy", {"from_logits": True}, PROBS_TRUE, REAL * 5),
    (
        "CategoricalCrossentropy",
        {"axis": 1, "from_logits": True},
        ONE_HOT_REFERENCE,
        REAL,
    ),
    ("SparseCategoricalCrossentropy", {}, LABELS_REFERENCE, PROBS_REFERENCE),
    ("SparseCategoricalCrossentropy", {}, LABELS_REFERENCE, UNIT),
    ("SparseCategoricalCrossentropy", {}, LABELS_REFERENCE[:, None], PROBS_REFERENCE),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True},
        LABELS_REFERENCE,
        REAL * 5,
    ),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True, "ignore_class": 2},
        LABELS_REFERENCE,
        REAL,
    ),
    (
        "SparseCategoricalCrossentropy",
        {"ignore_class": 0},
        LABELS_REFERENCE,
        PROBS_REFERENCE,
    ),
]


def clip(p):
    return jnp.clip(p, EPSILON, 1 - EPSILON)


def plain(y, p):
    """Keras' formula, step by step."""
    return -jnp.sum(y * jnp.log(clip(p / p.sum(-1, keepdims=True))), -1).mean()


ROWS = jnp.array([[0.2, 0.3, 0.5], [1, 0, 0], [0, 1, 0], [2.0, 3.0, 4.0], [1e-9, 1, 1]])

LABELS_CLIPPED = jnp.array([2, 0, 0, 1, 0])


def test_inside_vmap_and_scan():
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    many = jnp.stack([LOGITS, 2 * LOGITS])
    expected = [loss(LABELS, one) for one in many]
    np.testing.assert_allclose(jax.vmap(lambda p: loss(LABELS, p))(many), expected)
    _, scanned = jax.lax.scan(lambda c, p: (c, loss(LABELS, p)), 0, many)
    np.testing.assert_allclose(scanned, expected, rtol=1e-6)


def test_ignored_class_may_be_out_of_range():
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    loss.check_targets(np.array([0, 255], "uint8"), PROBS)
    with pytest.raises(TargetError):
        loss.check_targets(np.array([0, 254], "uint8"), PROBS)


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


BAD_ARGUMENTS = [
    lambda: losses.BinaryCrossentropy(label_smoothing=2),
    lambda: losses.CategoricalCrossentropy(axis=True),
]


def test_half_precision_is_computed_in_float32():
    logits = jnp.asarray(REAL * 30, "bfloat16")
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    value = loss(LABELS_REFERENCE, logits)
    assert value.dtype == jnp.float32
    close(value, loss(LABELS_REFERENCE, logits.astype("float32")))


@pytest.mark.parametrize("sparse", [True, False])
def test_crossentropy_of_probabilities_has_the_gradient_of_its_formula(sparse):
    one_hot = jax.nn.one_hot(LABELS_CLIPPED, 3)
    loss = sparse_categorical_crossentropy if sparse else categorical_crossentropy
    y = LABELS_CLIPPED if sparse else one_hot
    value, slope = jax.value_and_grad(lambda p: loss(y, p).mean())(ROWS)
    wanted, wanted_slope = jax.value_and_grad(lambda p: plain(one_hot, p))(ROWS)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    np.testing.assert_allclose(slope, wanted_slope, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("cpu_only")
def test_a_step_of_a_classifier_divides_seldom():
    """JAX's derivatives of clip, of a share and of softmax divide more often."""

    def loss(x):
        return sparse_categorical_crossentropy(LABELS_CLIPPED, shares(x)).mean()

    def divisions(f):
        program = jax.jit(jax.grad(f)).lower(ROWS).compile()
        return program.as_text().count(" divide(")

    def steps(x):
        return plain(jax.nn.one_hot(LABELS_CLIPPED, 3), jax.nn.softmax(x))

    assert divisions(loss) + 2 <= divisions(steps)


@pytest.mark.parametrize("from_logits", [False, True])
def test_smoothed_labels_are_smoothed_one_hot_targets(from_logits):
    options = {"label_smoothing": 0.3, "from_logits": from_logits}
    y_pred = REAL if from_logits else PROBS_REFERENCE
    labels = ONE_HOT_REFERENCE.argmax(-1)
    sparse = losses.SparseCategoricalCrossentropy(**options)
    one_hot = losses.CategoricalCrossentropy(**options)
    ours = jax.value_and_grad(lambda p: sparse(labels, p))(y_pred)
    theirs = jax.value_and_grad(lambda p: one_hot(ONE_HOT_REFERENCE, p))(y_pred)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-6), ours, theirs
    )
    ignoring = losses.SparseCategoricalCrossentropy(**options, ignore_class=labels[0])
    chosen = labels != labels[0]
    expected = float(sparse(labels[chosen], y_pred[chosen]))
    assert float(ignoring(labels, y_pred)) == pytest.approx(expected, rel=1e-5)
    assert sparse.from_config(sparse.get_config()).label_smoothing == 0.3
    with pytest.raises(ArgumentError, match="label_smoothing"):
        losses.SparseCategoricalCrossentropy(label_smoothing=1.5)
