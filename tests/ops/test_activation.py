"""Tests of ``exburn.ops.activation``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import S, X, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import layers, ops

CASES = Cases(
    {
        **{
            name: [case(np.concatenate([X, S]))]
            for name in (
                "log_sigmoid hard_sigmoid hard_silu hard_swish hard_tanh relu relu6"
                " selu sigmoid silu softplus softsign sparse_plus sparse_sigmoid"
                " squareplus swish tanh_shrink"
            ).split()
        },
        **{
            name: [case(S)]
            for name in (
                "celu elu glu hard_shrink leaky_relu log_softmax soft_shrink softmax"
            ).split()
        },
        "gelu": [case(S), case(S, False)],
        "threshold": [case(S, 0.5, 0.0)],
    }
)


UNKNOWN_BATCH = ["glu", "softmax"]


UNKNOWN_FIRST = (
    "log_sigmoid hard_sigmoid hard_silu hard_swish hard_tanh relu relu6"
    " selu sigmoid silu softplus softsign sparse_plus sparse_sigmoid"
    " squareplus swish tanh_shrink"
).split()


def test_sparsemax_is_a_distribution():
    rows = ops.sparsemax(ROWS)
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-6)
    assert (rows == 0).any() and (rows >= 0).all()


def test_a_softmax_of_one_value_warns():
    for softmax in (ops.softmax, layers.Softmax()):
        with pytest.warns(UserWarning, match="Is sigmoid meant"):
            assert softmax(ROWS[:, :1]).tolist() == [[1], [1], [1], [1]]
