"""Processes that make batches ahead of whoever reads them."""

from __future__ import annotations

import collections
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.connection import Connection, wait
from typing import Any

from exburn.errors import DataError
from exburn.runtime.threads import ahead

_PATIENCE = 5.0  # seconds that a process may be at its batch after nobody wants it


class Processes:
    """Spawned processes, each with a copy of a data set.

    Args:
        content: The pickled data set.
        count: How many processes.

    Attributes:
        content: As given.
    """

    def __init__(self, content: bytes, count: int):
        self.content = content
        # They end when this side of the pipe is closed, or its process has died.
        over, self._wanted = multiprocessing.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            count,
            multiprocessing.get_context("spawn"),
            initializer=_receive,
            initargs=(content, over),
        )
        self._waiting: collections.deque[Future] = collections.deque()

    def batches(self, order: Iterable[int], depth: int) -> Iterator:
        """The batches of some indices, in order."""
        self._waiting = collections.deque()
        return ahead(self._pool, _get, order, depth, self._waiting)

    def close(self) -> None:
        """Ends the processes; is not kept waiting by those that are at a batch."""
        busy = any(batch.running() for batch in list(self._waiting))
        self._pool.shutdown(wait=not busy, cancel_futures=True)
        self._wanted.close()


_in_worker: Any = None  # the data set, in a worker process


def _receive(pickled: bytes, over: Connection) -> None:
    global _in_worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, args=(over,), daemon=True).start()
    _in_worker = pickle.loads(pickled)  # our own parent process wrote it


def _end_with_parent(over: Connection) -> None:
    """Ends a worker that nobody waits for: it may be at its batch for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([over, parent.sentinel])
    wait([parent.sentinel], _PATIENCE)
    os._exit(1)


def _get(index: int) -> Any:
    try:
        return _in_worker[index]
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # the parent would get that error, or none and a dead worker
            raise DataError(
                type(_in_worker).__name__,
                f"batch {index} failed in a worker process",
                {"error": f"{type(error).__name__}: {error}"},
            ) from error
        raise
