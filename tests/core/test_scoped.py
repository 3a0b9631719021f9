"""Context variables within a block."""

import contextvars

import pytest

from exburn.core.scoped import value_scope


def test_what_was_before_comes_back_whatever_happens():
    depth = contextvars.ContextVar("depth", default=0)
    with value_scope(depth, 1) as outer:
        with pytest.raises(KeyError), value_scope(depth, 2):
            assert (outer, depth.get()) == (1, 2)
            raise KeyError
        assert depth.get() == 1
    assert depth.get() == 0
