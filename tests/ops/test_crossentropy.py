"""Tests of ``exburn.ops.crossentropy``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import (
    B,
    K,
    S,
    X,
    Y,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values
from tests.ops.small import ROWS

from exburn import errors, ops

CASES = Cases(
    {
        "one_hot": [
            case(K, 5),
            case(K, 4, axis=1, dtype="int32"),
            case(np.array([1, -1]), 3),
        ],
        "multi_hot": [case(K, 5), case(np.array([0, 2]), 4), case(K, 6, dtype="int32")],
        "binary_crossentropy": [case(B.astype("float32"), X), case(Y, S, True)],
        "categorical_crossentropy": [
            case(Y, X),
            case(Y, S, from_logits=True),
            case(Y, X, axis=0),
        ],
        "sparse_categorical_crossentropy": [
            case(K[:, 0] % 4, X),
            case(K[:, :1] % 4, S, from_logits=True),
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


@pytest.mark.parametrize("name", ["one_hot", "multi_hot"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)


@pytest.mark.parametrize(
    ("call", "error"),
    [
(lambda: ops.one_hot([1], 3, sparse=True), errors.ArgumentError),
(lambda: ops.binary_crossentropy(ROWS, ROWS[:, :1]), errors.ShapeError),
(lambda: ops.sparse_categorical_crossentropy([1], ROWS), errors.ShapeError),
],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call()
