import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ShapeError

ROWS = [np.ones((n, 2), np.float32) * n for n in (2, 5, 3)]


class Mean(exburn.Layer):
    def call(self, x):
        return jnp.mean(x, 1)


class MaskedMean(exburn.Layer):
    def call(self, x, mask=None):
        weight = mask[..., None].astype(x.dtype) if mask is not None else 1.0
        return jnp.sum(x * weight, 1) / jnp.sum(weight * jnp.ones_like(x), 1)


class Width(exburn.Layer):
    """It sees no values of filled-up positions, but how many there are."""

    def call(self, x, mask=None):
        x = x if mask is None else jnp.where(mask[..., None], x, 0)
        return jnp.sum(x, 1) / x.shape[1]


@pytest.mark.parametrize(
    "layer", [Mean(), Width(), layers.Lambda(lambda x: x[:, -1])], ids=repr
)
def test_code_that_would_see_the_filling_is_refused(layer):
    model = exburn.Sequential([layers.Activation("relu"), layer, layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ShapeError, match="other outputs than alone"):
        model.fit(ROWS, np.zeros(3), verbose=0)
    assert not model.trace_counts


def test_code_that_takes_the_mask_runs():
    model = exburn.Sequential([layers.Activation("relu"), MaskedMean()])
    means = model.predict(ROWS, verbose=0)
    np.testing.assert_allclose(means[:, 0], [2, 5, 3], rtol=1e-6)


def test_operations_between_layers_are_tried():
    x = exburn.Input((None, 2))
    model = exburn.Model(x, exburn.ops.max(layers.Dense(2)(x), axis=1))
    with pytest.raises(ShapeError, match="other outputs than alone"):
        model.predict(ROWS, verbose=0)
