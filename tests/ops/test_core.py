"""Tests of ``exburn.ops.core``, beside Keras' and on symbols."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.ops.cases import PLACES, B, K, S, V, X, Y, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import Input, errors, ops

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


UNKNOWN_FIRST = ["stop_gradient", "convert_to_tensor"]


def test_shape_of_a_symbol_goes_into_reshape():
    x = Input((4, 3))
    assert ops.shape(x) == (None, 4, 3)
    assert ops.reshape(x, (ops.shape(x)[0], 12)).shape == (None, 12)
    assert ops.size(x).shape == ()
    assert (ops.ndim(x), ops.dtype(x), ops.is_tensor(x)) == (3, "float32", False)
    assert ops.convert_to_tensor(x) is x
    assert ops.convert_to_tensor(x, "int32").dtype == "int32"


def test_all_that_follows_a_place():
    assert ops.slice(Input((5,)), (2, 1), (-1, -1)).shape == (None, 4)
    rest = ops.slice(ROWS, jnp.array([1, 2]), (-1, 3))
    np.testing.assert_array_equal(rest, ROWS[1:, 2:5])
    with pytest.raises(errors.ArgumentError, match="-1 needs a beginning"):
        jax.jit(lambda begin: ops.slice(ROWS, begin, (-1, 3)))(jnp.array([1, 2]))


REFUSALS = [
(lambda: ops.convert_to_tensor([1], sparse=True), errors.ArgumentError),
(lambda: ops.unstack(ROWS, num=3), errors.ShapeError),
(lambda: ops.scatter_update(ROWS, [[0]], ROWS, "mean"), errors.UnknownNameError),
]  # fmt: skip
