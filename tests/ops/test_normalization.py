"""Tests of ``exburn.ops.normalization``, beside Keras' and on symbols."""

import pytest
from tests.ops.cases import (
    IMAGES,
    Draws,
    K,
    S,
    V,
    W,
    X,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "batch_normalization": [
            case(X, V, W, -1),
            case(X, V, W, -1, W, V, 0.1),
            case(K, V, W, -1),
            case(IMAGES, floats(6), floats(6), 1, scale=floats(6)),
        ],
        "layer_normalization": [
            case(X),
            case(X, V, W, epsilon=0.1),
            case(IMAGES, floats(8, 3), axis=(2, 3)),
        ],
        "rms_normalization": [case(X), case(X, V, epsilon=0.1)],
        "moments": [case(X, 0), case(IMAGES, (1, 2), keepdims=True)],
        "normalize": [case(S), case(S, 0, 1), case(S, -1, 3)],
    }
)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i, golden):
    check_values(CASES, name, i, golden)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    check_symbols(CASES, name, i)


@pytest.mark.parametrize(
    "name",
    ("batch_normalization layer_normalization rms_normalization normalize").split(),
)
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)
