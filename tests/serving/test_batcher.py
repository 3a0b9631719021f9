"""How requests become batches: with no threads, and no device."""

import threading
import time

import numpy as np
import pytest

from exburn import Serving
from exburn.errors import DeadlineExceededError, QueueFullError, ServingClosedError
from exburn.serving.answer import Answer
from exburn.serving.batcher import Batcher, Request
from exburn.serving.statistics import Recorder


def batcher(keys=("a",), size=3, timeout=60.0, most=99, whole=False, partitions=1):
    recorder = Recorder(size, (size,))
    return Batcher(
        keys,
        batch_size=size,
        timeout=timeout,
        most=most,
        whole=whole,
        partitions=partitions,
        recorder=recorder,
    )


def put(queue, rows, key="a", timeout=None, hold=False):
    deadline = None if timeout is None else time.monotonic() + timeout
    request = Request(key, [np.full((rows, 1), float(rows))], Answer(deadline))
    queue.put(request, hold=hold)
    return request


def pieces(batch):
    return [(start, rows) for _, start, rows in batch.pieces]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (False, [[(0, 2), (0, 1)], [(1, 1), (0, 2)]]),  # AAB BCC
        (True, [[(0, 2)], [(0, 2)], [(0, 2)]]),  # AA BB CC, as Nx with hooks
    ],
)
def test_requests_are_filled_up_in_order(whole, expected):
    queue = batcher(whole=whole)
    for _ in range(3):
        put(queue, 2)
    queue.close(drain=True)
    assert [pieces(queue.take(idle=True)) for _ in expected] == expected
    assert queue.take(idle=True) is None


def test_a_large_request_is_split_and_the_rest_stays():
    queue = batcher()
    put(queue, 7)
    assert pieces(queue.take(idle=True)) == [(0, 3)]
    assert pieces(queue.take(idle=True)) == [(3, 3)]
    assert queue.depth() == {"a": (1, 1)}
    assert queue.take(idle=False) is None  # one row: a busy partition leaves it


@pytest.mark.parametrize(
    ("partitions", "waiting", "expected"),
    [
        (1, 13, [12]),
        (1, 29, [24, 3]),
        (2, 23, [3, 3, 3, 3, 3, 3, 3]),  # seven full ones: three are the other's
        (2, 26, [12, 3, 3, 3, 3]),
    ],
)
def test_a_burst_leaves_as_many_to_other_partitions(partitions, waiting, expected):
    queue = batcher(partitions=partitions)
    queue.bursts = {"a": (8, 4)}
    for rows in (5, waiting - 5):
        put(queue, rows)
    found = []
    while (batch := queue.take(idle=False)) is not None:
        found.append(batch.rows)
        assert batch.rows == sum(rows for _, rows in pieces(batch))
    assert found == expected
    assert queue.depth()["a"][1] == waiting - sum(expected)


def test_a_burst_is_cut_into_batches():
    queue = batcher()
    queue.bursts = {"a": (4,)}
    late = put(queue, 2, timeout=0.0)
    for rows in (2, 7, 1):
        put(queue, rows)
    batch = queue.take(idle=False)
    assert batch.rows == 10  # two of the twelve were too late
    with pytest.raises(DeadlineExceededError):
        late.answer.result(0)
    parts = batch.cut(3)
    assert [pieces(part) for part in parts] == [
        [(0, 2), (0, 1)],
        [(1, 3)],
        [(4, 3)],
        [(0, 1)],
    ]
    assert [part.rows for part in parts] == [3, 3, 3, 1]
    assert [len(part.waits) for part in parts] == [3, 0, 0, 0]


def test_the_timer_starts_with_the_first_request():
    queue = batcher(timeout=0.4)
    began = time.monotonic()
    put(queue, 1)
    time.sleep(0.3)
    put(queue, 1)
    batch = queue.take(idle=True)
    waited = time.monotonic() - began
    assert batch.rows == 2
    assert 0.4 <= waited < 0.7  # from the second one it would be 0.7


def test_a_full_batch_does_not_wait():
    queue = batcher(timeout=60)
    put(queue, 2)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.take(idle=True)))
    thread.start()
    time.sleep(0.02)
    assert not taken
    put(queue, 1)
    thread.join(5)
    assert taken[0].rows == 3


def test_keys_never_merge_and_the_oldest_goes_first():
    queue = batcher(keys=("a", "b"), timeout=0.0)
    for key in "babba":
        put(queue, 1, key=key)
    batches = [queue.take(idle=True) for _ in range(2)]
    assert [(b.key, b.rows) for b in batches] == [("b", 3), ("a", 2)]
    for batch in batches:
        assert {request.key for request, _, _ in batch.pieces} == {batch.key}


def test_at_the_end_keys_are_not_mixed_up():
    """Nx #1287: at shutdown, batches of different keys were merged, and it hung."""
    queue = batcher(keys=("a", "b", "c"), timeout=60.0)
    for key in "abcabc":
        put(queue, 1, key=key)
    queue.close(drain=True)
    batches = [queue.take(idle=True) for _ in range(3)]
    assert [(b.key, b.rows) for b in batches] == [("a", 2), ("b", 2), ("c", 2)]
    assert queue.take(idle=True) is None


def test_a_timer_on_an_empty_stack_finds_nothing():
    """Nx #1347: a timer fired after its stack had been flushed, and all crashed."""
    queue = batcher(timeout=0.05)
    taken = []
    thread = threading.Thread(
        target=lambda: taken.extend([queue.take(idle=True), queue.take(idle=True)])
    )
    thread.start()
    first = put(queue, 1)
    assert first.answer.cancel()
    queue.drop(first)  # the stack is empty, its time goes on
    time.sleep(0.1)
    assert not taken
    put(queue, 3)  # fills the batch at once, before any timer
    queue.close(drain=True)
    thread.join(5)
    assert [b and b.rows for b in taken] == [3, None]


def test_a_timer_passes_to_another_partition():
    """The partition that knew the time of one key is taken away by another key."""
    queue = batcher(keys=("a", "b"), timeout=0.1)
    taken = []

    def work():
        taken.append((queue.take(idle=True).key, time.monotonic()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    put(queue, 1, key="b")
    time.sleep(0.02)
    put(queue, 3, key="a")  # full: whoever wakes takes it
    for thread in threads:
        thread.join(5)
    assert sorted(key for key, _ in taken) == ["a", "b"]


def test_a_busy_partition_leaves_full_batches_to_an_idle_one():
    queue = batcher()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.take(idle=True)))
    thread.start()
    while not queue._idle:
        time.sleep(0.001)
    with queue._lock:  # the idle one cannot wake up before the busy one has asked
        put(queue, 3)
        assert queue.take(idle=False) is None
    thread.join(5)
    assert taken[0].rows == 3


def test_the_queue_is_bounded_and_says_so():
    queue = batcher(most=2)
    first = put(queue, 1)
    put(queue, 1)
    with pytest.raises(QueueFullError, match="2 requests wait"):
        put(queue, 1)
    first.answer.cancel()
    queue.drop(first)
    put(queue, 1)
    assert queue.depth() == {"a": (2, 2)}


def test_cancelled_and_late_requests_are_dropped_before_they_are_batched():
    queue = batcher(timeout=0.0)
    cancelled, late, good = put(queue, 1), put(queue, 1, timeout=0.0), put(queue, 1)
    assert cancelled.answer.cancel()
    batch = queue.take(idle=True)
    assert [request for request, _, _ in batch.pieces] == [good]
    assert cancelled.answer.cancelled()
    assert type(late.answer.exception(0)).__name__ == "DeadlineExceededError"
    counts = queue.recorder.read((0, 0)).requests
    assert (counts["cancelled"], counts["expired"]) == (1, 1)
    assert queue.depth() == {"a": (0, 0)}


def test_closing_without_draining_fails_what_waits():
    queue = batcher()
    request = put(queue, 2)
    queue.close(drain=False)
    with pytest.raises(ServingClosedError):
        request.answer.result(0)
    with pytest.raises(ServingClosedError):
        put(queue, 1)
    assert queue.take(idle=True) is None


def test_pieces_are_joined_in_any_order_and_a_failure_ends_the_rest():
    queue = batcher()
    request = put(queue, 7)
    batches = [queue.take(idle=True) for _ in range(2)]
    queue.close(drain=True)
    batches.append(queue.take(idle=True))
    part = lambda *v: [np.array(v, np.float32)]  # noqa: E731
    assert queue.deliver(batches[2], part(6)) == []
    assert queue.deliver(batches[0], part(0, 1, 2)) == []
    ((same, whole),) = queue.deliver(batches[1], part(3, 4, 5))
    assert same is request and whole[0].tolist() == list(range(7))

    queue = batcher()
    request = put(queue, 7)
    batch = queue.take(idle=True)
    queue.fail(request, ValueError("boom"))
    assert queue.depth() == {"a": (0, 0)}  # its other rows are dropped
    assert queue.deliver(batch, part(0, 1, 2)) == []
    with pytest.raises(ValueError, match="boom"):
        request.answer.result(0)


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


def taken(queue):
    """What a partition gets that waits in a thread, as soon as it has it."""
    found = []
    thread = threading.Thread(target=lambda: found.append(queue.take(idle=True)))
    thread.start()
    while not queue._idle:
        time.sleep(0.001)
    return found, thread


def test_what_is_held_begins_together(monkeypatch):
    monkeypatch.setattr("exburn.serving.batcher._HELD", 60.0)
    queue = batcher(timeout=0.0)
    found, thread = taken(queue)
    put(queue, 1, hold=True)
    put(queue, 1, hold=True)
    queue.release()
    time.sleep(0.02)
    assert not found and queue._idle == 1
    queue.release()
    thread.join(10)
    assert [batch.rows for batch in found] == [2]


def test_a_full_batch_begins_though_it_is_held(monkeypatch):
    monkeypatch.setattr("exburn.serving.batcher._HELD", 60.0)
    queue = batcher(timeout=0.0)
    found, thread = taken(queue)
    put(queue, 2, hold=True)
    put(queue, 2, hold=True)
    thread.join(10)
    assert [batch.rows for batch in found] == [3]


def test_a_loop_that_never_goes_on_holds_up_nobody_for_long():
    queue = batcher(timeout=0.0)
    found, thread = taken(queue)
    put(queue, 1, hold=True)  # its release does not come
    put(queue, 1)
    thread.join(10)
    assert [batch.rows for batch in found] == [2]


def test_a_refused_request_holds_nothing():
    queue = batcher(timeout=0.0, most=1)
    put(queue, 1, hold=True)
    with pytest.raises(QueueFullError):
        put(queue, 1, hold=True)
    queue.release()
    assert queue.take(idle=True).rows == 1 and queue._held == 0
