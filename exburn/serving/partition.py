"""A place with its programs, its copy of the weights, and its thread.

Its programs are compiled, and run once, before the first request. There is one for each
padded size, and there are bursts: several full batches one after the other in one call,
as ``predict`` runs them. A call costs the host about 0.1 ms, and an accelerator's
results are half a millisecond away; a batch of a small model takes less than that.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from exburn.errors import BatchFailedError
from exburn.serving.batcher import Batch, Batcher, Probe, Request
from exburn.serving.computation import Computation
from exburn.serving.place import DevicePlace
from exburn.serving.statistics import Recorder

# Calls that are dispatched behind the one that runs. What waits meanwhile makes up the
# next burst, so with more of them bursts would be smaller.
_AHEAD, _AHEAD_ON_CPU = 2, 1
_QUICK = 2e-4  # seconds
_TIMED = 3  # calls of which the fastest counts


class Partition:
    """Runs batches in one place: on a device, or on those of a mesh.

    While a batch runs, the next one is put together and dispatched behind it, if rows
    for a full one wait; so the device does not wait for the host under load.

    Args:
        buckets: Sizes that programs are compiled for, ascending.
    """

    def __init__(
        self,
        index: int,
        place: DevicePlace,
        computation: Computation,
        batcher: Batcher,
        recorder: Recorder,
        buckets: tuple[int, ...],
    ):
        self.index, self.place, self.computation = index, place, computation
        self.batcher, self.recorder, self.buckets = batcher, recorder, buckets
        self.batch_size = buckets[-1]
        self.weights: Any = None
        self.running = 0  # batches that are dispatched
        self._programs: dict[tuple[Hashable, int], Any] = {}
        self._ahead = _AHEAD_ON_CPU if place.platform == "cpu" else _AHEAD
        self._done = 0.0
        self.thread = threading.Thread(
            target=self._loop, name=f"exburn-serving-{index}", daemon=True
        )

    def load(self, weights: Any) -> None:
        """Copies weights there; batches from now on use them."""
        self.weights = self.place.put(weights)

    # ------------------------------------------------------------------ programs
    def lower(self, jitted: dict[tuple[Hashable, int], Any]) -> list[tuple]:
        """Lowers programs for the place: ``[(key and rows, lowered)]``."""

        def spec(value: Any, layout: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=layout)

        weights = jax.tree.map(lambda v: spec(v, v.sharding), self.weights)
        slot = []
        if self.computation.hooks:
            slot = [spec(np.int32(0), self.place.layout(1))]
        lowered = []
        for (key, size), program in jitted.items():
            inputs = self._inputs(key, size)
            specs = jax.tree.map(lambda v: spec(v, self.place.layout(len(v))), inputs)
            with self.place.scope():
                lowered.append(((key, size), program.lower(weights, specs, *slot)))
        return lowered

    def adopt(self, at: tuple[Hashable, int], compiled: Any) -> None:
        """Takes a compiled program, and runs it once: the first run is a slow one."""
        self._programs[at] = compiled
        self.time(*at, calls=1)

    def time(self, key: Hashable, rows: int, calls: int = _TIMED) -> float:
        """Seconds of the fastest of some calls, from host memory to host memory."""
        program, times = self._programs[key, rows], []
        zeros = jax.tree.map(
            lambda spec: np.zeros(spec.shape, spec.dtype), self._inputs(key, rows)
        )
        slot = [np.int32(0)] if self.computation.hooks else []
        for _ in range(calls):
            began = time.perf_counter()
            jax.device_get(program(self.weights, zeros, *slot))
            times.append(time.perf_counter() - began)
        return min(times)

    def _inputs(self, key: Hashable, size: int) -> list:
        """Specs of what a program of so many rows takes; a burst, in parts."""
        inputs = self.computation.inputs[key]
        if size <= self.batch_size:
            return inputs.specs(size)
        shared = self._shared_rows(key, size)
        return [inputs.specs(shared)] * (size // shared)

    def _shared_rows(self, key: Hashable, size: int) -> int:
        return self.computation.shared_rows(key, self.batch_size, self._batches(size))

    # ------------------------------------------------------------------ batches
    def _loop(self) -> None:
        flight: deque[tuple] = deque()
        while True:
            batch = self.batcher.take(idle=not flight, partition=self.index)
            if isinstance(batch, Probe):
                self._answer(batch)
                continue
            if batch is None and not flight:
                return
            if batch is not None:
                self._start(batch, flight)
            most = len(flight) - 1 if batch is None else self._ahead
            while len(flight) > most:
                self._finish(*flight.popleft())
            del batch  # its arrays, while this waits for the next one

    def is_quick(self, key: Hashable) -> bool:
        """Tells whether a batch takes no longer than to wake a thread for it, and back.

        Of an accelerator none does; and where one hangs, only this thread may.
        """
        size = self.batch_size
        if self.place.platform != "cpu":
            return False
        return self.time(key, size, 1) < 5 * _QUICK and self.time(key, size) < _QUICK

    def run_alone(self, request: Request) -> None:
        """Runs a request that the batcher has started, in the caller's thread."""
        pieces, flight = [(request, 0, request.rows)], deque()
        self._start(Batch(request.key, pieces, request.rows, [0.0]), flight)
        if flight:
            self._finish(*flight.popleft())

    def _answer(self, probe: Probe) -> None:
        """Runs a batch of zeros, and tells the seconds that it took."""
        if not probe.set_running_or_notify_cancel():
            return
        try:
            key = next(iter(self.computation.inputs))
            seconds = self.time(key, self.buckets[0], calls=1)
        except Exception as error:
            probe.set_exception(error)
        else:
            probe.set_result(seconds)

    def _start(self, batch: Batch, flight: deque[tuple]) -> None:
        """Dispatches a batch behind those in flight; does not wait for it."""
        size = batch.rows
        if size <= self.batch_size:
            size = next(n for n in self.buckets if n >= size)
        elif (batch.key, size) not in self._programs:  # requests of the burst were late
            for part in batch.cut(self.batch_size):
                self._start(part, flight)
            return
        self.running += self._batches(size)
        began, hooks, slot = time.monotonic(), self.computation.hooks, []
        try:
            if size <= self.batch_size:
                values = _gather(batch, size)
            else:
                shared = self._shared_rows(batch.key, size)
                values = [_gather(part, shared) for part in batch.cut(shared)]
            if hooks:
                slot = [hooks.listen(batch)]
            outputs = self._programs[batch.key, size](self.weights, values, *slot)
        except Exception as error:
            self._fail(batch, size, slot, error)
            return
        if self.place.platform != "cpu":  # whose memory is the host's
            for leaf in outputs:
                leaf.copy_to_host_async()
        flight.append((batch, size, slot, began, outputs))

    def _finish(self, batch, size, slot, began, outputs) -> None:
        """Waits for a batch and hands each caller its rows."""
        try:
            host = [np.asarray(leaf) for leaf in outputs]
            if slot:
                jax.effects_barrier()  # the last values of its hooks
            now = time.monotonic()
            complete = self.batcher.deliver(batch, host)
        except Exception as error:
            self._fail(batch, size, slot, error)
            return
        batches, seconds = self._batches(size), now - max(began, self._done)
        self.recorder.ran(size // batches, batches, batch.rows, seconds, batch.waits)
        self._done = now
        self._release(size, slot)
        for request, whole in complete:
            request.answer.set_result(self.computation.unpack(batch.key, whole))

    def _fail(self, batch: Batch, size: int, slot: list, error: Exception) -> None:
        """Fails the callers of a batch; of a burst, those of the batch that raises."""
        self._release(size, slot)
        if size > self.batch_size:
            for part in batch.cut(self.batch_size):
                alone: deque[tuple] = deque()
                self._start(part, alone)
                if alone:
                    self._finish(*alone.popleft())
            return
        for request, _, _ in batch.pieces:
            own = BatchFailedError(
                "serving",
                f"the batch raised {type(error).__name__}: {error}",
                {"device": self.place, "rows": batch.rows},
                hint="Later requests are not affected.",
            )
            own.__cause__ = error
            self.batcher.fail(request, own)

    def _batches(self, size: int) -> int:
        """The number of batches that a program of so many rows runs."""
        return max(size // self.batch_size, 1)

    def _release(self, size: int, slot: list) -> None:
        self.running -= self._batches(size)
        if slot:
            self.computation.hooks.release(slot[0])


def _gather(batch: Batch, size: int) -> list[np.ndarray]:
    """The rows of all pieces in one array a leaf, filled up with the first row."""
    if len(batch.pieces) == 1 and batch.rows == size:
        request, start, rows = batch.pieces[0]
        return [value[start : start + rows] for value in request.values]
    arrays = []
    for leaf, first in enumerate(batch.pieces[0][0].values):
        array = np.empty((size, *first.shape[1:]), first.dtype)
        offset = 0
        for request, start, rows in batch.pieces:
            array[offset : offset + rows] = request.values[leaf][start : start + rows]
            offset += rows
        array[offset:] = array[:1]
        arrays.append(array)
    return arrays


_COUNTS = (4, 16, 64)  # batches of a burst
_LONGEST = 5e-3  # seconds of a burst: requests wait behind it
# Bytes of a burst: several are under way, and on a CPU they should stay in its cache.
_BYTES, _CPU_BYTES = 32 << 20, 4 << 20
# Seconds of one full batch, from host memory to host memory, above which the call is a
# small part of them.
_ALONE, _CPU_ALONE = 3e-3, 0.25e-3
_GAIN = 0.6  # of the time of as many single batches, which a burst may take at most


def compile_sizes(
    computation: Computation,
    partitions: Sequence[Partition],
    sizes: Mapping[Hashable, Sequence[int]],
) -> None:
    """Compiles programs for every device, several at a time.

    Args:
        sizes: Rows of each key's programs. More than ``batch_size`` are a burst.
    """
    full, platform = partitions[0].batch_size, partitions[0].place.platform
    programs = {}
    for key in sizes:
        for rows in sizes[key]:
            run = computation.run(key, rows)
            if rows > full:
                run = computation.run_burst(key, full, rows // full, platform)
            programs[key, rows] = jax.jit(run)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for partition in partitions:
            lowered = partition.lower(programs)
            compiled = pool.map(lambda one: one[1].compile(), lowered)
            for (at, _), program in zip(lowered, compiled, strict=True):
                partition.adopt(at, program)


def compile_bursts(
    computation: Computation, partitions: Sequence[Partition], most: int | None
) -> dict[Hashable, tuple[int, ...]]:
    """Compiles bursts, unless asked for where they are faster than single batches.

    Args:
        partitions: Where; the first one is measured.
        most: Most batches of a burst; ``None`` if that shall be measured.

    Returns:
        How many batches the bursts of each key hold, most first.
    """
    full = partitions[0].batch_size

    def compile_counts(counts: Mapping[Hashable, Sequence[int]]) -> None:
        sizes = {key: [n * full for n in counts[key]] for key in counts}
        compile_sizes(computation, partitions, sizes)

    counts: dict[Hashable, tuple[int, ...]] = {}
    if most is not None:
        asked = tuple(sorted({most, *(n for n in _COUNTS if n < most)} - {1}))
        counts = dict.fromkeys(computation.inputs, asked)
        compile_counts(counts)
    else:
        alone = {key: partitions[0].time(key, full) for key in computation.inputs}
        for key, seconds in alone.items():
            batch_bytes = full * computation.row_bytes[key]
            if candidates := _candidates(seconds, batch_bytes, partitions[0]):
                counts[key] = candidates
        compile_counts({key: candidates[:1] for key, candidates in counts.items()})
        for key, candidates in counts.items():
            burst = partitions[0].time(key, candidates[0] * full)
            counts[key] = _those_that_pay(candidates, alone[key], burst)
        compile_counts({key: candidates[1:] for key, candidates in counts.items()})
    return {key: candidates[::-1] for key, candidates in counts.items()}


def _candidates(seconds: float, batch_bytes: int, where: Partition) -> tuple[int, ...]:
    """Bursts that may be faster than batches that take so many seconds alone."""
    cpu = where.place.platform == "cpu"
    if seconds > (_CPU_ALONE if cpu else _ALONE):
        return ()
    limit = (_CPU_BYTES if cpu else _BYTES) // max(batch_bytes, 1)
    return tuple(n for n in _COUNTS if n <= limit)


def _those_that_pay(
    counts: tuple[int, ...], alone: float, burst: float
) -> tuple[int, ...]:
    """Bursts that are worth it, and not too long, by the time of the smallest."""
    least = counts[0]
    if burst > _GAIN * least * alone:
        return ()
    each = max(burst - alone, 0.0) / (least - 1)
    return tuple(n for n in counts if n == least or n * each <= _LONGEST)
