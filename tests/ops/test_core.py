"""Tests of ``exburn.ops.core``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import (
    PLACES,
    B,
    K,
    S,
    V,
    X,
    Y,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values

CASES = Cases(
    {
        **{
            name: [case(np.concatenate([X, S]))]
            for name in (
                "stop_gradient shape dtype is_tensor convert_to_tensor convert_to_numpy"
            ).split()
        },
        "unstack": [case(X), case(X, axis=1), case(X, num=3)],
        "cast": [case(X, "int32"), case(K, "float16"), case(X, "bool")],
        "saturate_cast": [
            case(np.array([-3.7, 2.5, 300.0, 1e20], "float32"), "uint8"),
            case(np.array([-3.7, 1e20, -1e20], "float32"), "int32"),
            case(np.array([-3, 300], "int32"), "int8"),
            case(np.array([-3, 300], "int32"), "float16"),
            case(np.array([0, 300], "uint16"), "int8"),
            case(np.array([1e6, -1e6], "float32"), "float16"),
            case(B, "float32"),
        ],
        "slice": [case(X, (1, 2), (2, 2)), case(X, (1, 2), (-1, -1))],
        "slice_update": [case(X, (1, 2), Y[:2, :2])],
        "scatter": [case(PLACES, V[:2], (3, 2)), case(PLACES[:, :1], X[:2], (3, 4))],
        "scatter_update": [
            case(X, [[0, 1], [2, 0]], [5.0, 6.0]),
            case(X, [[0], [0]], Y[:2], "add"),
            case(X, [[0, 0], [0, 0]], [5.0, 6.0], "max"),
            case(X, [[0, 0], [0, 0]], [5.0, 6.0], "min"),
            case(X, [[0, 0], [0, 0]], [5.0, 6.0], "mul"),
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


@pytest.mark.parametrize("name", ["stop_gradient", "convert_to_tensor"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name, first_is_unknown=True)
