"""Threads and processes that make batches ahead of whoever reads them."""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.connection import Connection, wait
from typing import Any

from exburn.errors import DataError

__all__ = ["Processes", "Threads", "ahead"]

_PATIENCE = 5.0  # seconds that a process may be at its batch after nobody wants it


def ahead(
    pool: Executor,
    get: Callable[[int], Any],
    order: Iterable[int],
    depth: int,
    waiting: collections.deque[Future] | None = None,
) -> Iterator:
    """Yields ``get(index)`` in order, some of them made before they are asked for.

    Args:
        pool: Makes them.
        get: Makes one.
        order: The indices.
        depth: Batches that may wait, made but not used.
        waiting: Holds those under way, that which is waited for as well.

    Example:
        >>> pool = Threads(2, "example")
        >>> list(ahead(pool, lambda index: index**2, range(4), depth=2))
        [0, 1, 4, 9]
        >>> pool.shutdown()
    """
    indices = iter(order)
    waiting = collections.deque() if waiting is None else waiting
    try:
        for index in itertools.islice(indices, depth):
            waiting.append(pool.submit(get, index))
        while waiting:
            batch = waiting[0].result()
            waiting.popleft()
            for index in itertools.islice(indices, 1):
                waiting.append(pool.submit(get, index))
            yield batch
    finally:  # of a reader that stops early, or after an error
        for unwanted in waiting:
            unwanted.cancel()


class Threads(Executor):
    """Threads that do not keep a program alive, should one be at its batch for ever.

    Those of ``ThreadPoolExecutor`` do: after Ctrl-C the program would not end.

    Args:
        count: How many.
        name: What their names begin with.
    """

    def __init__(self, count: int, name: str):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable, /, *args: Any, **kwargs: Any) -> Future:
        """Has a thread call the function."""
        future: Future = Future()
        self._tasks.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads, after what was submitted unless that is cancelled."""
        while cancel_futures and not self._tasks.empty():
            self._tasks.get()[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, fn, args, kwargs = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            del task, future  # else this thread would hold a batch


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
