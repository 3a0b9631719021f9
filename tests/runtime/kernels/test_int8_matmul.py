"""Tests of ``exburn.runtime.kernels.int8_matmul``."""

import jax
import numpy as np
import pytest

from exburn.runtime.kernels import int8_matmul

RNG = np.random.default_rng(0)
A = RNG.integers(-128, 128, (2, 3, 5)).astype("int8")
B = RNG.integers(-128, 128, (2, 5, 4)).astype("int8")


def test_sums_are_taken_in_int32():
    exact = A.astype(int) @ B.astype(int)
    assert np.abs(exact).max() > 127
    out = jax.jit(int8_matmul.matmul)(A, B)
    assert out.dtype == "int32"
    np.testing.assert_array_equal(out, exact)
    np.testing.assert_array_equal(int8_matmul.einsum("bij,bjk->bik", A, B), exact)


@pytest.mark.parametrize(
    ("x", "y"), [(A, B[0, :, 0]), (A[0, 0], B), (A[0, 0], A[0, 0])]
)
def test_vectors_are_multiplied_too(x, y):
    np.testing.assert_array_equal(
        int8_matmul.matmul(x, y), np.matmul(x.astype(int), y.astype(int))
    )


def test_other_dtypes_are_left_to_jax():
    assert int8_matmul.matmul(A, B.astype("float32")).dtype == "float32"
    assert int8_matmul.einsum("i,i", A[0, 0], np.ones(5, "int16")).dtype == "int16"


def test_on_a_gpu_the_terms_are_filled_up_to_sixteen(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    full = int8_matmul.pad_to_tiles(jax.numpy.asarray(A), -1)
    assert full.shape == (2, 3, 16)
    assert not np.asarray(full[..., 5:]).any()
    assert int8_matmul.pad_to_tiles(jax.numpy.asarray(A[..., :4]), -1).shape == (
        2,
        3,
        4,
    )
