"""How it is told that arrays on the device are those of the host, and may stay."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.runtime.device import chosen_device
from exburn.runtime.transfer import release_spare
from exburn.training import memory
from exburn.training.feed.gather import HostGather
from exburn.training.feed.kept_arrays import (
    Key,
    kept_bytes,
    memory_of,
)
from exburn.training.placement import OneDevice

_SEED = secrets.randbits(64)  # nobody can make arrays of equal digests beforehand
_PART = 1 << 20  # bytes of which there is a digest
_FEW = 8  # parts that are not worth a thread's while


def find_keys(
    hosts: Sequence[np.ndarray], where: Any, gatherer: HostGather
) -> list[Key]:
    """The keys of arrays, of which threads read all bytes.

    Args:
        where: Where the arrays are to lie: see ``where_of``.
    """
    places = [memory_of(host) for host in hosts]
    # One that stands twice is read once.
    parts = {place: _parts_of(h) for place, h in zip(places, hosts, strict=True)}
    flat = [part for each in parts.values() for part in each]
    # All threads but one: a program that runs meanwhile is started kernel by kernel.
    jobs = min(gatherer.threads - 1, len(flat) // _FEW)
    if jobs < 2:
        digests = iter(map(_digest, flat))
    else:
        digests = iter(gatherer.map(_digest, flat, jobs))
    whole = {p: b"".join(itertools.islice(digests, len(parts[p]))) for p in parts}
    return [
        (whole[place], host.shape, host.dtype.str, where)
        for place, host in zip(places, hosts, strict=True)
    ]


class PieceDigests:
    """The keys of arrays of which one piece after another is read, before it is sent.

    Example:
        >>> x = np.arange(6, dtype=np.float32)
        >>> digests = PieceDigests([x], None)
        >>> digests.read(6)
        >>> with HostGather(1) as gatherer:
        ...     digests.keys() == find_keys([x], None, gatherer)
        True
    """

    def __init__(self, hosts: Sequence[np.ndarray], where: Any):
        self._hosts, self._where = hosts, where
        self._parts = [_parts_of(host) for host in hosts]
        self._digests: list[list[bytes]] = [[] for _ in hosts]

    def read(self, stop: int) -> None:
        """Reads all that lies before the row of a number."""
        for host, parts, digests in zip(
            self._hosts, self._parts, self._digests, strict=True
        ):
            units = sum(map(len, parts)) // len(host)  # of parts, in each row
            while len(digests) < len(parts) and (
                len(digests) * len(parts[0]) < stop * units
            ):
                digests.append(_digest(parts[len(digests)]))

    def keys(self) -> list[Key]:
        """The keys, once all rows were read."""
        return [
            (b"".join(digests), host.shape, host.dtype.str, self._where)
            for host, digests in zip(self._hosts, self._digests, strict=True)
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
    release_spare()
    return memory.fits_device(2 * nbytes, devices)


def _parts_of(array: np.ndarray) -> list[np.ndarray]:
    """The parts of an array of which there is a digest each.

    They have the same limits whenever the array has the same shape.
    """
    if array.flags.c_contiguous:
        array = array.reshape(-1)  # of few rows, maybe
    rows = max(_PART // max(array.nbytes // max(len(array), 1), 1), 1)
    return [array[start : start + rows] for start in range(0, len(array), rows)]


def _digest(part: np.ndarray) -> bytes:
    import xxhash  # a tenth of a millisecond, which not every program needs

    rows = np.ascontiguousarray(part)
    return xxhash.xxh3_128_digest(rows.reshape(-1).view(np.uint8).data, seed=_SEED)
