"""Tests: test_functions."""

import jax
import numpy as np
from tests.golden import keras
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


def test_functions(golden):
    def compute(module):  # one program: compiling is what takes time
        arguments = {n: (t, p) for n, t, p in FUNCTIONS}
        return jax.jit(lambda given: {n: getattr(module, n)(*given[n]) for n in given})(
            arguments
        )

    theirs = golden(lambda: compute(keras.losses))
    for name, value in compute(losses).items():
        expected = theirs[name]
        assert value.shape == expected.shape, name
        np.testing.assert_allclose(value, expected, 1e-5, 1e-5, err_msg=name)
