"""Tests of ``exburn.ops.linalg``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import K, M, P, V, X, Y, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

CASES = Cases(
    {
        "cholesky": [case(P), case(P, upper=True)],
        "cholesky_inverse": [case(np.linalg.cholesky(P[0]))],
        "det": [case(M)],
        "eigh": [case(P[0])],
        "inv": [case(M)],
        "logdet": [case(P)],
        "lstsq": [case(X, V[:3]), case(X.T, Y.T)],
        "lu_factor": [case(M[0]), case(M), case(K[:, :3])],
        "matrix_rank": [case(M), case(np.ones((3, 3), "float32"))],
        "norm": [case(X), case(M, "fro", (1, 2)), case(X, 1, 1, True), case(K)],
        "pinv": [case(X)],
        "qr": [case(X), case(X, "complete")],
        "solve": [case(M, P), case(M[0], V[:3])],
        "solve_triangular": [
            case(np.tril(M), P, lower=True),
            case(np.triu(M[0]), V[:3]),
        ],
        "svd": [case(X, compute_uv=False), case(X, full_matrices=False)],
    }
)


def test_eig():
    matrix = ROWS[:, :4]
    values, vectors = ops.eig(matrix)
    np.testing.assert_allclose(matrix @ vectors, values * vectors, atol=1e-4)


REFUSALS = [
(lambda: ops.cholesky([[1.0, 2.0], [2.0, 1.0]]), errors.DataError),
]  # fmt: skip
