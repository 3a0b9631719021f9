"""Tests of ``exburn.ops.similarity``, beside Keras' and on symbols."""

import pytest
from tests.ops.cases import (
    Draws,
    X,
    Y,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "psnr": [case(X, Y, 1.0)],
        "image.ssim": [
            case(floats(2, 16, 16, 3), floats(2, 16, 16, 3)),
            case(floats(12, 14, 1), floats(12, 14, 1), filter_size=7),
        ],
    }
)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i, golden):
    check_values(CASES, name, i, golden)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    check_symbols(CASES, name, i)


@pytest.mark.parametrize("name", ["image.ssim"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)
