"""Context variables within a block."""

import contextvars

import pytest

from exburn.core.scoped import scoped


def test_what_was_before_comes_back_whatever_happens():
    depth = contextvars.ContextVar("depth", default=0)
    with scoped(depth, 1) as outer:
        with pytest.raises(KeyError), scoped(depth, 2):
            assert (outer, depth.get()) == (1, 2)
            raise KeyError
        assert depth.get() == 1
    assert depth.get() == 0
