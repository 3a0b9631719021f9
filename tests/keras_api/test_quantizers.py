"""``exburn.quantizers`` beside ``keras.quantizers``."""

import jax
import numpy as np
import pytest

from exburn import quantizers
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

peer = pytest.importorskip("keras").quantizers
RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 6)).astype(np.float32)
X[:, 2] = 0.0


def same(a, b):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


CALLS = {
    "abs max": ("abs_max_quantize", (X, -1), {}),
    "axes": ("abs_max_quantize", (X, (0, 1)), {"value_range": (-8, 7)}),
    "host": ("abs_max_quantize", (X, 0), {"to_numpy": True}),
    "grouped": ("abs_max_quantize_grouped_with_zero_point", (X, 3), {}),
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


@pytest.mark.long_cases("grouped")
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


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_nibbles_come_back(dtype, axis):
    low = 0 if dtype == "uint8" else -8
    values = RNG.integers(low, low + 16, (5, 4, 3)).astype(dtype)
    packed, shape, size = quantizers.pack_int4(values, axis, dtype)
    wanted = peer.pack_int4(values, axis, dtype)
    same(packed, wanted[0])
    assert (shape, size) == (tuple(wanted[1]), wanted[2])
    np.testing.assert_array_equal(
        quantizers.unpack_int4(packed, size, axis, dtype), values
    )


def test_quantizers_are_found_described_and_made_again():
    for made in (
        quantizers.get("abs_max_quantizer", axis=1),
        quantizers.get(quantizers.AbsMaxQuantizer(axis=1)),
        quantizers.get(quantizers.serialize(quantizers.AbsMaxQuantizer(axis=1))),
    ):
        same(made(X), peer.AbsMaxQuantizer(axis=1)(X))
    assert quantizers.get(None) is None


def test_what_cannot_work_is_told():
    with pytest.raises(UnknownNameError):
        quantizers.get("abs_mix")
    with pytest.raises(DTypeError):
        quantizers.get(3)
    with pytest.raises(ArgumentError, match="int8 holds"):
        quantizers.AbsMaxQuantizer(value_range=(-200, 200))
    with pytest.raises(ArgumentError, match="from 2 to 16"):
        quantizers.fake_quant_with_min_max_vars(X, -1.0, 1.0, num_bits=1)
    with pytest.raises(DTypeError, match="int8 is needed"):
        quantizers.pack_int4(X)
    with pytest.raises(ShapeError, match="a matrix"):
        quantizers.abs_max_quantize_grouped_with_zero_point(X[0], 2)
