"""Tests of ``exburn.ops.creation``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import S, V, W, X, case
from tests.ops.check import Cases

from exburn import ops

CASES = Cases(
    {
        "array": [case(np.concatenate([X, S]))],
        "vander": [case(V), case(V, 3, True)],
        "arange": [case(5), case(1, 7, 2), case(0, 1, 0.25), case(3, dtype="float32")],
        "bartlett": [case(7)],
        "blackman": [case(7)],
        "hamming": [case(7)],
        "hanning": [case(7)],
        "kaiser": [case(7, 8.0)],
        "empty": [case((2, 3), "int32")],
        "empty_like": [case(X, "int32")],
        "eye": [case(3), case(3, 4, 1, "int32")],
        "full": [case((2, 3), 7), case((2,), 1.5, "float16")],
        "full_like": [case(X, 2), case(X, 2, "int32")],
        "geomspace": [case(1.0, 8.0, 4)],
        "identity": [case(3)],
        "linspace": [case(0, 1, 5), case(V, W + 1, 4, axis=1), case(0, 3, 4, False)],
        "logspace": [case(0, 2, 5), case(0.0, 1.0, 4, base=2)],
        "ones": [case((2, 3)), case(4, "bool")],
        "ones_like": [case(X), case(X, "int32")],
        "tri": [case(3), case(3, 4, -1, "int32")],
        "zeros": [case((2, 3)), case((), "int32")],
        "zeros_like": [case(X), case(X, "bool")],
    }
)


def test_numbers_taken_out_may_be_changed():
    x = ops.ones(3)
    numbers = ops.convert_to_numpy(x)
    numbers[0] = 5
    assert x.tolist() == [1, 1, 1]
