"""What a caller holds of a request: cancelled, late, and gone without a trace."""

import asyncio
import concurrent.futures
import gc
import time

import pytest

from exburn import Serving
from exburn.errors import DeadlineExceededError


def test_a_request_that_waits_can_be_cancelled_and_one_that_runs_cannot(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        assert not gate.held.cancel()
        assert waiting.cancel() and waiting.cancelled()
        assert serving.status()["queue_depth"] == 0

        async def cancelled():
            task = asyncio.ensure_future(serving.arun(gate.row(2.0)))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        gate.open.set()
        assert gate.held.result(20).item() == 18
        assert serving(gate.row(3.0)).item() == 6
        assert [1.0] not in gate.batches and [2.0] not in gate.batches
        assert serving.statistics().requests["cancelled"] == 2
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result()


def test_deadlines_hold_whoever_waits(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            serving(gate.row(1.0), timeout="30 ms")
        with pytest.raises(DeadlineExceededError):
            asyncio.run(serving.arun(gate.row(1.0), timeout=0.03))
        future = serving.submit(gate.row(1.0), timeout=0.03)
        with pytest.raises(TimeoutError):
            future.result(timeout=0.01)
        assert not future.done()
        with pytest.raises(DeadlineExceededError):
            future.result()
        assert time.monotonic() - began < 5
        assert serving.status()["queue_depth"] == 0
        gate.open.set()
        gate.held.result(20)
        gate.open.clear()
        runs = serving.submit(gate.row(2.0), timeout=1.0)
        assert gate.entered.acquire(timeout=20)
        with pytest.raises(DeadlineExceededError):  # although it is running
            runs.result()
        gate.open.set()
        assert serving(gate.row(3.0)).item() == 6
        assert serving.statistics().requests["expired"] == 4
    assert gate.batches[-1] == [3.0]


def test_a_request_leaves_nothing_behind(serving, rows):
    """Without the garbage collector: in a cycle, large arrays would pile up."""
    from exburn.serving.answer import Answer
    from exburn.serving.batcher import Request

    async def two():
        await serving.arun(rows(2), timeout=60)
        await serving.arun(rows(2))

    def left():
        return sum(isinstance(o, Request | Answer) for o in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        for timeout in (None, 60):
            serving(rows(20), timeout=timeout)
            serving.submit(rows(2), timeout=timeout).result()
        asyncio.run(two())
        # The thread of the device lets go of the last one after its caller has it.
        until = time.monotonic() + 10
        while left() > before and time.monotonic() < until:
            time.sleep(0.01)
        assert left() <= before
    finally:
        gc.enable()
