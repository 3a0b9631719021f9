"""What the tests of preprocessing share."""

import functools

import jax
import numpy as np
from tests.layers.preprocessing.cases import images, make

from exburn import key_scope

BATCH = images(6, 8, 6, 3)
MIXING = ("MixUp", "CutMix")
one = functools.cache(make)  # a layer compiles once for each shape


def augment(layer, x, seed=0):
    with key_scope(jax.random.key(seed)):
        return np.asarray(layer(x))
