"""A schedule beside Keras'."""

import jax
import numpy as np
from tests.golden import keras, recorded

from exburn.optimizers import schedules

STEPS = np.arange(0, 130, dtype=np.int32)


def values(schedule, steps=STEPS):
    return np.asarray(jax.jit(jax.vmap(schedule))(steps))


def check_against_keras(name, args, options):
    ours = getattr(schedules, name)(*args, **options)
    peer = lambda: getattr(keras.optimizers.schedules, name)(*args, **options)  # noqa: E731
    # Not compiled: Keras 3.15's PolynomialDecay(0.5, 60, 0.1, power=2.5) is NaN from
    # step 60 on under jit on a CPU, where 60 · (1 / 60) is more than 1.
    ours, theirs = values(ours), recorded(lambda: jax.vmap(peer())(STEPS))
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
