"""Threads of a streamed fit hand the interpreter over sooner; after it, as before."""

import sys

import pytest

from exburn.runtime.switch_interval import short_turns


def test_turns_are_short_while_any_block_lasts():
    before = sys.getswitchinterval()
    with pytest.raises(KeyError), short_turns():
        first, second = short_turns(), short_turns(False)
        with first, second:
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
        raise KeyError
    assert sys.getswitchinterval() == before


def test_shorter_ones_stay():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with short_turns():
            assert sys.getswitchinterval() < 2e-5
    finally:
        sys.setswitchinterval(before)
