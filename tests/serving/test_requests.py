"""Requests: refused, failed, cancelled, late, and at the end of a serving."""

import asyncio
import concurrent.futures
import gc
import time

import numpy as np
import pytest

import exburn
from exburn import Serving, layers
from exburn.errors import (
    BatchFailedError,
    DataError,
    DeadlineExceededError,
    DTypeError,
    QueueFullError,
    ServingClosedError,
    ShapeError,
)

BAD = {
    "shape": (lambda x: x[:, :7], ShapeError, r"float32\[None, 8\]"),
    "rank": (lambda x: x[0], ShapeError, "first axis"),
    "scalar": (lambda x: np.float32(1), ShapeError, "scalar"),
    "empty": (lambda x: x[:0], DataError, "empty"),
    "strings": (lambda x: np.array([["a"] * 8]), DTypeError, "strings"),
    "two": (lambda x: [x, x], DataError, "must hold"),
    "other name": (lambda x: {"a": x, "b": x}, DataError, "must hold"),
    "unknown name": (lambda x: {"other": x}, DataError, "must hold"),
    "nan": (lambda x: x * np.nan, DataError, "NaN"),
    "loader": (lambda x: iter([x]), DTypeError, "stream"),
    "none": (lambda x: None, DataError, "None"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_raises_before_it_is_queued(mlp, rows, name):
    change, error, text = BAD[name]
    with Serving(mlp, batch_size=2, padding=[2], check_numerics=True) as serving:
        for send in (serving, serving.submit, lambda x: asyncio.run(serving.arun(x))):
            with pytest.raises(error, match=text):
                send(change(rows(2)))
        counts = serving.statistics().requests
    assert (counts["invalid"], counts["accepted"]) == (3, 0)


def test_ids_beyond_the_table_are_refused():
    model = exburn.Sequential(
        [exburn.Input((2,), dtype="int32"), layers.Embedding(5, 3)]
    )
    with Serving(model, batch_size=2, batch_timeout=0.0, padding=[2]) as serving:
        assert serving(np.array([[0, 4]])).shape == (1, 2, 3)
        with pytest.raises(DataError, match="from 0 to 4"):
            serving(np.array([[0, 5]]))
        assert serving(np.array([[0.0, 1.0]])).shape == (1, 2, 3)
        with pytest.raises(DataError, match="must hold int32"):
            serving(np.array([[0.0, 1.5]]))


def test_nan_passes_unless_it_is_refused(serving, rows):
    assert np.isnan(serving(rows(1) * np.nan)).all()


def test_a_failure_reaches_the_callers_of_its_batch_only(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        good, poison, mate, later = (
            serving.submit(gate.row(*v)) for v in ([1.0, 2.0], [-1.0], [3.0], [4.0])
        )
        gate.open.set()
        assert good.result(20).tolist() == [[2], [4]]
        for future in (poison, mate):
            with pytest.raises(BatchFailedError, match="poison") as raised:
                future.result(20)
            assert raised.value.__cause__ is not None
        assert poison.exception() is not mate.exception()
        assert later.result(20).item() == 8
        assert serving(gate.row(5.0)).item() == 10  # the partition lives
        assert serving.statistics().requests["failed"] == 2
        assert serving.status()["running"] == [0]


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


def test_a_full_queue_says_so(gate):
    options = {"batch_size": 2, "batch_timeout": 0.0, "max_queue": 1}
    with Serving(gate, example=gate.row(0), **options) as serving:
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        with pytest.raises(QueueFullError, match="max_queue"):
            serving(gate.row(2.0))
        gate.open.set()
        assert waiting.result(20).item() == 2
        assert serving.statistics().requests["refused"] == 1


def test_closing_drains(gate):
    options = {"batch_size": 2, "batch_timeout": 10, "example": gate.row(0)}
    with Serving(gate, **options) as serving:
        futures = [serving.submit(gate.row(float(v))) for v in range(1, 6)]
    assert [f.result(0).item() for f in futures] == [2, 4, 6, 8, 10]
    assert serving.closed and serving.status()["state"] == "closed"
    with pytest.raises(ServingClosedError):
        serving(gate.row(1.0))
    serving.close()  # again does nothing


def test_closing_without_draining_or_time(gate):
    for options in ({"drain": False, "timeout": 20}, {"timeout": 0.05}):
        serving = Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0))
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        if not options.get("drain", True):
            gate.open.set()
        serving.close(**options)
        if options.get("drain", True):
            with pytest.raises(ServingClosedError):
                waiting.result(0)
        gate.open.set()
        assert gate.held.result(20).item() == 18  # what ran was awaited
        serving.close()


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


def test_a_callback_cannot_end_the_partition(serving, rows, caplog):
    def leave(answer):
        raise SystemExit

    serving.submit(rows(1)).add_done_callback(leave)
    assert serving(rows(2), timeout=20).shape == (2, 3)
    assert "callback" in caplog.text


def test_the_callers_array_may_change_after_submit(gate):
    with Serving(gate, batch_size=1, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        x = gate.row(1.0)
        future = serving.submit(x)
        seen = serving.submit(y := gate.row(1.0), copy=False)
        x[:] = y[:] = 100
        gate.open.set()
        assert (future.result(20).item(), seen.result(20).item()) == (2, 200)
