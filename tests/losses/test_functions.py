"""Tests: test_functions."""

import jax
import keras
import numpy as np
from tests.losses.reference import (
    BINARY,
    COUNTS,
    FRAMES,
    IMAGES,
    IMAGES_TRUE,
    LABELS,
    ONE_HOT,
    PAIRS,
    POSITIVE,
    PROBS,
    PROBS_TRUE,
    REAL,
    REAL_TRUE,
    SEQUENCES,
    UNIT,
    UNIT_ROWS,
)

from exburn import losses

FUNCTIONS = [
    ("mean_squared_error", REAL_TRUE, REAL),
    ("mean_absolute_error", REAL_TRUE, REAL),
    ("mean_absolute_percentage_error", POSITIVE, REAL),
    ("mean_squared_logarithmic_error", POSITIVE, REAL),
    ("huber", REAL_TRUE, REAL),
    ("log_cosh", REAL_TRUE, REAL),
    ("cosine_similarity", REAL_TRUE, REAL),
    ("hinge", BINARY, REAL),
    ("squared_hinge", BINARY, REAL),
    ("categorical_hinge", ONE_HOT, REAL),
    ("kl_divergence", PROBS_TRUE, PROBS),
    ("poisson", COUNTS, POSITIVE),
    ("binary_crossentropy", BINARY, UNIT),
    ("binary_focal_crossentropy", BINARY, UNIT),
    ("categorical_crossentropy", ONE_HOT, PROBS),
    ("categorical_focal_crossentropy", ONE_HOT, PROBS),
    ("sparse_categorical_crossentropy", LABELS, PROBS),
    ("ctc", SEQUENCES, FRAMES),
    ("circle", PAIRS, UNIT_ROWS),
    ("dice", IMAGES_TRUE, IMAGES),
    ("tversky", IMAGES_TRUE, IMAGES),
]


def test_functions():
    @jax.jit  # one program: compiling is what takes time
    def run(arguments):
        return {
            name: [
                getattr(module, name)(*arguments[name])
                for module in (losses, keras.losses)
            ]
            for name in arguments
        }

    for name, (value, expected) in run({n: (t, p) for n, t, p in FUNCTIONS}).items():
        assert value.shape == expected.shape, name
        np.testing.assert_allclose(value, expected, 1e-5, 1e-5, err_msg=name)
