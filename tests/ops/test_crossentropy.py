"""Tests of ``exburn.ops.crossentropy``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import B, K, S, X, Y, case
from tests.ops.check import Cases
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


UNKNOWN_BATCH = ["one_hot", "multi_hot"]


REFUSALS = [
(lambda: ops.one_hot([1], 3, sparse=True), errors.ArgumentError),
(lambda: ops.binary_crossentropy(ROWS, ROWS[:, :1]), errors.ShapeError),
(lambda: ops.sparse_categorical_crossentropy([1], ROWS), errors.ShapeError),
]  # fmt: skip
