"""The texts that an engine writes: where each is, and whose turn it is."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from exburn.models.generation.engine.requests import TextAnswer, TextPart, TextRequest

Top = tuple[tuple[int, float], ...]


class Row:
    """A text under way.

    Attributes:
        matcher: What its constraint knows of it so far, or ``None``.
        seed: The number that its draws come from.
        salt: What besides its tokens decides its keys and values.
        adapter: Name of the adapter that it is computed with, or ``None``.
        written: Tokens that were drawn, those of a stop included.
        slot: Its slot, or ``None`` while it waits.
        pages: Its pages, of which the first ``keyed`` are registered for others.
        text: What is read before it writes: the prompt, and what was written before its
            pages were taken from it.
        length: Tokens that the cache has or will have, by the programs called so far.
        index: Number of the next token to draw, by these.
        mask: Which tokens its constraint allows next.
        moment: When its last token came.
        turn: Grows each time that pages are taken from it: what programs called before
            then draw is of no account.
    """

    def __init__(
        self,
        request: TextRequest,
        answer: TextAnswer,
        matcher: Any,
        seed: int,
        salt: Hashable,
        adapter: str | None = None,
    ):
        self.request, self.answer, self.matcher = request, answer, matcher
        self.seed, self.salt, self.adapter = seed, salt, adapter
        self.written: list[int] = []
        self.slot: int | None = None
        self.pages: list[int] = []
        self.keys: list[bytes] = []
        self.text = request.tokens
        self.keyed = self.length = self.index = self.turn = self.order = 0
        self.mask, self.moment = np.zeros(0, np.uint32), 0.0
        self._logprobs: list[float] = []
        self._tops: list[Top] = []
        self._told = 0

    @property
    def reads(self) -> bool:
        """Whether some of its text is still to be read."""
        return self.length < len(self.text)

    @property
    def unread(self) -> int:
        """Tokens of its text that no program reads yet."""
        return len(self.text) - self.length

    @property
    def rest(self) -> int:
        """Tokens that are still to be drawn, by the programs called so far."""
        return self.request.max_new_tokens - self.index

    @property
    def tokens(self) -> np.ndarray:
        """Prompt and answer so far."""
        return np.concatenate(
            [self.request.tokens, np.array(self.written, np.int32)]
        ).astype(np.int32)

    def begin(self) -> None:
        """Notes that it is to be read from the first token on."""
        self.text, self.turn = self.tokens, self.turn + 1
        self.length = self.keyed = 0
        self.index = len(self.written)

    # ------------------------------------------------------------------ its answer
    def take(self, token: int, logprob: float | None, top: Top | None) -> str | None:
        """Takes the next token; tells why the text ends with it, if it does."""
        self.written.append(token)
        if logprob is not None:
            self._logprobs.append(logprob)
        if top is not None:
            self._tops.append(top)
        for stop in self.request.stops:
            if tuple(self.written[-len(stop) :]) == stop:
                self.answer.stop = tuple(stop)
                return "stop"
        if self.matcher is not None:
            self.matcher.accept(token)
            if self.matcher.has_ended:
                return "stop"
        if len(self.written) >= self.request.max_new_tokens:
            return "length"
        return None

    def tell(self, last: bool) -> None:
        """Gives the answer what is certain: nothing that may become a stop."""
        end = len(self.written)
        if last:
            end -= len(self.answer.stop or ())
        else:
            end -= max(map(len, self.request.stops), default=1) - 1
        if end <= self._told:
            return
        place, asked = slice(self._told, end), self.request.logprobs
        self._told = end
        self.answer.add(
            TextPart(
                np.array(self.written[place], np.int32),
                None if asked is None else np.array(self._logprobs[place], np.float32),
                tuple(self._tops[place]) if asked else None,
            )
        )


class FairQueue:
    """Rows that wait: clients take turns, and each one's come in their order."""

    def __init__(self):
        self._clients: OrderedDict[Hashable, deque[Row]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        for rows in self._clients.values():
            yield from rows

    def put(self, row: Row) -> None:
        """Adds a row behind the others of its client."""
        self._clients.setdefault(row.request.client, deque()).append(row)
        self._count += 1

    def put_back(self, row: Row) -> None:
        """Adds a row that has begun before: it is the next one."""
        client = row.request.client
        self._clients.setdefault(client, deque()).appendleft(row)
        self._clients.move_to_end(client, last=False)
        self._count += 1

    def first(self, ready: Callable[[Row], bool]) -> Row | None:
        """The next row, if there is one: the first that is ready, client by client."""
        for rows in self._clients.values():
            if rows and ready(rows[0]):
                return rows[0]
        return None

    def take(self, row: Row) -> None:
        """Takes a row away, and gives the next turn to another client."""
        client = row.request.client
        self._remove(row)
        if client in self._clients:
            self._clients.move_to_end(client)

    def drop(self, unwanted: Callable[[Row], bool]) -> list[Row]:
        """Takes away all rows of some kind."""
        dropped = [row for row in self if unwanted(row)]
        for row in dropped:
            self._remove(row)
        return dropped

    def _remove(self, row: Row) -> None:
        rows = self._clients[row.request.client]
        rows.remove(row)
        self._count -= 1
        if not rows:
            del self._clients[row.request.client]
