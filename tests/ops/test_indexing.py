"""Tests of ``exburn.ops.indexing``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import (
    IDS,
    IMAGES,
    Draws,
    X,
    Y,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "top_k": [case(X, 2)],
        "in_top_k": [
            case(ints(3, high=4), X, 2),
            case(np.array([0, 1]), np.array([[1, 1.0], [0, 1]]), 1),
        ],
        "segment_max": [case(X, IDS, 3)],
        "segment_min": [case(X, IDS, 3)],
        "segment_prod": [case(X, IDS, 3)],
        "segment_sum": [case(X, IDS, 3)],
        "cdist": [case(X, Y), case(IMAGES[0], IMAGES[1])],
    }
)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i, golden):
    check_values(CASES, name, i, golden)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    check_symbols(CASES, name, i)


@pytest.mark.parametrize("name", ["top_k"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)


@pytest.mark.parametrize(
    ("call", "error"),
    [
(lambda: ops.segment_sum(ROWS, [0, 1]), errors.ShapeError),
],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call()
