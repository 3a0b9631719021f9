"""Tests of ``exburn.layers.normalization.spectral``."""

import numpy as np
from tests.golden import keras
from tests.layers.beside_keras import IMAGE, compare, data, run, run_peer
from tests.layers.inputs import FLAT
from tests.layers.interface import X

from exburn import layers as L

CONTRACT = {
    "SpectralNormalization": (
        lambda *a, **k: L.SpectralNormalization(L.Dense(3, dtype=k.get("dtype")), **k),
        (),
        FLAT,
        {},
    ),
}

BAD_ARGUMENTS = [
    (lambda: L.SpectralNormalization(L.Flatten())(X), "neither a kernel"),
]


def test_spectral_norm_becomes_one_in_inference_too():
    layer = L.SpectralNormalization(L.Dense(5, use_bias=False), 1)
    layer(np.eye(6, dtype="float32"))
    before = layer.layer.kernel.numpy()
    for _ in range(60):
        layer(np.eye(6, dtype="float32"), training=True)
    y = layer(np.eye(6, dtype="float32"))
    assert abs(np.linalg.norm(y, 2) - 1) < 1e-3
    np.testing.assert_array_equal(layer.layer.kernel.numpy(), before)


def test_spectral_normalization(golden):
    options = {"kernel_size": 3, "filters": 5}
    layer = L.SpectralNormalization(L.Conv2D(**options), 2)
    layer(IMAGE)
    for w in layer.weights:
        w.assign(data(*w.shape))

    def of_keras():
        peer = keras.layers.SpectralNormalization(keras.layers.Conv2D(**options), 2)
        peer.build(IMAGE.shape)
        for w in peer.weights:
            w.assign(data(*w.shape))
        return run_peer(peer, IMAGE, True)

    compare(run(layer, IMAGE, True), golden(of_keras))
