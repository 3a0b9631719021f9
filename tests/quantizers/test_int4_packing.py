"""Tests of ``exburn.quantizers.int4_packing``."""

import numpy as np
import pytest
from tests.quantizers.beside_keras import RNG, same

from exburn import quantizers

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
