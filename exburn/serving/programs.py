"""Which programs a serving needs: compiled, and run once, before its first request.

There is one for each padded size, and there are bursts: several full batches one after
the other in one call, as ``predict`` runs them. A call costs the host about 0.1 ms, and
an accelerator's results are half a millisecond away; a batch of a small model takes
less than that.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from exburn.serving.computation import Computation
from exburn.serving.partition import Partition

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
        computation: What runs.
        partitions: Where.
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
        computation: What runs.
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
