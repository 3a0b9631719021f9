"""Rows of arrays copied into new ones, by several threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.dataset import map_leaves, on_host

__all__ = ["Gatherer", "aligned_empty"]

# One core copies about 5 GB/s from scattered rows, and the memory of a server gives
# several times that. Beyond eight threads nothing was gained.
_MOST_THREADS = 8
_PART = 1 << 20  # bytes that are worth a thread's while
_ALIGNMENT = 64  # of memory that JAX's CPU backend takes without a copy


class Gatherer:
    """Copies rows, or whole batches, into memory of their own.

    Args:
        threads: How many work at a time; by default as many as there are cores, but no
            more than eight.

    Example:
        >>> with Gatherer(threads=2) as gatherer:
        ...     x, y = gatherer.take((np.eye(3), np.arange(3)), np.array([2, 0]))
        >>> x.tolist(), y.tolist()
        ([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [2, 0])
    """

    def __init__(self, threads: int | None = None):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        cores = cores or os.cpu_count() or 1
        self._threads = threads or min(cores, _MOST_THREADS)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Gatherer:
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def take(self, tree: Any, rows: np.ndarray, *, straight: bool = False) -> Any:
        """The given rows of every array; those on an accelerator stay there.

        Args:
            tree: Arrays, nested.
            rows: Their numbers, which must be in range.
            straight: Whether they follow one another: then nothing is copied.
        """

        def gather(_: str, leaf: Any) -> Any:
            host = on_host(leaf)
            if host is None:
                return jnp.take(leaf, rows, axis=0)
            if straight:
                return host[rows[0] : rows[0] + len(rows)]
            out = aligned_empty((len(rows), *host.shape[1:]), host.dtype)

            def part(start: int, stop: int) -> None:
                # Any other mode makes a copy of `out` first, to leave it whole if a
                # number is out of range. These are not.
                host.take(rows[start:stop], 0, out=out[start:stop], mode="clip")

            self.share(part, len(rows), out.nbytes)
            return out

        return map_leaves(gather, tree, "")

    def stack(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Arrays of one shape and dtype, one after another along a new axis."""
        first = arrays[0]
        out = aligned_empty((len(arrays), *first.shape), first.dtype)

        def part(start: int, stop: int) -> None:
            rows = out[start:stop].reshape(-1, *first.shape[1:])
            np.concatenate(arrays[start:stop], out=rows)

        self.share(part, len(arrays), out.nbytes)
        return out

    def share(self, work: Callable[[int, int], None], rows: int, nbytes: int) -> None:
        """Calls ``work(start, stop)`` for all rows, cut into parts for the threads."""
        parts = min(self._threads, rows, nbytes // _PART)
        if parts < 2:
            work(0, rows)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "exburn-gather")
        cuts = [rows * i // parts for i in range(parts + 1)]
        jobs: list[Future[None]] = [
            self._pool.submit(work, start, stop)
            for start, stop in zip(cuts, cuts[1:], strict=False)
        ]
        for job in jobs:
            job.result()


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory that JAX's CPU backend can use as it is."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % _ALIGNMENT
    return memory[skip : skip + size].view(dtype).reshape(shape)
