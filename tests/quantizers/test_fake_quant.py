"""Tests of ``exburn.quantizers.fake_quant``."""

import jax
import numpy as np
import pytest
from tests.quantizers.beside_keras import X, same

from exburn import quantizers

peer = pytest.importorskip("keras").quantizers

CALLS = {
    "fake": ("fake_quant_with_min_max_vars", (X, -0.7, 1.1), {}),
    "narrow": (
        "fake_quant_with_min_max_vars",
        (X, -0.7, 1.1),
        {"num_bits": 4, "narrow_range": True},
    ),
    "channels": (
        "fake_quant_with_min_max_vars",
        (X, -np.linspace(0.1, 1, 6, dtype="f4"), np.linspace(0.2, 2, 6, dtype="f4")),
        {"axis": 1, "num_bits": 3},
    ),
    "float8": (
        "quantize_and_dequantize",
        (X, np.float32(0.01), "float8_e4m3fn", "float32"),
        {},
    ),
    "history": (
        "compute_float8_amax_history",
        (X, np.arange(4, dtype=np.float32)),
        {},
    ),
}


@pytest.mark.parametrize("name, args, options", CALLS.values(), ids=CALLS)
def test_a_function_gives_what_keras_gives(name, args, options):
    same(
        getattr(quantizers, name)(*args, **options),
        getattr(peer, name)(*args, **options),
    )


@pytest.mark.parametrize("amax", [0.0, np.inf, np.nan, 3.0])
def test_the_scale_stays_where_nothing_is_known(amax):
    args = np.float32(amax), np.float32(0.5), np.float32(448)
    same(quantizers.compute_float8_scale(*args), peer.compute_float8_scale(*args))


def test_the_gradient_of_imitated_rounding_is_that_of_clipping():
    low, high = -0.3 * np.ones(6, "f4"), 0.9 * np.ones(6, "f4")

    def grads(module):
        def loss(x, low, high):
            out = module.fake_quant_with_min_max_vars(x, low, high, axis=1)
            return (np.arange(42).reshape(7, 6) * out).sum()

        return jax.grad(loss, argnums=(0, 1, 2))(X, low, high)

    same(grads(quantizers), grads(peer))
