"""Tests of ``exburn.quantizers.packing``."""

import numpy as np
import pytest
from tests.quantizers.beside_keras import RNG, same

from exburn import quantizers
from exburn.errors import ArgumentError, DTypeError

peer = pytest.importorskip("keras").quantizers


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


def test_bytes_that_do_not_belong_to_a_size_are_refused():
    for bits in ("int2", "int4", "ternary"):
        packed, _, size = getattr(quantizers, f"pack_{bits}")(np.zeros((7, 2), "int8"))
        unpack = getattr(quantizers, f"unpack_{bits}")
        assert unpack(packed, size).shape == (7, 2)
        for wrong in (0, size + 8, size - 5, 2.5):
            with pytest.raises(ArgumentError, match="orig_len"):
                unpack(packed, wrong)
        with pytest.raises(DTypeError):
            unpack(packed.astype("int32"), size)


def test_what_is_no_number_of_few_bits_is_refused():
    for pack in (quantizers.pack_int2, quantizers.pack_int4):
        with pytest.raises(DTypeError):
            pack(np.zeros(4, "uint8"))
        with pytest.raises(ArgumentError):
            pack(np.zeros(4, "int16"), dtype="int16")


@pytest.mark.parametrize("size", range(1, 12))
def test_three_values_come_back_at_any_length(size):
    values = RNG.integers(-1, 2, (size, 3)).astype("int8")
    packed, shape, found = quantizers.pack_ternary(values)
    assert packed.shape == shape == (-(-size // 5), 3) and found == size
    np.testing.assert_array_equal(quantizers.unpack_ternary(packed, size), values)
    signed = packed.view("int8")  # a byte is a byte
    np.testing.assert_array_equal(quantizers.unpack_ternary(signed, size), values)
