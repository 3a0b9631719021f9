"""A bounded queue of records, which a thread hands to a slow receiver."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from exburn.core.printing import print_text

_FAILURES = 10  # one after another, until a receiver is given up
_AT_EXIT = 10.0  # seconds that the interpreter's end waits


class Record(NamedTuple):
    """Values to be sent.

    Attributes:
        values: By name.
        step: Steps done in the run.
        time: When, in seconds since 1970.
        epoch: Whether they are an epoch's, which go last when there are too many.
    """

    values: dict[str, float]
    step: int
    time: float
    epoch: bool


class LogQueue:
    """Hands records to a receiver in a thread, in order; whoever puts never waits.

    A receiver that is too slow gets fewer records: of those within epochs every second
    one is left out when the queue is full, so that their curve keeps its shape. Nothing
    is left out uncounted.

    Args:
        send: Called with one record.
        limit: Records that may wait.
        after: A queue whose records go first: it has the same receiver.

    Attributes:
        sent, dropped, failed: How many were taken, were left out, and raised an error.
        error: What the receiver raised first.
    """

    def __init__(
        self,
        send: Callable[[Record], object],
        limit: int = 1000,
        after: LogQueue | None = None,
    ):
        self._send, self._limit, self._after = send, limit, after
        self._records: deque[Record] = deque()
        self._changed = threading.Condition()
        self._working = self._closing = False
        self._finish: Callable[[], object] | None = None
        self._thread: threading.Thread | None = None
        self._in_a_row = 0
        self.sent = self.dropped = self.failed = 0
        self.error: Exception | None = None

    def put(self, record: Record) -> None:
        """Adds a record; takes microseconds."""
        with self._changed:
            if self._closing or self.given_up:
                self.dropped += 1
                return
            if len(self._records) >= self._limit:
                self._thin()
            self._records.append(record)
            if self._thread is None:
                self._start()
            self._changed.notify()

    @property
    def is_closed(self) -> bool:
        """Tells whether it takes no more records."""
        return self._closing

    @property
    def given_up(self) -> bool:
        """Tells whether the receiver has failed too often to be asked again."""
        return self._in_a_row >= _FAILURES

    @property
    def waiting(self) -> int:
        """Records that are still to be sent."""
        return len(self._records) + self._working

    def flush(self, timeout: float) -> bool:
        """Waits until all is sent; whether that was so in time."""
        end = time.monotonic() + timeout
        with self._changed:
            while self.waiting and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return not self.waiting

    def close(self, *, wait: float, finish: Callable[[], object] | None = None) -> bool:
        """Takes no more; what waits is sent, at last when the interpreter ends.

        Args:
            wait: Seconds to wait for that here.
            finish: Called in the thread when all is sent.

        Returns:
            Whether all is sent.
        """
        with self._changed:
            self._closing, self._finish = True, finish
            if self._thread is None:
                self._start()
            self._changed.notify()
            thread = self._thread
        assert thread is not None
        thread.join(wait)
        return not thread.is_alive()

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._work, name="exburn-logger", daemon=True
        )
        self._thread.start()
        _waited_for.add(self)

    def _thin(self) -> None:
        """Leaves out every second record within epochs, or else of all."""
        within = sum(not record.epoch for record in self._records)
        records: deque[Record] = deque()
        number = 0
        for record in self._records:
            chosen = not record.epoch or not within
            number += chosen
            if not chosen or number % 2:
                records.append(record)
        self.dropped += len(self._records) - len(records)
        self._records = records

    def _work(self) -> None:
        after, self._after = self._after, None
        if after is not None and after._thread is not None:
            after._thread.join()
        while True:
            with self._changed:
                while not self._records and not self._closing:
                    self._changed.wait()
                if not self._records:
                    break
                record, self._working = self._records.popleft(), True
            error = _attempt(self._send, record)
            with self._changed:
                self._working = False
                self._count(error)
                self._changed.notify_all()
        if self._finish is not None:
            error = _attempt(self._finish)
            self.error = self.error or error

    def _count(self, error: Exception | None) -> None:
        if error is None:
            self.sent, self._in_a_row = self.sent + 1, 0
            return
        self.failed, self._in_a_row = self.failed + 1, self._in_a_row + 1
        self.error = self.error or error
        if self.given_up:
            self.dropped += len(self._records)
            self._records.clear()


def _attempt(act: Callable[..., Any], *arguments: Any) -> Exception | None:
    try:
        act(*arguments)
    except Exception as error:  # whatever a library raises
        return error
    return None


_waited_for: weakref.WeakSet[LogQueue] = weakref.WeakSet()


@atexit.register
def _finish_all() -> None:
    """Waits for what is still being sent, and tells what is lost."""
    end = time.monotonic() + _AT_EXIT
    for queue in list(_waited_for):
        thread = queue._thread
        if thread is None or not thread.is_alive():
            continue
        queue.close(wait=max(end - time.monotonic(), 0.0), finish=queue._finish)
        if queue.waiting:
            print_text(
                f"exburn: Logger: {queue.waiting} records are lost, the receiver took "
                f"{queue.sent} in time"
            )
