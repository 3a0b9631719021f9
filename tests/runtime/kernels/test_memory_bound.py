"""Tests of ``exburn.runtime.kernels.memory_bound``."""

import jax
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import losses

import exburn
from exburn import layers
from exburn.runtime.kernels import memory_bound


def test_a_transformer_trains_the_same(request):
    def trained():
        x = exburn.Input((16, 256))
        y = layers.MultiHeadAttention(2, 128, dtype="mixed_bfloat16")(x, x)
        y = layers.LayerNormalization(dtype="mixed_bfloat16")(y)
        model = exburn.Model(x, layers.Dense(1)(y))
        model.compile("adam", "mse")
        return losses(model, np.random.default_rng(0).standard_normal((16, 16, 256)))

    plain = trained()
    calls = request.getfixturevalue("kernels")
    np.testing.assert_allclose(trained(), plain, rtol=2e-2)
    assert calls


@pytest.mark.usefixtures("cpu_only")  # a GPU would run them in both
def test_small_arrays_are_normalized_by_kernels_in_fit(request, monkeypatch):
    def model():
        x = exburn.Input((16, 128))
        y = layers.LayerNormalization(name="first")(layers.Dense(128)(x))
        y = layers.LayerNormalization()(y)
        made = exburn.Model(x, layers.Dense(1)(y))
        made.compile("sgd", "mse", seed=0)
        return made

    data = np.random.default_rng(0).standard_normal((24, 16, 128), np.float32)

    large = memory_bound.ELEMENTS
    plain = losses(model(), data)
    calls = request.getfixturevalue("kernels")
    monkeypatch.setattr(memory_bound, "ELEMENTS", large)
    made = model()
    np.testing.assert_allclose(losses(made, data), plain, rtol=1e-5)
    assert len(calls) == 2  # forward and back; each once for both layers
    made.evaluate(data, data[..., :1], 4, verbose=0)
    made.predict(data, 4, verbose=0)
    made(data, training=True)
    layer = made.get_layer("first")
    assert jax.jvp(layer, (data,), (data,))[1].shape == data.shape
    assert len(calls) == 2
