"""How a weight is stored in few bits, beside quantization in plain NumPy."""

import jax
import numpy as np
import pytest
from tests.compression.quantization.plain import BLOCK, reference

from exburn.compression.quantization.scheme import Scheme, _encode_at_once


@pytest.mark.parametrize("dtype", ["int8", "int4", "float8"])
@pytest.mark.parametrize(
    ("shape", "summed"),
    [
        ((100, 7), (0,)),
        ((7, 100), (1,)),
        ((3, 3, 8, 5), (0, 1, 2)),
        ((3, 3, 5, 8), (0, 1, 3)),
        ((4, 6, 9), (0, 1)),
        ((2, 1), (0,)),
    ],
)
def test_a_weight_is_stored_as_the_reference_says(rng, dtype, shape, summed):
    weight = rng.standard_normal(shape).astype(np.float32)
    scheme = Scheme(dtype, shape, summed, BLOCK if dtype == "int4" else None)
    values, scale = scheme.encode(weight)
    assert (values.shape, values.dtype) == scheme.values_spec
    assert (scale.shape, scale.dtype) == scheme.scale_spec
    assert values.nbytes + scale.nbytes == scheme.nbytes
    read = scheme.decode(jax.device_put(values), jax.device_put(scale))
    np.testing.assert_allclose(read, reference(weight, summed, dtype), rtol=1e-6)


def test_zeros_and_tiny_numbers_survive():
    for dtype in ("int8", "int4", "float8"):
        scheme = Scheme(dtype, (64, 3), (0,), 32 if dtype == "int4" else None)
        weight = np.zeros((64, 3), np.float32)
        weight[:, 1] = 1e-30
        weight[:, 2] = 1e30
        read = np.asarray(scheme.decode(*map(jax.device_put, scheme.encode(weight))))
        assert (read[:, 0] == 0).all()
        np.testing.assert_allclose(read, weight, rtol=0.01)


def test_int4_beats_the_symmetric_range(rng):
    weight = rng.standard_normal((1024, 16)).astype(np.float32)
    blocks = weight.T.reshape(16, -1, 64)
    step = np.abs(blocks).max(-1, keepdims=True) / 7
    plain = ((np.rint(blocks / step) * step - blocks) ** 2).mean()
    ours = ((reference(weight, (0,), "int4", 64) - weight) ** 2).mean()
    assert ours < 0.85 * plain


@pytest.mark.parametrize("kind", ["nf4", "int4", "nf4 uint8", "int4 static"])
def test_a_device_encodes_as_the_host(rng, kind):
    dtype, _, more = kind.partition(" ")
    scales = {"uint8": "uint8", "": "float32" if dtype == "nf4" else "bfloat16"}
    options = {"scales": scales.get(more, "float32"), "static": more == "static"}
    for shape, summed in (((130, 5), (0,)), ((5, 4, 33), (0, 1))):
        weight = rng.standard_normal(shape).astype(np.float32)
        weight[:, 0] = 0  # blocks of nothing else, too
        scheme = Scheme(dtype, shape, summed, 10, **options)
        for given in (weight, weight.astype("bfloat16")):
            here = scheme.encode(given)
            there = scheme._with_encoded_scales(*_encode_at_once(scheme, given))
            for (_, stored), own, part in zip(
                scheme.parts.values(), here, there, strict=True
            ):
                assert part.dtype == stored and part.shape == own.shape
            exact = given.astype(np.float32)
            errors = [
                np.abs(scheme.decode(*map(jax.device_put, parts)) - exact)
                for parts in (here, there)
            ]  # the numbers differ in the middle of two, where the errors are the same
            np.testing.assert_allclose(*errors, rtol=1e-4, atol=1e-6)
