"""Tests of ``exburn.utils.sources``."""

import exburn
from exburn import utils
from exburn.layers import Dense


def test_source_inputs():
    a, b = exburn.Input((3,), name="a"), exburn.Input((3,), name="b")
    hidden = Dense(2)(a)
    assert utils.get_source_inputs(hidden) == [a]
    both = exburn.ops.concatenate([hidden, b], axis=-1)
    assert {s.name for s in utils.get_source_inputs(both)} == {"a", "b"}
