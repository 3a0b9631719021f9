"""A loss beside that of Keras, as functions of a case."""

import jax
import jax.numpy as jnp
import keras
import numpy as np

from exburn import losses

rng = np.random.default_rng(0)

REAL = rng.normal(size=(6, 4)).astype("float32")

REAL_TRUE = rng.normal(size=(6, 4)).astype("float32")

POSITIVE = rng.uniform(0.1, 5, size=(6, 4)).astype("float32")

COUNTS = rng.integers(0, 6, size=(6, 4)).astype("float32")

PROBS = rng.dirichlet(np.ones(4), size=6).astype("float32")

PROBS_TRUE = rng.dirichlet(np.ones(4), size=6).astype("float32")

UNIT = rng.uniform(0, 1, size=(6, 4)).astype("float32")

BINARY = rng.integers(0, 2, size=(6, 4)).astype("float32")

SIGNS = BINARY * 2 - 1

LABELS = rng.integers(0, 4, size=6).astype("int32")

ONE_HOT = np.eye(4, dtype="float32")[LABELS]

UNIT_ROWS = REAL / np.linalg.norm(REAL, axis=-1, keepdims=True)

PAIRS = np.array([0, 0, 1, 1, 2, 2], "int32")

SEQUENCES = np.array([[1, 2, 0], [3, 3, 0], [1, 0, 0], [2, 1, 2], [3, 0, 0], [1, 1, 0]])

FRAMES = rng.normal(size=(6, 7, 4)).astype("float32")

IMAGES = rng.uniform(size=(6, 5, 5, 3)).astype("float32")

IMAGES_TRUE = rng.integers(0, 2, size=(6, 5, 5, 3)).astype("float32")

OVER_BATCH = [
    ("Dice", {}, IMAGES_TRUE, IMAGES),
    ("Tversky", {"alpha": 0.2, "beta": 0.9}, IMAGES_TRUE, IMAGES),
]

REDUCTIONS = ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none"]


def close(ours, theirs, tolerance=1e-5):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def pair(name, options, **more):
    ours = getattr(losses, name)(**options, **more)
    return ours, getattr(keras.losses, name)(**options, **more)


def by_reduction(name, options, *arguments, **ours_only):
    """Ours and Keras' value for every reduction."""
    values = {}
    for reduction in REDUCTIONS:
        ours, theirs = pair(name, options, reduction=reduction)
        mine = ours(*arguments, **ours_only)
        y_true, y_pred, *weight = arguments
        if "mask" in ours_only:
            y_pred = y_pred + 0
            y_pred._keras_mask = jnp.asarray(ours_only["mask"])
        values[reduction] = mine, theirs(y_true, y_pred, *weight)
    return values


def check_value_and_gradient(name, options, y_true, y_pred):
    ours, theirs = pair(name, options)

    @jax.jit
    def run(y_pred):
        grads = [jax.value_and_grad(lambda p: loss(y_true, p)) for loss in both]  # noqa: B023
        return [grad(y_pred) for grad in grads]

    both = (ours, theirs)
    (value, slope), (expected, expected_slope) = run(jnp.asarray(y_pred))
    close(value, expected)
    assert np.isfinite(slope).all()
    if name != "Circle":  # Keras takes the logarithm of 0 there: NaN gradients
        close(slope, expected_slope)
