"""Tests of ``exburn.ops.reduction``, beside Keras' and on symbols."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.ops.cases import B, Draws, J, K, N, S, V, W, X, Y, axes, axis, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        **{
            name: axes()
            for name in (
                "amax amin logsumexp max mean median min nanmax nanmean nanmedian"
                " nanmin nanprod nanstd nansum nanvar prod ptp std sum var"
            ).split()
        },
        "all": axes(B),
        "any": axes(B),
        "argmax": axis(),
        "argmin": axis(),
        "nanargmax": axis(N[:, [0, 2]]),
        "nanargmin": axis(N),
        "argpartition": [case(V, 2), case(V[:, None], 2, axis=None)],
        "argsort": [case(S), case(S, 0)],
        "sort": [case(S), case(S, 0)],
        "average": [case(X), case(X, 1, weights=W), case(X, axis=0, weights=X[:, 0])],
        "bincount": [case(ints(9)), case(ints(9), floats(9), 8), case(K, None, 7)],
        "count_nonzero": [case(K), case(K, axis=1)],
        "cumprod": [case(X), case(X, 1)],
        "cumsum": [case(X), case(K, 1, dtype="float32")],
        "nancumprod": [case(N), case(N, 1)],
        "nancumsum": [case(N), case(N, 1)],
        "diff": [case(X), case(X, 2, 0)],
        "digitize": [case(X, np.array([0.2, 0.5, 0.7], "float32"))],
        "histogram": [case(V), case(V, bins=4, range=(0.0, 1.0))],
        "isin": [case(K, [1, 2]), case(K, J[0], invert=True)],
        "percentile": [
            case(X, 30),
            case(X, [10, 90], axis=1),
            case(X, 40, method="lower"),
        ],
        "quantile": [case(X, 0.3), case(X, [0.1, 0.9], axis=1, keepdims=True)],
        "nanpercentile": [case(N, 30, axis=1)],
        "nanquantile": [case(N, 0.3, axis=1)],
        "searchsorted": [case(np.sort(V), W), case(np.sort(V), W, side="right")],
        "trapezoid": [case(X), case(X, Y, axis=0), case(X, dx=2.0)],
        "unique": [case(K), case(K, return_counts=True, return_inverse=True)],
        "nonzero": [case(K)],
    }
)


UNKNOWN_BATCH = (
    "amax amin logsumexp max mean median min nanmax nanmean nanmedian"
    " nanmin nanprod nanstd nansum nanvar prod ptp std sum var argsort"
    " sort cumsum"
).split()


REFUSALS = [
(lambda: ops.histogram(ROWS, 0), errors.ArgumentError),
(lambda: ops.histogram(ROWS, range=(2, 1)), errors.ArgumentError),
]  # fmt: skip


def test_bincount_in_compiled_code_needs_a_length():
    with pytest.raises(errors.ArgumentError, match="minlength"):
        jax.jit(ops.bincount)(jnp.arange(3))
    counts = jax.jit(lambda x: ops.bincount(x, minlength=4))(jnp.arange(3))
    assert counts.tolist() == [1, 1, 1, 0]
