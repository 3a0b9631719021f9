"""Which batches have to be copied, since their loader may still write to them."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from exburn.dataset.trees import leaves

__all__ = ["Borrowing"]

_LOOKS = 9  # batches: where eight arrays are filled in turn, it is the first one's turn
_MOST_HELD = 1 << 30  # bytes of memory of others that are held for it


class Borrowing:
    """Tells of which parts of its batches a loader keeps the memory.

    It may write to that while the batch still waits for its turn: fill it with the next
    batch, or shuffle the array that the batch is a slice of. The first batches tell:
    new arrays are gone when the next one comes.

    Attributes:
        looks: How many batches are still to be looked at. Each has to be copied.
        paths: Then, parts of batches that have to be copied.

    Example:
        >>> x, borrowing = np.zeros((90, 2)), Borrowing()
        >>> for i in range(0, 90, 10):
        ...     borrowing.look((x[i : i + 10], np.ones(10)))
        >>> borrowing.looks, borrowing.paths
        (0, {'[0]'})
    """

    def __init__(self):
        self.looks = _LOOKS
        self.paths: set[str] = set()
        self._owners: dict[str, list[weakref.ref[Any]]] = {}
        self._others: dict[str, list[np.ndarray]] = {}  # whose memory is not NumPy's

    def look(self, batch: tuple) -> None:
        """Looks at the next batch."""
        self.looks -= 1
        for path, leaf in leaves(batch, ""):
            owner = leaf
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if not owner.flags.writeable:
                continue
            if owner.flags.owndata:
                before = self._owners.setdefault(path, [])
                kept = any(earlier() is not None for earlier in before)
                before.append(weakref.ref(owner))
            else:  # held, so that no new array can lie there by chance
                held = self._others.setdefault(path, [])
                kept = any(np.may_share_memory(leaf, earlier) for earlier in held)
                held.append(leaf)
            if kept:
                self.paths.add(path)
        others = [leaf for held in self._others.values() for leaf in held]
        if sum(leaf.nbytes for leaf in others) > _MOST_HELD:
            self.looks, self.paths = 0, self.paths | set(self._others)
        if not self.looks:
            self._owners.clear()
            self._others.clear()
