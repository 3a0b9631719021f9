"""What the tests of preprocessing share."""

import jax.numpy as jnp
import numpy as np
from tests.golden import keras, recorded
from tests.layers.preprocessing.cases import images

from exburn import layers as L

X = images(3, 7, 9, 3)
BYTES = (X * 255).astype("uint8")


def channels_first(x):
    return jnp.moveaxis(x, -1, -3)


def check_colours_as_in_keras(name, options, highest):
    if highest is not None:
        options = {**options, "value_range": (0, highest)}
    x = X * (highest or 1)
    peer = lambda: getattr(keras.layers, name)(**options)  # noqa: E731
    theirs = recorded(lambda: peer()(x, training=True))
    ours = getattr(L, name)(**options)(x, training=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * (highest or 1))
