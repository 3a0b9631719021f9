"""How it is told that arrays on the device are those of the host, and may stay."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from exburn.runtime.device import chosen_device
from exburn.training import memory
from exburn.training.feed.gather import HostGather
from exburn.training.feed.kept_arrays import (
    Key,
    kept_bytes,
    memory_of,
    release_kept,
)
from exburn.training.placement import OneDevice

_SEED = secrets.randbits(64)  # nobody can make arrays of equal digests beforehand
_PART = 4 << 20  # bytes that a thread has a digest of at a time


def find_keys(
    hosts: Sequence[np.ndarray], where: Any, gatherer: HostGather
) -> list[Key]:
    """The keys of arrays, of which threads read all bytes.

    Args:
        where: Where the arrays are to lie: see ``where_of``.
    """
    jobs: dict[tuple, list[Future[bytes]]] = {}
    for host in hosts:  # one that stands twice is read once
        if (place := memory_of(host)) not in jobs:
            jobs[place] = _begin_digest(host, gatherer)
    digests = {
        place: b"".join(job.result() for job in parts) for place, parts in jobs.items()
    }
    return [
        (digests[memory_of(host)], host.shape, host.dtype.str, where) for host in hosts
    ]


def where_of(placement: OneDevice) -> Any:
    """Where programs take arrays: the device, or the placement on a mesh."""
    return chosen_device() if placement.distribution is None else placement


def may_keep(nbytes: int, placement: OneDevice) -> bool:
    """Whether so many bytes may stay on the device: an eighth of its free memory.

    That is for all that is kept; what is there gives way.
    """
    devices = placement.local_devices
    if memory.fits_device(2 * (kept_bytes() + nbytes), devices):
        return True
    release_kept()
    return memory.fits_device(2 * nbytes, devices)


def _begin_digest(array: np.ndarray, gatherer: HostGather) -> list[Future[bytes]]:
    """Has threads compute the digest of each part of an array's bytes.

    Parts have the same limits whenever the array has the same shape.
    """
    if array.flags.c_contiguous:
        array = array.reshape(-1)  # of few rows, maybe
    rows = max(_PART // max(array.nbytes // max(len(array), 1), 1), 1)
    parts = [array[start : start + rows] for start in range(0, len(array), rows)]
    return [gatherer.submit(part.nbytes, _digest, part) for part in parts]


def _digest(part: np.ndarray) -> bytes:
    import xxhash  # a tenth of a millisecond, which not every program needs

    rows = np.ascontiguousarray(part)
    return xxhash.xxh3_128_digest(rows.reshape(-1).view(np.uint8).data, seed=_SEED)
