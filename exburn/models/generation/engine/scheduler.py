"""Which texts have a slot, and which pages: all that is decided on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exburn.models.generation.engine.pages import PagePool
from exburn.models.generation.engine.programs import COLUMNS, REALS
from exburn.models.generation.engine.rows import FairQueue, Row

_SLOT, _START, _COUNT, _LENGTH, _WRITES, _INDEX, _SEED, _TOP_K = range(len(COLUMNS))


class RowScheduler:
    """Slots and pages of an engine.

    A text gets a slot once there are pages for all that it reads, and pages for what it
    writes as it comes to them. Where there are none, the text that came last gives its
    own back, and is read again later: its draws depend on its seed and their number
    alone, so that it goes on as it would have.

    Args:
        longest: Tokens that a text may have.
        reserves: Whether a text gets all of its pages at once, since what it has
            written cannot be read again to the same keys.
    """

    def __init__(self, pool: PagePool, slots: int, longest: int, reserves: bool):
        self.pool, self.queue = pool, FairQueue()
        self.rows: dict[int, Row] = {}
        self._reserves, self._slots, self._order = reserves, slots, 0
        self._spare = list(range(slots - 1, -1, -1))
        width = min(pool.pages_for(longest), pool.count)
        self._whole = np.zeros((slots + 1, len(COLUMNS) + width), np.int32)
        self._whole[:, len(COLUMNS) :] = pool.count
        self._whole[:, _SLOT] = np.arange(slots + 1)
        self._whole[:, _LENGTH] = 1
        self._reals = np.ones((slots + 1, len(REALS)), np.float32)
        self._tables = self._whole[:, len(COLUMNS) :]

    @property
    def reading(self) -> list[Row]:
        """Texts of which a part is still to be read, in the order of their turns."""
        rows = [row for row in self.rows.values() if row.reads]
        return sorted(rows, key=lambda row: row.order)

    @property
    def writing(self) -> list[Row]:
        """Texts whose next tokens are to be drawn."""
        return [row for row in self.rows.values() if not row.reads and row.rest > 0]

    # ------------------------------------------------------------------ coming, going
    def admit(self) -> Row | None:
        """The next text with a slot of its own; ``None`` if it must wait."""
        if not self._spare:
            return None
        coming = {key for row in self.reading for key in row.keys}

        def ready(row: Row) -> bool:
            # One that begins like a text being read waits for the pages of that.
            keys = self._keys(row)
            new = next((key for key in keys if not self.pool.has(key)), None)
            return new not in coming

        if (row := self.queue.first(ready)) is None:
            return None
        pages = self.pool.share(self._keys(row))
        tokens = len(row.text) + 1
        if self._reserves:
            tokens = len(row.request.tokens) + row.request.max_new_tokens
        wanted = self.pool.pages_for(tokens) - len(pages)
        spare = len(self.rows)  # so that those that write do not give it back at once
        more = None if wanted + spare > self.pool.free else self.pool.take(wanted)
        if more is None:
            self.pool.release(pages)
            return None
        self.queue.take(row)
        row.pages, row.keyed = [*pages, *more], len(pages)
        row.length = len(pages) * self.pool.size
        if row.answer.times["admitted"] is None:
            row.answer.shared_tokens = row.length
        self._seat(row)
        return row

    def _keys(self, row: Row) -> list[bytes]:
        """The keys of pages that a row can share: its last token is always read."""
        if not row.keys:
            row.keys = self.pool.keys_of(row.text[:-1], row.salt)
        return row.keys

    def _seat(self, row: Row) -> None:
        row.slot, self._order = self._spare.pop(), self._order + 1
        row.order = self._order
        self.rows[row.slot] = row
        request, whole = row.request, self._whole[row.slot]
        whole[_LENGTH], whole[_TOP_K] = len(row.text), request.top_k
        whole[_SEED] = np.uint32(row.seed & 0xFFFFFFFF).view(np.int32)
        self._reals[row.slot] = (
            request.temperature,
            request.top_p,
            request.min_p,
            request.repetition_penalty,
        )
        self._tables[row.slot] = self.pool.count
        self._tables[row.slot, : len(row.pages)] = row.pages

    def release(self, row: Row, keep: bool = True) -> None:
        """Takes slot and pages from a row.

        Args:
            keep: Whether its full pages may serve others.
        """
        if row.slot is None:
            return
        if keep:
            # No program has seen its last token.
            sure = row.tokens[:-1][: row.length] if row.written else row.text
            if self._reserves or not row.written:
                sure = row.text[: row.length]
            self._register(row, self.pool.keys_of(sure, row.salt))
        del self.rows[row.slot]
        self._spare.append(row.slot)
        self.pool.release(row.pages)
        row.pages, row.keys, row.slot = [], [], None

    def preempt(self, row: Row) -> None:
        """Takes slot and pages from a row, which is the next to get some again."""
        self.release(row)
        row.begin()
        self.queue.put_back(row)

    def grow(self, row: Row, tokens: int) -> bool:
        """Gives a row the pages for so many tokens in all; False if there are none."""
        last = len(row.request.tokens) + row.request.max_new_tokens
        lack = self.pool.pages_for(min(tokens, last)) - len(row.pages)
        if lack <= 0:
            return True
        if (pages := self.pool.take(lack)) is None:
            return False
        at = len(row.pages)
        self._tables[row.slot, at : at + lack] = pages
        row.pages += pages
        return True

    def youngest(self) -> Row:
        """The row that got its slot last."""
        return max(self.rows.values(), key=lambda row: row.order)

    # ------------------------------------------------------------------ calls
    def note_read(self, row: Row, count: int) -> None:
        """Notes that a program has been called that reads so many tokens more."""
        row.length += count
        self._register(row, row.keys[: row.length // self.pool.size])
        if row.reads:
            self._order += 1
            row.order = self._order  # others' pieces come first
        else:
            row.index += 1

    def _register(self, row: Row, keys: list[bytes]) -> None:
        for page, key in zip(row.pages[row.keyed :], keys[row.keyed :], strict=False):
            self.pool.register(page, key)
            row.keyed += 1

    def numbers(
        self,
        rows: list[Row],
        counts: list[int],
        ends: list[int],
        size: int,
        fit: Callable[[int], int],
    ) -> tuple[np.ndarray, np.ndarray]:
        """What a program is told of rows: whole numbers with pages, and others.

        Args:
            counts: Tokens of each that a pass sees.
            ends: Tokens of each that the cache then has.
            size: Rows of the program; those that fill it up have no slot.
            fit: The number of pages that programs are made for, of a number of them.
        """
        width = fit(max(map(self.pool.pages_for, ends)))
        width = min(width, self._tables.shape[1])
        slots = [row.slot or 0 for row in rows]
        slots += [self._slots] * (size - len(rows))
        whole = self._whole[slots, : len(COLUMNS) + width]
        for column, values in (
            (_START, [row.length for row in rows]),
            (_COUNT, counts),
            (_WRITES, [n >= len(row.text) for row, n in zip(rows, ends, strict=True)]),
            (_INDEX, [row.index for row in rows]),
        ):
            whole[: len(rows), column] = values
        return whole, self._reals[slots]
