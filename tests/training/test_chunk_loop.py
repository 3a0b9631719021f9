"""The order in which a loop over chunks calls programs, hooks and waits."""

import pytest

from exburn.errors import DataError
from exburn.training.agreement import Agreement
from exburn.training.chunk_loop import IN_FLIGHT, ChunkHandler, run_chunks
from exburn.training.feed.chunk import Chunk
from exburn.training.state_holder import StateHolder


class Told(ChunkHandler):
    """Notes all that it is called for; it ends after some chunk."""

    hears = True

    def __init__(self, last=None, program=lambda value: value):
        super().__init__(Agreement(StateHolder(None, None, 0, False), None, "fit"))
        self.events, self._last, self._program = [], last, program

    def begin(self, chunk):
        self.events.append(("begin", self.done))
        return self._program, (self.done,), {}

    def take(self, chunk, results):
        self.events.append(("take", results))
        return results

    def call_hooks(self, chunk):
        self.events.append(("hooks", self.done))

    def after(self):
        self.events.append(("after", self.done))
        return self.done == self._last

    def wait(self):
        self.events.append(("wait", self.flight.popleft()))


def chunks(count, closed):
    try:
        for _ in range(count):
            yield Chunk(None, None, None, 2, 2)
    finally:
        closed.append(True)


def test_a_chunk_is_begun_taken_told_and_followed():
    closed, handler = [], Told()
    for _ in run_chunks(chunks(2, closed), handler):
        handler.events.append("pause")
    assert handler.events == [
        *[("begin", 0), ("take", 0), ("hooks", 2), "pause", ("after", 2)],
        *[("begin", 2), ("take", 2), ("hooks", 4), "pause", ("after", 4)],
    ]
    assert closed and handler.done == 4 and len(handler.flight) == 2


def test_the_loop_waits_for_what_is_too_far_ahead():
    handler = Told()
    handler.hears = False
    list(run_chunks(chunks(IN_FLIGHT + 2, []), handler))
    assert [event for event in handler.events if event[0] == "wait"] == [
        ("wait", 0),
        ("wait", 2),
    ]


def test_what_ends_the_loop_closes_the_chunks():
    closed, handler = [], Told(last=2)
    list(run_chunks(chunks(5, closed), handler))
    assert closed and handler.done == 2


def test_an_error_says_in_which_batch_it_is():
    def fail(done):
        raise DataError("fit", "a batch is wrong")

    closed, handler = [], Told(program=fail)
    handler.place = "epoch"
    with pytest.raises(DataError) as caught:
        list(run_chunks(chunks(5, closed), handler))
    assert caught.value.places == ["in batch 0 of the epoch, or after it"]
    assert closed and not handler.done
