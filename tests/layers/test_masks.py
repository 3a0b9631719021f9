"""Masks go through layers that keep positions, and end where they move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.check_layer import pure
from tests.layers.noise_and_masks import KEY, SEQUENCE, M, masked

from exburn import layers as L


@pytest.mark.parametrize(
    "layer",
    [
        L.Dense(3),
        L.Activation("tanh"),
        L.LayerNormalization(),
        L.BatchNormalization(),
        L.Dropout(0.5),
        L.PReLU(),
        L.Rescaling(2.0),
        L.ActivityRegularization(),
    ],
    ids=lambda layer: layer.name,
)
def test_layers_that_keep_positions_hand_the_mask_on(layer):
    np.testing.assert_array_equal(masked(layer, [SEQUENCE], [M]), M)


@pytest.mark.parametrize(
    "layer",
    [L.Flatten(), L.Conv1D(3, 2), L.GlobalAveragePooling1D(), L.Permute((2, 1))],
    ids=lambda layer: layer.name,
)
def test_layers_that_move_positions_drop_the_mask(layer):
    assert masked(layer, [SEQUENCE], [M]) is None


def test_a_mask_that_hides_everything_gives_finite_values_and_gradients():
    hidden = np.zeros((2, 3), bool)
    for layer in (L.GlobalAveragePooling1D(), L.Softmax(), L.BatchNormalization()):
        layer(SEQUENCE)
        function, state = pure(layer, training=True, mask=jnp.asarray(hidden))
        y, after, _ = function(state, KEY, SEQUENCE)
        assert np.isfinite(y).all()
        for old, new in zip(state, after, strict=True):
            np.testing.assert_array_equal(old, new)  # moving statistics stay
        grad = jax.grad(lambda x, f=function, s=state: f(s, KEY, x)[0].sum())(SEQUENCE)
        assert np.isfinite(grad).all()
