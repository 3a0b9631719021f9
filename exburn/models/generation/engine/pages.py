"""Which page of the cache holds what: counted, shared, and kept for later texts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np


class PagePool:
    """The pages of a cache, by number.

    A page that is full may be registered by what it holds: all tokens up to its end.
    Texts that begin with those read it instead of their own. One that nobody reads any
    more stays, until its room is needed; the one that was last read first goes first.

    Args:
        count: Number of pages.
        size: Tokens of a page.

    Example:
        >>> pool = PagePool(4, size=2)
        >>> pages, keys = pool.take(2), pool.keys_of([5, 6, 7, 8], None)
        >>> pool.register(pages[0], keys[0])
        >>> pool.release(pages)
        >>> pool.share(keys) == pages[:1], pool.free
        (True, 3)
    """

    def __init__(self, count: int, size: int):
        self.count, self.size = count, size
        self._spare = list(range(count - 1, -1, -1))
        self._readers = [0] * count
        self._keys: dict[int, bytes] = {}  # of registered pages
        self._pages: dict[bytes, int] = {}
        self._unread: OrderedDict[int, None] = OrderedDict()  # registered ones

    @property
    def free(self) -> int:
        """Pages that nobody reads: those that are empty, and those that are kept."""
        return len(self._spare) + len(self._unread)

    @property
    def unread(self) -> int:
        """Pages that nobody reads, kept for texts that begin alike."""
        return len(self._unread)

    @property
    def together(self) -> int:
        """Pages that several texts read."""
        return sum(readers > 1 for readers in self._readers)

    def pages_for(self, tokens: int) -> int:
        """How many pages so many tokens need."""
        return -(-tokens // self.size)

    def take(self, count: int) -> list[int] | None:
        """So many pages for one reader; ``None`` if there are fewer."""
        if count > self.free:
            return None
        pages = []
        for _ in range(count):
            if not self._spare:
                page, _ = self._unread.popitem(last=False)
                self._forget(page)
                self._spare.append(page)
            page = self._spare.pop()
            self._readers[page] = 1
            pages.append(page)
        return pages

    def release(self, pages: Iterable[int]) -> None:
        """Notes that a reader has ended."""
        # From the end on: of a text's pages the first ones are of use the longest.
        for page in reversed(list(pages)):
            self._readers[page] -= 1
            if self._readers[page]:
                continue
            if page in self._keys:
                self._unread[page] = None
            else:
                self._spare.append(page)

    def keys_of(self, tokens: Sequence[int] | np.ndarray, salt: object) -> list[bytes]:
        """A key for each page that the tokens fill: of all of them up to its end.

        Args:
            salt: What else decides what a page holds.
        """
        rows = np.ascontiguousarray(tokens, np.int32)
        key, keys = repr(salt).encode(), []
        for end in range(self.size, len(rows) + 1, self.size):
            part = rows[end - self.size : end].tobytes()
            key = hashlib.blake2b(key + part, digest_size=20).digest()
            keys.append(key)
        return keys

    def has(self, key: bytes) -> bool:
        """Whether a page is registered under a key."""
        return key in self._pages

    def share(self, keys: Sequence[bytes]) -> list[int]:
        """The pages that hold the first of these keys, with one more reader."""
        pages = []
        for key in keys:
            if (page := self._pages.get(key)) is None:
                break
            self._unread.pop(page, None)
            self._readers[page] += 1
            pages.append(page)
        return pages

    def register(self, page: int, key: bytes) -> None:
        """Notes what a full page holds, unless another one holds it already."""
        if key not in self._pages and page not in self._keys:
            self._pages[key] = page
            self._keys[page] = key

    def forget_all(self) -> None:
        """Drops all that is kept: what pages hold is of no use any more."""
        for page in list(self._keys):
            self._forget(page)
        self._spare.extend(self._unread)
        self._unread.clear()

    def _forget(self, page: int) -> None:
        del self._pages[self._keys.pop(page)]
