"""Chunks that an evaluation of the same data as before finds on the device."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax

from exburn.training.feed.gather import HostGather
from exburn.training.feed.keeping import find_keys, where_of
from exburn.training.feed.kept_arrays import KeptArray, KeptArrays, hosts_in, memory_of
from exburn.training.placement import OneDevice


class KeptChunks:
    """The chunks of a run through arrays of NumPy's, of which there are some already.

    Each is compared by a digest of its bytes when its turn comes, while the device
    works on the one before.

    Args:
        store: What the run before has left; ``end`` leaves those of this one.
        owners: What has to live for that: see ``owners_of``.
        check: Looks at values, if that is to be done: not at those of chunks that have
            passed an equal one.
    """

    def __init__(
        self,
        store: KeptArrays,
        owners: Sequence[weakref.ref],
        gatherer: HostGather,
        placement: OneDevice,
        check: Callable[[Any], None] | None,
    ):
        self._store, self._owners, self._gatherer = store, owners, gatherer
        self._where, self._check = where_of(placement), check
        self._before_keys = keys = store.keys()
        self._before = dict(zip(keys, store.arrays(), strict=True))
        self._has_passed = check is None or check in store.checks_of(keys)
        self._slots: list[KeptArray] = []

    def are_of(self, forms: Sequence[tuple[tuple[int, ...], str]]) -> bool:
        """Whether all chunks are there, and have passed all checks.

        Args:
            forms: Shapes and dtypes of the chunks' arrays, one chunk after the other.
        """
        there = [key[1:3] for key in self._before_keys] == list(forms)
        there = there and self._store.lie_at(self._where) and self._has_passed
        return there and not any(array.is_deleted() for array in self._before.values())

    def all(self, structure: Any) -> Iterator[Any]:
        """The chunks as the run before has left them.

        Args:
            structure: That of a chunk.
        """
        arrays = iter([self._before[key] for key in self._before_keys])
        while part := list(itertools.islice(arrays, structure.num_leaves)):
            yield structure.unflatten(part)

    def are_current(self, chunks: Iterable[Any]) -> bool:
        """Whether the chunks hold the same as those that the run before has left."""
        hosts = [host for chunk in chunks for host in hosts_in(chunk)]
        return find_keys(hosts, self._where, self._gatherer) == self._before_keys

    def send(
        self, chunk: Any, send: Callable[[Any], Any], look: Callable[[], None]
    ) -> Any:
        """A chunk on the device; it is sent if it is not there.

        Args:
            look: Looks at its values.
        """
        hosts, structure = list(hosts_in(chunk)), jax.tree.structure(chunk)
        keys = find_keys(hosts, self._where, self._gatherer)
        before = [self._before[key] for key in keys if key in self._before]
        arrays = [array for array in before if not array.is_deleted()]
        is_new = len(arrays) < len(keys)
        if is_new:
            # Hooks may change what it is sent from.
            arrays = jax.tree.leaves(jax.block_until_ready(send(chunk)))
        if is_new or not self._has_passed:
            look()
        places = map(memory_of, hosts)
        self._slots += map(KeptArray, places, keys, arrays)
        return structure.unflatten(arrays)

    def end(self) -> None:
        """Leaves the chunks for the next run."""
        checks = () if self._check is None else (self._check,)
        self._store.keep(self._slots, self._owners, checks)
