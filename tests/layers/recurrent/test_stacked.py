"""Tests of ``exburn.layers.recurrent.stacked``."""

import pytest
from tests.layers.peer import assert_same
from tests.layers.recurrent.sequences import X, both, mask_of

NESTS = {
    "stack-mask": (
        lambda L: L.RNN(
            L.StackedRNNCells([L.GRUCell(3), L.LSTMCell(4)]),
            return_sequences=True,
            return_state=True,
            go_backwards=True,
            zero_output_for_mask=True,
        ),
        X,
        "right",
    ),
}


@pytest.mark.parametrize("nest", NESTS)
def test_nests(nest):
    build, x, mask = NESTS[nest]
    call = {} if mask is None else {"mask": mask_of(mask)}
    assert_same(*both(build), x, **call)
