"""Tests of ``exburn.ops.alignment``, beside Keras' and on symbols."""

import pytest
from tests.ops.cases import (
    LENGTHS,
    Draws,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "ctc_loss": [
            case(ints(2, 3, low=1), floats(2, 8, 5), LENGTHS - 5, LENGTHS),
            case(
                ints(2, 3, high=4), floats(2, 8, 5), LENGTHS - 5, LENGTHS, mask_index=4
            ),
        ],
        "ctc_decode": [
            case(floats(2, 8, 4, low=-3, high=3), LENGTHS),
            case(floats(2, 8, 4, low=-3, high=3), LENGTHS - 1, merge_repeated=False),
            case(
                floats(2, 4, 3, low=-3, high=3),
                LENGTHS - 4,
                "beam_search",
                60,
                3,
                mask_index=1,
            ),
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


@pytest.mark.parametrize("name", ["ctc_loss", "ctc_decode"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)


@pytest.mark.parametrize(
    ("call", "error"),
    [
(lambda: ops.ctc_decode(ROWS[None], [4], "best"), errors.UnknownNameError),
],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call()
