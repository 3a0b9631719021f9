"""Tests of ``exburn.layers.pooling.global_pooling``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.beside_keras import FIRST, compare, run, run_peer
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, TIME, VOLUME
from tests.layers.inputs import SEQUENCE as STEPS
from tests.layers.noise_and_masks import SEQUENCE, M

from exburn import layers as L
from exburn.core import forward_context

CONTRACT = {
    "GlobalAverage1": (L.GlobalAveragePooling1D, (), STEPS, TIME),
    "GlobalAverage2": (L.GlobalAveragePooling2D, (), IMAGE, PLACE),
    "GlobalAverage3": (L.GlobalAveragePooling3D, (None, True), VOLUME, {}),
    "GlobalMax1": (L.GlobalMaxPooling1D, (), STEPS, TIME),
    "GlobalMax2": (L.GlobalMaxPooling2D, (), IMAGE, PLACE),
    "GlobalMax3": (L.GlobalMaxPooling3D, (), VOLUME, {}),
}

BESIDE_KERAS = [
    ("GlobalAveragePooling1D", {}, SEQUENCE_BESIDE_KERAS),
    ("GlobalAveragePooling2D", {"keepdims": True}, IMAGE_BESIDE_KERAS),
    ("GlobalMaxPooling1D", {} | FIRST, SEQUENCE_BESIDE_KERAS),
    ("GlobalMaxPooling3D", {"keepdims": True} | FIRST, VOLUME_BESIDE_KERAS),
]


def test_a_propagated_mask_reaches_the_average():
    x = jnp.asarray(SEQUENCE)
    ctx = forward_context.Context()
    ctx.set_mask(x, jnp.asarray(M))
    with forward_context.forward(ctx):
        y = L.GlobalAveragePooling1D()(x)
    expected = [SEQUENCE[0, :2].mean(0), SEQUENCE[1, :1].mean(0)]
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"keepdims": True}, FIRST])
def test_masked_average(options, golden):
    mask = np.arange(18).reshape(2, 9) % 3 != 0
    x = (
        np.swapaxes(SEQUENCE_BESIDE_KERAS, 1, 2)
        if options is FIRST
        else SEQUENCE_BESIDE_KERAS
    )
    layer = L.GlobalAveragePooling1D(**options)
    layer(x)
    peer = lambda: keras.layers.GlobalAveragePooling1D(**options)  # noqa: E731
    theirs = golden(lambda: run_peer(peer(), x, mask=mask))
    compare(run(layer, x, mask=mask), theirs)
