"""All rows of arrays on the device: sent there, or left there by a run before."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from exburn.runtime.device import chosen_device
from exburn.training import memory
from exburn.training.feed.gather import HostGather
from exburn.training.feed.kept_arrays import (
    KeptArrays,
    Key,
    Slot,
    hosts_in,
    kept_bytes,
    memory_of,
    release_kept,
)
from exburn.training.placement import OneDevice

_SEED = secrets.randbits(64)  # nobody can make arrays of equal digests beforehand
_PART = 16 << 20  # bytes that a thread has a digest of at a time: a millisecond or two
_LITTLE = 4 << 20  # bytes whose digest is not worth a trial


class ResidentRows:
    """All rows of some arrays on the device: sent there, or left there by a run before.

    Args:
        kept: What the run before has left, if this one may use it and leave its own.
        owners: What has to live for that: see ``owners_of``.
    """

    def __init__(
        self,
        dataset: Any,
        gatherer: HostGather,
        placement: OneDevice,
        kept: KeptArrays | None = None,
        owners: Sequence[weakref.ref] = (),
    ):
        self._dataset, self._gatherer = dataset, gatherer
        self._placement, self._kept, self._owners = placement, kept, owners
        self._data: Any = None
        self._trial: Callable[[], list[Key]] | None = None

    def take(self, *, tries: bool = False) -> tuple[Any, Callable[[], Any] | None]:
        """The rows, and what proves that they are current, if that is not known yet.

        Args:
            tries: Whether rows that may have changed since the run before may be
                given, with a function that says so: it returns ``None`` or other rows,
                which all programs are to be called with. It is called while the first
                one runs.
        """
        if self._trial is not None:
            self.prove()
        if self._data is None:
            kept, tree = self._kept, self._dataset.tree
            if kept is None:
                self._check()
                self._data = self._send_rows(tree)
            elif tries and self._is_worth_a_trial(kept):
                self._trial = self._begin_digests()
                self._data = self._put(kept.arrays())
                return self._data, self.prove
            else:
                keys = self._begin_digests()()
                kept.trusted = kept.trusted or keys == kept.keys()
                self._data = self._settle(kept, keys)
        return self._data, None

    def prove(self) -> Any:
        """``None`` if the rows that were given are current; else those that are."""
        trial, self._trial = self._trial, None
        kept = self._kept
        if trial is None or kept is None:
            return None
        keys = trial()
        kept.trusted = keys == kept.keys()
        self._data, before = None, self._data
        data = self._settle(kept, keys)
        self._data = before if kept.trusted else data
        return None if kept.trusted else data

    def close(self) -> None:
        """Gives the rows up, but for those that are kept for the next run."""
        if self._trial is not None:
            self._trial()  # its threads read the arrays
        self._data = self._trial = None

    def _is_worth_a_trial(self, kept: KeptArrays) -> bool:
        large = self._dataset.nbytes >= _LITTLE
        same = kept.are_of(self._dataset.tree) and kept.lie_at(self._where())
        return large and kept.trusted and same

    def _begin_digests(self) -> Callable[[], list[Key]]:
        """Has threads read all bytes; returns what waits for the keys."""
        where, hosts = self._where(), list(hosts_in(self._dataset.tree))
        jobs: dict[tuple, list[Future[bytes]]] = {}
        for host in hosts:  # one that stands twice is read once
            if (memory := memory_of(host)) not in jobs:
                jobs[memory] = _begin_digest(host, self._gatherer)

        def keys() -> list[Key]:
            whole = {
                memory: b"".join(job.result() for job in parts)
                for memory, parts in jobs.items()
            }
            return [
                (whole[memory_of(host)], host.shape, host.dtype.str, where)
                for host in hosts
            ]

        return keys

    def _settle(self, kept: KeptArrays, keys: list[Key]) -> Any:
        """The rows of some keys on the device: what is not there is sent."""
        dataset, hosts = self._dataset, list(hosts_in(self._dataset.tree))
        check = dataset.check
        passed = kept.passed(keys)
        if check is not None and check not in passed:
            self._check()
            passed = *passed, check
        arrays = kept.find(keys)
        pairs = dict(zip(keys, hosts, strict=True))
        missing = [key for key in pairs if key not in arrays]
        if missing:
            sent = self._send_rows([pairs[key] for key in missing])
            # From now on the user's code may change what they were sent from.
            arrays |= zip(missing, jax.block_until_ready(sent), strict=True)
        if not missing or self._may_keep(sum(v.nbytes for v in arrays.values())):
            slots = [
                Slot(memory_of(host), key, arrays[key])
                for key, host in zip(keys, hosts, strict=True)
            ]
            owners = [owner for ref in self._owners if (owner := ref()) is not None]
            kept.keep(slots, owners, passed)
        return self._put([arrays[key] for key in keys])

    def _may_keep(self, nbytes: int) -> bool:
        """Whether so many bytes may stay: an eighth of the free memory, in all."""
        devices = self._placement.local_devices
        if memory.fits_device(2 * (kept_bytes() + nbytes), devices):
            return True
        release_kept()
        return memory.fits_device(2 * nbytes, devices)

    def _where(self) -> Any:
        """Where programs take the rows."""
        placement = self._placement
        return chosen_device() if placement.distribution is None else placement

    def _put(self, arrays: Sequence[Any]) -> Any:
        """The rows, with arrays of the device in the place of NumPy's."""
        rest, send = iter(arrays), self._placement.send_whole
        return jax.tree.map(
            lambda leaf: next(rest) if isinstance(leaf, np.ndarray) else send(leaf),
            self._dataset.tree,
        )

    def _check(self) -> None:
        if self._dataset.check is not None:
            self._dataset.check(self._dataset.tree)

    def _send_rows(self, tree: Any) -> Any:
        if jax.default_backend() == "cpu":
            # JAX takes some arrays as they are, and would see some changes.
            tree = jax.tree.map(self._copy, tree)
        return self._placement.send_whole(tree)

    def _copy(self, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        out = self._gatherer.empty(leaf.shape, leaf.dtype)
        self._gatherer.copy(leaf, out)
        return out


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
