"""Arrays that a run leaves on the device for the next one, told by their contents."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from exburn.data import leaves as leaves_in
from exburn.runtime.transfer import spare

_SMALL = 1 << 20  # bytes of an array that need not be given up when it is gone

Key = tuple[bytes, tuple[int, ...], str, Any]
"""Digest, shape and dtype of an array, and where it lies on the device."""

# Trainers of the same data share them.
_by_key: weakref.WeakValueDictionary[Key, jax.Array] = weakref.WeakValueDictionary()


@dataclasses.dataclass(frozen=True)
class KeptArray:
    """An array on the device, and what it was sent from.

    Attributes:
        memory: Where the host has it: see ``memory_of``.
        key: By which an equal one is found.
    """

    memory: tuple
    key: Key
    array: jax.Array


class KeptArrays:
    """The arrays of a trainer's last run of one kind, which stay on the device.

    An array may be changed in place at any time, by its name, a view, a file that is
    mapped, another library. So it counts as the same one only if a digest of all its
    bytes is the same: 128 bits of XXH3, which one core computes at 10 to 30 GB/s, where
    an H200 is sent 11. They are given up when nothing is alive any more of what the
    user gave, when other data come, and when memory is asked for.

    Attributes:
        trusted: Whether the last arrays in the same memory were unchanged, so that it
            is worth to begin with them before that is known.
        changes: Whether the last run had other data than the one before it.
    """

    def __init__(self) -> None:
        self._slots: tuple[KeptArray, ...] = ()
        self._passed: tuple[Any, ...] = ()  # checks of values that these have passed
        self._owners: list[weakref.ref] = []
        self._given: tuple[tuple, ...] = ()
        self._last: list[Key] = []  # of the last run, whether they are there or not
        self.trusted, self.changes = True, False
        spare.add(self)

    @property
    def sizes(self) -> dict[Key, int]:
        """Bytes of each array."""
        return {slot.key: slot.array.nbytes for slot in self._slots}

    def are_of(self, tree: Any) -> bool:
        """Whether these were sent from the memory that arrays of NumPy's are in."""
        slots, hosts = self._slots, list(hosts_in(tree))
        return len(slots) == len(hosts) > 0 and all(
            slot.memory == memory_of(host) and not slot.array.is_deleted()
            for slot, host in zip(slots, hosts, strict=True)
        )

    def holds_most(self, tree: Any) -> bool:
        """Whether one was sent from the memory that the largest array is in now."""
        hosts = list(hosts_in(tree))
        place = memory_of(max(hosts, key=lambda host: host.nbytes)) if hosts else None
        return any(slot.memory == place for slot in self._slots)

    def were_given(self, tree: Any) -> bool:
        """Whether the run before was given arrays in the same memory."""
        return self._given == tuple(map(memory_of, hosts_in(tree)))

    def note_given(self, tree: Any) -> bool:
        """Notes what a run is given; whether the run before was given the same."""
        before, self._given = self._given, tuple(map(memory_of, hosts_in(tree)))
        return before == self._given

    def lie_at(self, where: Any) -> bool:
        """Whether all of them are where programs would take them now."""
        return all(slot.key[-1] == where for slot in self._slots)

    def find(self, keys: Sequence[Key]) -> dict[Key, jax.Array]:
        """Those of some keys that are on the device; all others are given up."""
        before = {slot.key: slot.array for slot in self._slots}
        arrays = {key: before.get(key, _by_key.get(key)) for key in keys}
        self.release()
        return {
            key: array
            for key, array in arrays.items()
            if array is not None and not array.is_deleted()
        }

    def note_keys(self, keys: list[Key]) -> None:
        """Notes of which data a run is."""
        self.changes = bool(self._last) and keys != self._last
        self._last = keys

    def expects_others(self, tree: Any) -> bool:
        """Whether these are likely to be data that no run has had, like the last ones.

        As where a program trains on one part of its data after the other.
        """
        hosts = list(hosts_in(tree))
        forms = [(host.shape, host.dtype.str) for host in hosts]
        alike = forms == [key[1:3] for key in self._last]
        return self.changes and alike and not (self.trusted and self.holds_most(tree))

    def keep(
        self,
        slots: Iterable[KeptArray],
        owners: Iterable[weakref.ref],
        passed: Iterable[Any],
    ) -> None:
        """Keeps arrays until their owners are gone, if there are any."""
        this = weakref.ref(self)

        def drop(_: Any) -> None:
            store = this()
            if store is not None and all(ref() is None for ref in store._owners):
                store.release()

        owners = list(owners)
        alive = [owner for ref in owners if (owner := ref()) is not None]
        if owners and not alive:
            self.release()
            return
        self._owners = [weakref.ref(owner, drop) for owner in alive]
        self._slots, self._passed = tuple(slots), tuple(passed)
        for slot in self._slots:
            _by_key[slot.key] = slot.array

    def keys(self) -> list[Key]:
        """Those of all arrays, in their order."""
        return [slot.key for slot in self._slots]

    def arrays(self) -> list[jax.Array]:
        """All of them, in their order."""
        return [slot.array for slot in self._slots]

    def checks_of(self, keys: Sequence[Key]) -> tuple[Any, ...]:
        """The checks that the arrays of some keys have passed."""
        return self._passed[-4:] if keys == self.keys() else ()

    def release(self) -> None:
        """Gives all of them up."""
        self._slots, self._passed = (), ()


def memory_of(array: np.ndarray) -> tuple:
    """Where the host has an array, and how it is read.

    Example:
        >>> x = np.zeros((4, 2))
        >>> memory_of(x) == memory_of(x[:]), memory_of(x) == memory_of(x[1:])
        (True, False)
    """
    return array.ctypes.data, array.shape, array.strides, array.dtype.str


def owners_of(*trees: Any) -> list[weakref.ref]:
    """What has to be alive for data to be given once more: of views, the array whose
    memory they show.

    What cannot be told to be alive, such as lists of numbers, is left out, and so are
    arrays of less than 1 MiB: NumPy resizes no array that somebody refers to.

    Example:
        >>> x = np.zeros((1 << 18, 2))
        >>> owners_of(x[3:], [1.0, 2.0])[0]() is x
        True
    """
    owners = []
    for tree in trees:
        for _, leaf in leaves_in(tree, ""):
            owner = None
            while leaf is not None:
                if type(leaf).__weakrefoffset__:
                    owner = leaf
                leaf = leaf.base if isinstance(leaf, np.ndarray) else None
            if owner is not None and getattr(owner, "nbytes", _SMALL) >= _SMALL:
                owners.append(weakref.ref(owner))
    return owners


def kept_bytes() -> int:
    """Bytes on the device that are kept for runs to come."""
    sizes: dict[Key, int] = {}  # trainers may share them
    for store in list(spare):
        sizes |= store.sizes
    return sum(sizes.values())


def hosts_in(tree: Any) -> Iterator[np.ndarray]:
    """The arrays of NumPy's in a tree; others are on a device already."""
    return (v for v in jax.tree.leaves(tree) if isinstance(v, np.ndarray))
