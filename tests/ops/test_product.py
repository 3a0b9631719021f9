"""Tests of ``exburn.ops.product``, beside Keras' and on symbols."""

import pytest
from tests.ops.cases import (
    I8,
    J,
    K,
    M,
    P,
    V,
    W,
    X,
    Y,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values

CASES = Cases(
    {
        "corrcoef": [case(X)],
        "correlate": [case(V, W), case(V, W[:2], "full")],
        "cross": [case(X[:, :3], Y[:, :3])],
        "dot": [case(X, Y.T), case(V, W)],
        "einsum": [
            case("ij,kj->ik", X, Y),
            case("bij,bjk->bik", M, M),
            case("ij,kj->ik", I8, I8),
        ],
        "inner": [case(V, W), case(X, Y)],
        "kron": [case(X, Y[:2])],
        "matmul": [
            case(X, Y.T),
            case(M, P),
            case(K, J.T),
            case(I8, I8.T),
            case(I8, I8[0]),
        ],
        "outer": [case(V, W)],
        "tensordot": [case(X, Y, [[0], [0]]), case(X, Y.T, 1)],
        "vdot": [case(V, W)],
        "slogdet": [case(M)],
    }
)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i, golden):
    check_values(CASES, name, i, golden)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    check_symbols(CASES, name, i)


@pytest.mark.parametrize("name", ["einsum", "matmul"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)
