"""What the tests of preprocessing share."""

import functools

import jax
import numpy as np
from tests.layers.preprocessing.cases import CORRECTIONS, images, make

from exburn import key_scope

BATCH = images(6, 8, 6, 3)
CORRECTING = tuple(cls for cls, *_ in CORRECTIONS.values())
MIXING = ("MixUp", "CutMix")
one = functools.cache(make)  # a layer compiles once for each shape


def augment(layer, x, seed=0):
    # Corrections draw nothing, and are no program by themselves.
    call = jax.jit(layer) if isinstance(layer, CORRECTING) else layer
    with key_scope(jax.random.key(seed)):
        return np.asarray(call(x))
