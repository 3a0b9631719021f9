"""Tests of ``exburn.quantizers.rounding``."""

import pytest
from tests.quantizers.beside_keras import X, same

from exburn import quantizers
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

peer = pytest.importorskip("keras").quantizers

CALLS = {
    "abs max": ("abs_max_quantize", (X, -1), {}),
    "axes": ("abs_max_quantize", (X, (0, 1)), {"value_range": (-8, 7)}),
    "host": ("abs_max_quantize", (X, 0), {"to_numpy": True}),
    "grouped": ("abs_max_quantize_grouped_with_zero_point", (X, 3), {}),
}


@pytest.mark.parametrize("name, args, options", CALLS.values(), ids=CALLS)
def test_a_function_gives_what_keras_gives(name, args, options):
    same(
        getattr(quantizers, name)(*args, **options),
        getattr(peer, name)(*args, **options),
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
