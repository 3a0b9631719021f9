"""A loss beside that of Keras, as functions of a case."""

import jax
import jax.numpy as jnp
import numpy as np
from tests.golden import keras, recorded

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


def by_reduction(module, name, options, *arguments, mask=None):
    """The value for every reduction."""
    y_true, y_pred, *weight = arguments
    kwargs = {}
    if mask is not None and module is losses:
        kwargs = {"mask": mask}
    elif mask is not None:
        y_pred = y_pred + 0
        y_pred._keras_mask = jnp.asarray(mask)
    return [
        getattr(module, name)(**options, reduction=kind)(
            y_true, y_pred, *weight, **kwargs
        )
        for kind in REDUCTIONS
    ]


def check_reductions_with_weights(name, options, y_true, y_pred):
    shape = (6, 3) if name == "Tversky" else (6,)
    weight = np.random.default_rng(2).uniform(size=shape).astype("float32")

    def compute(module):
        run = jax.jit(lambda *arrays: by_reduction(module, name, options, *arrays))
        return run(y_true, y_pred, weight)

    theirs = recorded(lambda: compute(keras.losses))
    for mine, expected in zip(compute(losses), theirs, strict=True):
        close(mine, expected, 1e-4)


def check_value_and_gradient(name, options, y_true, y_pred):
    def compute(module):
        loss = getattr(module, name)(**options)
        return jax.jit(jax.value_and_grad(lambda p: loss(y_true, p)))(y_pred)

    value, slope = compute(losses)
    expected, expected_slope = recorded(lambda: compute(keras.losses))
    close(value, expected)
    assert np.isfinite(slope).all()
    if name != "Circle":  # Keras takes the logarithm of 0 there: NaN gradients
        close(slope, expected_slope)
