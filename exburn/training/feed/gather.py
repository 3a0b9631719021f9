"""Threads that copy rows of arrays, and the memory that they copy to."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import map_leaves, on_host

T = TypeVar("T")
# One core copies about 5 GB/s from scattered rows, and the memory of a server gives
# several times that. Beyond eight threads nothing was gained.
_MOST_THREADS = 8
_PART = 1 << 20  # bytes that are worth a thread's while
_ALIGNMENT = 64  # of memory that JAX's CPU backend takes without a copy
_KEPT = 256 << 20  # bytes that wait to be used again
_COPYING = {"gpu", "cuda", "rocm", "tpu"}  # platforms whose arrays are no host memory


class HostGather:
    """Copies rows into memory of their own, by several threads.

    New memory comes from the operating system page by page, which can take several
    times as long as the copying: ``reusing`` keeps what was sent for the next ones. The
    less there is of it, the faster: batches of 100 KB that went in turn through 128 MB
    took a third longer to copy than through 64.

    Args:
        threads: How many work at a time; by default as many as there are cores, but no
            more than eight.
    """

    def __init__(self, threads: int | None = None):
        self._asked = threads
        self._pool: ThreadPoolExecutor | None = None
        self._free: list[np.ndarray] = []
        # Copies and the same on the device, which may still be on their way there.
        self._sending: list[tuple[Any, Any]] = []
        self._lock = threading.Lock()  # for taking from both lists

    @functools.cached_property
    def threads(self) -> int:
        """How many work at a time."""
        if self._asked is not None:
            return self._asked
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        return min(cores or os.cpu_count() or 1, _MOST_THREADS)

    def __enter__(self) -> HostGather:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads and frees the memory; it may be used again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        with self._lock:
            self._free.clear()

    def take(self, tree: Any, rows: np.ndarray, *, straight: bool = False) -> Any:
        """The given rows of every array; those on an accelerator stay there.

        Args:
            rows: Their numbers, which must be in range.
            straight: Whether they follow one another: then nothing is copied.
        """

        def gather(_: str, leaf: Any) -> Any:
            host = on_host(leaf)
            if host is None:
                return jnp.take(leaf, rows, axis=0)
            if straight:
                return host[rows[0] : rows[0] + len(rows)]
            out = self.empty((len(rows), *host.shape[1:]), host.dtype)

            def part(start: int, stop: int) -> None:
                # Any other mode makes a copy of `out` first, to leave it whole if a
                # number is out of range. These are not.
                host.take(rows[start:stop], 0, out=out[start:stop], mode="clip")

            self.share(part, len(rows), out.nbytes)
            return out

        return map_leaves(gather, tree, "")

    def copy(self, source: np.ndarray, out: np.ndarray) -> None:
        """Copies an array into memory of its shape; a large one by several threads."""
        if out.nbytes < 2 * _PART:
            out[...] = source
            return
        if source.flags.c_contiguous and out.flags.c_contiguous:
            source, out = source.reshape(-1), out.reshape(-1)  # of few rows, maybe

        def part(start: int, stop: int) -> None:
            out[start:stop] = source[start:stop]

        self.share(part, len(out), out.nbytes)

    def share(self, work: Callable[[int, int], None], rows: int, nbytes: int) -> None:
        """Calls ``work(start, stop)`` for all rows, cut into parts for the threads."""
        parts = min(self.threads, rows, nbytes // _PART)
        if parts < 2:
            work(0, rows)
            return
        cuts = [rows * i // parts for i in range(parts + 1)]
        jobs: list[Future[None]] = [
            self._workers().submit(work, start, stop)
            for start, stop in zip(cuts, cuts[1:], strict=False)
        ]
        for job in jobs:
            job.result()

    def map(
        self, work: Callable[[Any], T], items: Sequence[Any], threads: int
    ) -> list[T]:
        """The results of ``work`` on each item, by so many threads."""

        def some(first: int) -> list[T]:
            return [work(item) for item in items[first::threads]]

        jobs = [self._workers().submit(some, first) for first in range(threads)]
        results: list[Any] = [None] * len(items)
        for first, job in enumerate(jobs):
            results[first::threads] = job.result()
        return results

    def submit(self, nbytes: int, work: Callable[..., T], *args: Any) -> Future[T]:
        """Has a thread do work on so many bytes; little of it is done at once."""
        if nbytes >= _PART:
            return self._workers().submit(work, *args)
        done: Future[T] = Future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _workers(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "exburn-gather")
        return self._pool

    @contextlib.contextmanager
    def reusing(self, under_way: int = 1) -> Iterator[Callable[[Any, Any], None]]:
        """Gives ``reuse(copies, sent)``, which takes back memory that this gave.

        Its arguments are what ``take`` (not ``straight``) or ``empty`` gave, which
        nobody else may hold by then, and the same on the device. It waits for what was
        sent before, but for so many that may be under way. Where the device's arrays
        may be the host's memory, as on a CPU, it does nothing.
        """
        sending = self._sending

        def reuse(copies: Any, sent: Any) -> None:
            if all(map(_is_copy, jax.tree.leaves(sent))):
                sending.append((copies, sent))
            if len(sending) > under_way:
                self._take_back(wait=True)

        try:
            yield reuse
            while sending:
                self._take_back(wait=True)
        finally:
            sending.clear()

    def _take_back(self, *, wait: bool = False) -> bool:
        """The memory of what was sent first, if it has arrived or is waited for."""
        with self._lock:
            first = self._sending[0] if self._sending else None
            if first is None or not (wait or _is_ready(first[1])):
                return False
            del self._sending[0]
        copies, sent = first
        jax.block_until_ready(sent)
        with self._lock:
            for copy in jax.tree.leaves(copies):
                if isinstance(copy, np.ndarray) and copy.nbytes >= _PART:
                    self._free.append(copy.base)  # type: ignore[arg-type]
            while sum(memory.nbytes for memory in self._free) > _KEPT:
                del self._free[0]
        return True

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Memory that JAX's CPU backend can use as it is, to be filled."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        memory = self._take(size + _ALIGNMENT)
        skip = -memory.ctypes.data % _ALIGNMENT
        return memory[skip : skip + size].view(dtype).reshape(shape)

    def _take(self, size: int) -> np.ndarray:
        """The memory that was used last: as little as possible is gone through."""
        while self._take_back():
            pass
        with self._lock:
            for index in reversed(range(len(self._free))):
                if self._free[index].nbytes == size:
                    return self._free.pop(index)
        return np.empty(size, np.uint8)


def _is_copy(sent: Any) -> bool:
    """Whether what was sent shares no memory with what it was made of."""
    return isinstance(sent, jax.Array) and all(
        device.platform in _COPYING for device in sent.devices()
    )


def _is_ready(sent: Any) -> bool:
    return all(leaf.is_ready() for leaf in jax.tree.leaves(sent))
