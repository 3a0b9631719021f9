"""Threads that work ahead: how far, their errors, and that none is left."""

import gc
import sys
import threading
import time
import traceback

import jax
import pytest
from tests.training.batches import threads

from exburn.runtime.threads import Prefetch, short_turns


def test_items_are_made_ahead_but_not_without_end():
    made = []

    def source():
        for i in range(100):
            made.append(i)
            yield i

    with Prefetch(source, depth=2) as items:
        assert next(items) == 0
        time.sleep(0.05)
        assert len(made) == 4  # one taken, two ready, one waits for a place
    assert len(made) == 4 and list(items) == []
    assert threads() == []


def test_what_is_ready_is_taken_without_a_wait():
    go = threading.Event()

    def make():
        yield from range(2)
        go.wait()
        yield 2

    with Prefetch(make, depth=4) as items:
        while items._items.qsize() < 2:
            time.sleep(0.001)
        assert list(items.ready()) == [0, 1]
        assert list(items.ready()) == []
        go.set()
        assert list(items) == [2]
        assert list(items.ready()) == []


def test_an_error_is_raised_where_its_item_is_taken():
    def source():
        yield 1
        raise OSError("the disk is gone")

    with Prefetch(source) as items:
        assert next(items) == 1
        with pytest.raises(OSError, match="the disk is gone") as caught:
            next(items)
        assert list(items) == []  # once
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "source"


def test_the_source_is_closed_and_the_thread_ends_when_nobody_wants_more():
    closed = threading.Event()

    def source():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    items = Prefetch(source)
    thread = items._thread
    assert next(items) == 0
    del items  # without a close, as after Ctrl-C
    gc.collect()
    assert closed.wait(5)
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.usefixtures("cpu_only")
def test_the_thread_has_the_device_of_its_maker():
    device = jax.devices("cpu")[0]
    with jax.default_device(device):
        with Prefetch(lambda: [jax.config.jax_default_device]) as items:
            assert list(items) == [device]


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
