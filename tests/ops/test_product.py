"""Tests of ``exburn.ops.product``, beside Keras' and on symbols."""

from tests.ops.cases import I8, J, K, M, P, V, W, X, Y, case
from tests.ops.check import Cases

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


UNKNOWN_BATCH = ["einsum", "matmul"]
