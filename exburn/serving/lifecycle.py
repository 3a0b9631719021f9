"""From the start of the threads to their end."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
import weakref
from typing import Any, Self

from exburn.serving.batcher import Batcher
from exburn.serving.options import seconds
from exburn.serving.partition import Partition


class Lifecycle:
    """The part of a ``Serving`` that starts, tells how it is, and ends."""

    batch_size: int
    batch_timeout: float
    buckets: tuple[int, ...]
    devices: list[Any]
    _batcher: Batcher
    _computation: Any
    _partitions: list[Partition]

    def _start(self) -> None:
        self._closing = threading.Lock()
        self._started = time.monotonic()
        # The threads know the batcher, not this object: dropping it ends them.
        end = weakref.finalize(self, _stop, self._batcher, self._partitions, 0)
        end.atexit = False  # but _close_all, before JAX takes its devices down
        for partition in self._partitions:
            partition.thread.start()
        _open.add(self)

    def status(self) -> dict[str, Any]:
        """What is served, where, and what waits now.

        Returns:
            ``state`` (``"running"``, ``"closing"``, ``"closed"``), ``model``,
            ``batch_size``, ``batch_timeout`` (seconds), ``buckets``, ``devices``,
            ``running`` (batches on each device), ``queue_depth``, ``rows_waiting``,
            ``keys`` (what waits by key) and ``uptime`` (seconds).
        """
        alive = any(p.thread.is_alive() for p in self._partitions)
        state = "closing" if self._batcher.closing else "running"
        depth = self._batcher.depth()
        return {
            "state": state if alive else "closed",
            "model": self._computation.name,
            "batch_size": self.batch_size,
            "batch_timeout": self.batch_timeout,
            "buckets": self.buckets,
            "devices": [str(partition.place) for partition in self._partitions],
            "running": [partition.running for partition in self._partitions],
            "queue_depth": sum(requests for requests, _ in depth.values()),
            "rows_waiting": sum(rows for _, rows in depth.values()),
            "keys": {key: requests for key, (requests, _) in depth.items()},
            "uptime": time.monotonic() - self._started,
        }

    def send_probes(self) -> list[concurrent.futures.Future[float]]:
        """Has every partition run a batch of zeros, ahead of what waits.

        Statistics do not count these batches. A device that hangs, or a partition whose
        thread is gone, leaves its future without a result.

        Returns:
            A future for each partition: the seconds that its batch took.

        Raises:
            ServingClosedError: The serving was closed.

        Example:
            >>> import numpy as np
            >>> from exburn import Serving
            >>> with Serving(lambda x: x + 1, example=np.ones((1, 2))) as serving:
            ...     seconds = [probe.result(10) for probe in serving.send_probes()]
            >>> len(seconds) == len(serving.devices)
            True
        """
        count = len(self._partitions)
        return [self._batcher.put_probe(index) for index in range(count)]

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._batcher.closing

    def close(self, *, drain: bool = True, timeout: Any = 30.0) -> None:
        """Takes no more requests, and ends when those it has are answered.

        Args:
            drain: Whether requests that wait still run, at once; else they fail.
            timeout: Seconds after which what still waits fails with
                ``ServingClosedError``. Batches that run are not interrupted.
        """
        limit = seconds("serving", "timeout", timeout)
        self._batcher.close(drain=drain)
        with self._closing:
            _stop(self._batcher, self._partitions, limit)
        _open.discard(self)

    async def aclose(self, *, drain: bool = True, timeout: Any = 30.0) -> None:
        """As ``close``, without blocking the event loop."""
        await asyncio.to_thread(self.close, drain=drain, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error) -> None:
        await self.aclose()


_open: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """An interpreter that exits answers what it has, before JAX ends."""
    for serving in list(_open):
        serving.close(timeout=5)


def _after_fork() -> None:
    for serving in list(_open):
        serving._batcher.end_in_fork()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _stop(batcher: Batcher, partitions: list[Partition], limit: float) -> None:
    batcher.close(drain=limit > 0)
    until = time.monotonic() + limit
    for partition in partitions:
        if partition.thread is not threading.current_thread():
            partition.thread.join(max(until - time.monotonic(), 0))
    batcher.abandon()
