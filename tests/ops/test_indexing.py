"""Tests of ``exburn.ops.indexing``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import IDS, IMAGES, Draws, X, Y, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "top_k": [case(X, 2)],
        "in_top_k": [
            case(ints(3, high=4), X, 2),
            case(np.array([0, 1]), np.array([[1, 1.0], [0, 1]]), 1),
        ],
        "segment_max": [case(X, IDS, 3)],
        "segment_min": [case(X, IDS, 3)],
        "segment_prod": [case(X, IDS, 3)],
        "segment_sum": [case(X, IDS, 3)],
        "cdist": [case(X, Y), case(IMAGES[0], IMAGES[1])],
    }
)


UNKNOWN_BATCH = ["top_k"]


REFUSALS = [
(lambda: ops.segment_sum(ROWS, [0, 1]), errors.ShapeError),
]  # fmt: skip
