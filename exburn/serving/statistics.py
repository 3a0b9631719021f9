"""Counts and times of a serving."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter, deque
from typing import Any

import numpy as np

from exburn.core.printing import Plain, page_text
from exburn.errors.boundary import guard_methods

_KEPT = 4096  # latest times that percentiles are taken of


@guard_methods
@dataclasses.dataclass(frozen=True)
class BucketStatistics:
    """The batches of one padded size.

    Attributes:
        batches: How many ran.
        rows: Real rows in them.
        fill: Real rows in proportion to the size.
        wait_ms: From a request to its first batch, of this size: p50, p95, p99.
        run_ms: Time of a batch on the device, transfers included.

    Example:
        >>> BucketStatistics(batches=2, rows=12, fill=0.75, wait_ms={}, run_ms={}).fill
        0.75
    """

    batches: int
    rows: int
    fill: float
    wait_ms: dict[str, float]
    run_ms: dict[str, float]


@guard_methods
@dataclasses.dataclass(frozen=True)
class ServingStatistics:
    """Counts since the start or the last reset, and times of the latest.

    Percentiles are over the latest 4,096 times of each padded size.

    Attributes:
        requests: ``accepted``, ``answered``, ``failed``, ``expired``, ``cancelled`` and
            ``refused`` (queue full, or closed); ``invalid`` did not fit the model.
        queue_depth: Requests that wait now.
        rows_waiting: Their rows.
        batches: Batches that ran.
        calls: Calls of programs that ran them; fewer, where there were bursts.
        rows: Real rows in them.
        fill: Mean share of ``batch_size`` that was filled with real rows.
        rows_per_second: Since the start.
        wait_ms: From a request to its first batch: p50, p95, p99.
        run_ms: Time of a batch on the device, transfers included. That of a burst is
            shared by its batches.
        total_ms: From the request to its answer.
        buckets: The same by padded size.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> from exburn.serving import Serving
        >>> with Serving(Sequential([Input((2,)), layers.Dense(3)])) as serving:
        ...     _ = serving(np.ones((4, 2)))
        ...     serving.statistics().rows
        4
    """

    requests: dict[str, int]
    queue_depth: int
    rows_waiting: int
    batches: int
    calls: int
    rows: int
    fill: float
    rows_per_second: float
    wait_ms: dict[str, float]
    run_ms: dict[str, float]
    total_ms: dict[str, float]
    buckets: dict[int, BucketStatistics]

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title="Serving", title_justify="left")
        table.add_column("")
        for name in ("batches", "rows", "fill", "p50 ms", "p95 ms", "p99 ms"):
            table.add_column(name, justify="right")
        for size, bucket in self.buckets.items():
            table.add_row(f"batches of {size}", *_cells(bucket))
        table.add_row("all batches", *_cells(self), end_section=True)
        for name in ("wait", "total"):
            times = getattr(self, f"{name}_ms")
            table.add_row(
                f"a request's {name}", "", "", "", *(f"{v:.2f}" for v in times.values())
            )
        counts = ", ".join(f"{n} {what}" for what, n in self.requests.items())
        table.caption = f"{self.calls:,} calls; requests: {counts}; "
        table.caption += f"{self.queue_depth} waiting"
        return Plain(table)

    def __str__(self) -> str:
        return page_text(self, 88)

    __repr__ = __str__


def _cells(part: Any) -> list[str]:
    times = [f"{v:.2f}" for v in part.run_ms.values()]
    return [f"{part.batches:,}", f"{part.rows:,}", f"{part.fill:.0%}", *times]


class _Runs:
    def __init__(self):
        self.batches = self.rows = 0
        self.seconds: deque[float] = deque(maxlen=_KEPT)
        self.waits: deque[float] = deque(maxlen=_KEPT)


class Recorder:
    """Collects from all threads."""

    def __init__(self, batch_size: int, buckets: tuple[int, ...]):
        self._batch_size, self._sizes = batch_size, buckets
        # Reentrant: the garbage collector may end a serving inside of any block.
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Starts afresh."""
        with self._lock:
            self._since = time.monotonic()
            self._requests: Counter[str] = Counter()
            self._calls = 0
            self._total: deque[float] = deque(maxlen=_KEPT)
            self._runs = {size: _Runs() for size in self._sizes}

    def count(self, what: str) -> None:
        with self._lock:
            self._requests[what] += 1

    def record_answers(self, seconds: list[float]) -> None:
        """Requests were answered, so many seconds after they came."""
        with self._lock:
            self._requests["answered"] += len(seconds)
            self._total.extend(seconds)

    def ran(
        self, size: int, batches: int, rows: int, seconds: float, waits: list[float]
    ) -> None:
        """Notes that a call ran batches of a padded size in so many seconds."""
        with self._lock:
            self._calls += 1
            runs = self._runs[size]
            runs.batches += batches
            runs.rows += rows
            runs.seconds.extend([seconds / batches] * batches)
            runs.waits.extend(waits)

    def read(self, depth: tuple[int, int]) -> ServingStatistics:
        """The statistics now; ``depth`` is (requests, rows) that wait."""
        with self._lock:
            requests = Counter(self._requests)
            total, calls = list(self._total), self._calls
            runs = {
                size: (r.batches, r.rows, list(r.waits), list(r.seconds))
                for size, r in self._runs.items()
                if r.batches
            }
            passed = time.monotonic() - self._since
        batches = sum(r[0] for r in runs.values())
        rows = sum(r[1] for r in runs.values())
        names = ("accepted", "answered", "failed", "expired", "cancelled", "refused")
        return ServingStatistics(
            requests={n: requests[n] for n in (*names, "invalid")},
            queue_depth=depth[0],
            rows_waiting=depth[1],
            batches=batches,
            calls=calls,
            rows=rows,
            fill=rows / (batches * self._batch_size) if batches else 0.0,
            rows_per_second=rows / passed if passed else 0.0,
            wait_ms=_percentiles([t for r in runs.values() for t in r[2]]),
            run_ms=_percentiles([t for r in runs.values() for t in r[3]]),
            total_ms=_percentiles(total),
            buckets={
                size: BucketStatistics(
                    n, rows, rows / (n * size), _percentiles(waits), _percentiles(times)
                )
                for size, (n, rows, waits, times) in runs.items()
            },
        )


def _percentiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"p50": 0.0, "p95": 0.0, "p99": 0.0}
    values = np.percentile(np.array(seconds) * 1e3, (50, 95, 99))
    return {n: float(v) for n, v in zip(("p50", "p95", "p99"), values, strict=True)}
