"""The queue of requests, and how they become batches.

Partitions pull: a batch is made when a partition asks for one, of what waits at that
moment. So a batch keeps growing while all partitions are busy, and no timer has to be
set or stopped: the time at which a stack is due follows from its oldest request.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterable
from typing import Any

import numpy as np

from exburn.errors import DeadlineExceededError, QueueFullError, ServingClosedError
from exburn.serving.answer import Answer
from exburn.serving.statistics import Recorder

_WAITING, _RUNNING, _DONE = range(3)
_HELD = 5e-3  # seconds that a batch waits at most for the others of ``hold``


class Request:
    """A request: rows that are cut into pieces, run, and joined again.

    Args:
        values: The arrays, rows first.
        listener: Called with the name and rows of each hook's value, or ``None``.
    """

    __slots__ = (
        *("__weakref__", "answer", "arrived", "key", "left", "listener", "outputs"),
        *("rows", "state", "taken", "values"),
    )

    def __init__(
        self,
        key: Hashable,
        values: list[np.ndarray],
        answer: Answer,
        listener: Callable[[str, Any], None] | None = None,
    ):
        self.key, self.values, self.answer = key, values, answer
        self.listener = listener
        self.rows = self.left = len(values[0])
        self.taken = 0  # rows that are in a batch
        self.state = _WAITING
        self.arrived = 0.0
        self.outputs: list[np.ndarray] | None = None


@dataclasses.dataclass
class Batch:
    """Rows that run together: one batch, or a burst of several full ones.

    Attributes:
        key: Their batch key; batches of different keys never merge.
        pieces: ``(request, first row, rows)`` in the order of the batch.
        waits: Seconds that the requests waited whose first rows these are.
    """

    key: Hashable
    pieces: list[tuple[Request, int, int]]
    rows: int
    waits: list[float]

    def cut(self, size: int) -> list[Batch]:
        """The same rows in batches of ``size``; only the last may have fewer."""
        parts = [Batch(self.key, [], 0, self.waits)]
        for request, start, rows in self.pieces:
            while rows:
                if parts[-1].rows == size:
                    parts.append(Batch(self.key, [], 0, []))
                part = parts[-1]
                count = min(size - part.rows, rows)
                part.pieces.append((request, start, count))
                part.rows += count
                start, rows = start + count, rows - count
        return parts


class Probe(concurrent.futures.Future):
    """A task for one partition: to run a batch of zeros, and to tell the seconds."""


class _Stack:
    """The requests of one key, oldest first."""

    def __init__(self, key: Hashable):
        self.key = key
        self.requests: dict[int, Request] = {}
        self.rows = 0


class Batcher:
    """The queue between callers and partitions.

    Args:
        timeout: Seconds that the oldest request waits for others.
        whole: Whether a request must not be split.

    Attributes:
        bursts: Of each key, how many full batches may be taken at once, most first.
    """

    def __init__(
        self,
        keys: Iterable[Hashable],
        *,
        batch_size: int,
        timeout: float,
        most: int,
        whole: bool,
        partitions: int = 1,
        recorder: Recorder,
    ):
        self.batch_size, self.timeout, self.most = batch_size, timeout, most
        self.whole, self.recorder = whole, recorder
        self.partitions = partitions
        self.closing = False
        self._in_child = False
        self._keys = tuple(keys)
        self.bursts: dict[Hashable, tuple[int, ...]] = {}
        self._empty()

    def _empty(self) -> None:
        self._stacks = {key: _Stack(key) for key in self._keys}
        # Reentrant: the garbage collector may close a serving inside of any block.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._probes: dict[int, list[Probe]] = {}
        self._idle = 0  # partitions that wait for work
        self._waiting = 0  # requests of which no row is in a batch yet
        self._held = 0  # requests behind which others come at once

    # ------------------------------------------------------------------ callers
    def put(self, request: Request, *, hold: bool = False) -> None:
        """Queues a request.

        Args:
            hold: Whether others come at once, so that only a full batch is to begin
                before ``release`` is called as often, or ``_HELD`` seconds later.
        """
        request.answer.queued(self, request)
        with self._lock:
            if self.closing:
                self.recorder.count("refused")
                raise _forked_error() if self._in_child else _closed_error()
            if self._waiting >= self.most:
                self.recorder.count("refused")
                raise QueueFullError(
                    "serving",
                    f"{self._waiting} requests wait, as many as max_queue allows",
                    hint="Try again later, add partitions, or raise max_queue.",
                )
            stack = self._stacks[request.key]
            request.arrived = time.monotonic()
            # Only the first request of a stack sets its time, and only one that fills
            # it makes it due: nobody has to wake up for the others. What is held wakes
            # somebody by its release.
            first = not hold and (not stack.requests or bool(self._held))
            before = stack.rows
            self._held += hold
            stack.requests[id(request)] = request
            stack.rows += request.rows
            self._waiting += 1
            self.recorder.count("accepted")
            if self._idle and (first or before < self.batch_size <= stack.rows):
                self._changed.notify()

    def release(self, quick: Container[Hashable] = ()) -> Request | None:
        """Lets what was put with ``hold`` begin, if this was the last hold.

        Args:
            quick: Keys whose batches the caller may run itself.

        Returns:
            A request that the caller must run: nothing else waits, and nothing runs.
        """
        with self._lock:
            self._held -= 1
            if self._held or not self._idle:
                return None
            waiting = [r for s in self._stacks.values() for r in s.requests.values()]
            if len(waiting) == 1 and self._idle == self.partitions:
                (request,) = waiting
                mine = request.key in quick and request.rows <= self.batch_size
                if mine and not self.closing and request.state == _WAITING:
                    if not self._start(request):
                        return None
                    self._drop(request)
                    request.taken = request.rows
                    return request
            if waiting:
                self._changed.notify()
            return None

    def expire(self, request: Request) -> None:
        """Fails a request whose deadline has passed."""
        self._withdraw(request, _late(), "expired")

    def drop(self, request: Request) -> None:
        """Drops a request whose caller cancelled it."""
        self._withdraw(request, None, "cancelled")

    def fail(self, request: Request, error: Exception) -> None:
        """Fails a request with what its batch raised."""
        self._withdraw(request, error, "failed")

    def _withdraw(self, request: Request, error: Exception | None, what: str) -> None:
        with self._lock:
            if request.state == _DONE or not self._start(request):
                return
            self._drop(request)
            request.state = _DONE
            self.recorder.count(what)
        request.answer.set_exception(error)

    def _start(self, request: Request) -> bool:
        """Tells whether the request was not cancelled; from now on it cannot be."""
        if request.state != _WAITING:
            return True
        if request.answer.set_running_or_notify_cancel():
            request.state = _RUNNING
            self._waiting -= 1
            return True
        request.state = _DONE
        self._waiting -= 1
        self._drop(request)
        self.recorder.count("cancelled")
        return False

    def _drop(self, request: Request) -> None:
        """Takes what is left of a request off its stack."""
        stack = self._stacks[request.key]
        if stack.requests.pop(id(request), None) is not None:
            stack.rows -= request.rows - request.taken

    def put_probe(self, partition: int) -> Probe:
        """Asks a partition whether it still runs batches; ahead of all that waits."""
        probe = Probe()
        with self._lock:
            if self.closing:
                raise _forked_error() if self._in_child else _closed_error()
            self._probes.setdefault(partition, []).append(probe)
            self._changed.notify_all()
        return probe

    # ------------------------------------------------------------------ partitions
    def take(self, *, idle: bool, partition: int = 0) -> Batch | Probe | None:
        """The next batch, or a probe of this partition.

        Args:
            idle: Whether the partition has nothing to do: then this waits for a batch,
                which may be short. A busy partition gets a full batch to run next, or
                ``None`` at once, so that the others go on growing. Where several full
                batches wait, either gets a burst of them.

        Returns:
            ``None`` for an idle partition when the serving is closed and empty.
        """
        while True:
            late: list[Request] = []
            with self._lock:
                stack = self._due(partition, wait=idle)
                batch: Batch | Probe | None = None
                if probes := self._probes.get(partition):
                    batch = probes.pop(0)
                elif stack is not None:
                    batch = self._fill(stack, late)
                if self._idle and any(s.requests for s in self._stacks.values()):
                    self._changed.notify()  # another partition looks after the rest
            for request in late:
                self.expire(request)
            if batch is not None or stack is None:
                return batch

    def _due(self, partition: int, *, wait: bool) -> _Stack | None:
        """The stack that is due the longest; waits for one, or a probe, if asked to."""
        while not self._probes.get(partition):
            now, wake, best = time.monotonic(), None, None
            timeout = max(self.timeout, _HELD) if self._held else self.timeout
            for stack in self._stacks.values():
                if not stack.requests:
                    continue
                head = next(iter(stack.requests.values())).arrived
                full = stack.rows >= self.batch_size
                due = full or self.closing or now >= head + timeout
                if due and (full or wait) and (best is None or head < best[0]):
                    best = head, stack
                elif not due:
                    at = head + timeout
                    wake = at if wake is None else min(wake, at)
            if best is not None:
                # A partition with work leaves the batch to one that has none.
                return best[1] if wait or not self._idle else None
            if not wait or (self.closing and wake is None):
                return None
            self._idle += 1
            self._changed.wait(None if wake is None else wake - now)
            self._idle -= 1
        return None

    def _most(self, stack: _Stack) -> int:
        """Rows to take: a burst, if it leaves as many to each other partition."""
        share = stack.rows // self.batch_size // self.partitions
        sizes = self.bursts.get(stack.key, ())
        return self.batch_size * next((n for n in sizes if n <= share), 1)

    def _fill(self, stack: _Stack, late: list[Request]) -> Batch | None:
        now, pieces, rows, most = time.monotonic(), [], 0, self._most(stack)
        waits: list[float] = []
        # Each holds a row at least, so no more than these can have a part.
        for request in list(itertools.islice(stack.requests.values(), most)):
            if rows == most:
                break
            if self.whole and rows + request.rows > most:
                break
            if request.state == _WAITING:
                deadline = request.answer.deadline
                if deadline is not None and now >= deadline:
                    late.append(request)
                    continue
                if not self._start(request):
                    continue
                waits.append(now - request.arrived)
            count = min(most - rows, request.rows - request.taken)
            pieces.append((request, request.taken, count))
            request.taken += count
            stack.rows -= count
            rows += count
            if request.taken == request.rows:
                del stack.requests[id(request)]
        return Batch(stack.key, pieces, rows, waits) if pieces else None

    def deliver(
        self, batch: Batch, outputs: list[np.ndarray]
    ) -> list[tuple[Request, list[np.ndarray]]]:
        """Copies each request's rows out of the outputs of a batch.

        Returns:
            The requests that are complete now, with all of their rows.
        """
        with self._lock:
            for request, _, rows in batch.pieces:
                if request.outputs is None and rows < request.rows:
                    request.outputs = [
                        np.empty((request.rows, *v.shape[1:]), v.dtype) for v in outputs
                    ]
        offset = 0
        for request, start, rows in batch.pieces:
            parts = [leaf[offset : offset + rows] for leaf in outputs]
            offset += rows
            if request.outputs is None:
                request.outputs = [part.copy() for part in parts]
                continue
            for whole, part in zip(request.outputs, parts, strict=True):
                whole[start : start + rows] = part
        complete, late, seconds = [], [], []
        with self._lock:
            now = time.monotonic()
            for request, _, rows in batch.pieces:
                request.left -= rows
                if request.left or request.state == _DONE:
                    continue
                deadline = request.answer.deadline
                if deadline is not None and now > deadline:
                    late.append(request)
                    continue
                request.state = _DONE
                seconds.append(now - request.arrived)
                complete.append((request, request.outputs))
        self.recorder.record_answers(seconds)
        for request in late:
            self.expire(request)
        return complete

    # ------------------------------------------------------------------ the end
    def close(self, *, drain: bool) -> None:
        """Refuses new requests; what waits runs at once, or fails at once."""
        with self._lock:
            self.closing = True
            self._changed.notify_all()
        if not drain:
            self.abandon()

    def end_in_fork(self) -> None:
        """Ends the batcher in the child of a fork, where no thread runs a batch."""
        self.closing = self._in_child = True
        self._empty()  # another thread may have held the lock

    def abandon(self) -> None:
        """Fails every request that is still waiting, wholly or in part."""
        with self._lock:
            requests = [r for s in self._stacks.values() for r in s.requests.values()]
            probes = [probe for each in self._probes.values() for probe in each]
            self._probes.clear()
        for request in requests:
            self._withdraw(request, _closed_error(), "failed")
        for probe in probes:
            if probe.set_running_or_notify_cancel():
                probe.set_exception(_closed_error())

    def depth(self) -> dict[Hashable, tuple[int, int]]:
        """Requests and rows that wait, by key."""
        with self._lock:
            return {
                key: (len(stack.requests), stack.rows)
                for key, stack in self._stacks.items()
            }


def _late() -> DeadlineExceededError:
    return DeadlineExceededError(
        "serving",
        "the request was not answered within its timeout",
        hint="Give it more time, add partitions, or let fewer requests wait.",
    )


def _closed_error() -> ServingClosedError:
    return ServingClosedError("serving", "it is closed: it takes no requests any more")


def _forked_error() -> ServingClosedError:
    return ServingClosedError(
        "serving",
        "it runs in the process that this one was forked from",
        hint="Make a Serving in each process.",
    )
