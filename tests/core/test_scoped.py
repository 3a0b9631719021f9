"""Context variables within a block."""

import contextvars
import dataclasses

import pytest

from exburn.core.scoped import Scoped, value_scope


def test_what_was_before_comes_back_whatever_happens():
    depth = contextvars.ContextVar("depth", default=0)
    with value_scope(depth, 1) as outer:
        with pytest.raises(KeyError), value_scope(depth, 2):
            assert (outer, depth.get()) == (1, 2)
            raise KeyError
        assert depth.get() == 1
    assert depth.get() == 0


@dataclasses.dataclass(frozen=True)
class Style:
    bold: bool = False
    size: int = 10


def test_blocks_change_some_of_the_values_that_belong_together():
    style = Scoped(Style())
    with style.change(bold=True) as outer, style.change(size=12):
        assert outer == Style(True, 10) and style.get() == Style(True, 12)
    with pytest.raises(KeyError), style.change(size=8):
        raise KeyError
    assert style.get() == Style()
