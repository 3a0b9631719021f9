"""Rows of texts under way: what their tokens make certain, as it comes."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    DataError,
    DeadlineExceededError,
    ServingClosedError,
)
from exburn.models.generation.pieces import Pieces
from exburn.text import TextConstraint, Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of an answer, and how likely it was.

    Attributes:
        start: Characters of the answer in front of it.
        top: The likeliest tokens in its place, with their logarithms.
    """

    token: int
    logprob: float
    start: int
    top: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TextPiece:
    """What is new of a row.

    Attributes:
        tokens: Tokens that it is made of.
        logprobs: Those whose text is out, if they were asked for.
        finish: Why the row has ended, ``"stop"`` or ``"length"``; ``None`` while it
            goes on.
    """

    text: str
    tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None


class TextRow:
    """One answer under way: its tokens, and the text that they make.

    Args:
        answer: Of the engine: comes in parts of tokens.
        prompt: Tokens in front.
        stops: Texts that end it.
        least: Tokens that a piece has at least, but for the last one.
        constraint: The form that the text has to have.

    Attributes:
        tokens: Tokens of the text so far, and of a stop that it met.
    """

    def __init__(
        self,
        answer: Any,
        tokenizer: Tokenizer,
        prompt: Any,
        stops: Sequence[str] = (),
        least: int = 1,
        constraint: TextConstraint | None = None,
    ):
        self.answer, self._least = answer, least
        self._pieces = Pieces(tokenizer, prompt, stops, constraint)
        self.tokens, self.finish = 0, None
        self._text, self._size, self._new = "", 0, 0
        self._logprobs: deque[TokenLogprob] = deque()

    @property
    def begun(self) -> bool:
        """Tells whether there was a token, or there will be none."""
        return self.tokens > 0 or self.finish is not None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.answer.prompt_tokens

    @property
    def shared_tokens(self) -> int:
        """Tokens of the prompt that an earlier request had computed."""
        return self.answer.shared_tokens or 0

    def take(self, part: Any) -> TextPiece | None:
        """What another part of the answer makes certain; ``None`` if it is too little.

        Args:
            part: Some tokens with ``logprobs`` and ``top``, or ``None`` at the end.
        """
        if self.finish is not None:
            return None
        if part is None:
            return self._end()
        for at, token in enumerate(part.tokens):
            self._note(part, at, int(token))
            self._text += self._pieces.add(int(token))
            self.tokens, self._new = self.tokens + 1, self._new + 1
            if self._pieces.ended:
                self.answer.cancel()
                return self._piece("stop")
        return self._piece() if self._text and self._new >= self._least else None

    def _end(self) -> TextPiece:
        reason = self.answer.finish_reason
        if reason not in ("stop", "length"):
            raise _failure_of(self.answer)
        self._text += self._pieces.end()
        return self._piece("stop" if self._pieces.ended else reason)

    def _note(self, part: Any, at: int, token: int) -> None:
        if part.logprobs is None:
            return
        start = self._size + len(self._text) + self._pieces.overhang
        top = () if part.top is None else tuple(part.top[at])
        logprob = float(part.logprobs[at])
        self._logprobs.append(TokenLogprob(token, logprob, start, top))

    def _piece(self, finish: str | None = None) -> TextPiece:
        """The text so far, and the tokens that have begun in it."""
        text, self._text, self.finish = self._text, "", finish
        self._size += len(text)
        out = []
        whole = finish is not None and not self._pieces.ended
        while self._logprobs and (whole or self._logprobs[0].start < self._size):
            out.append(self._logprobs.popleft())
        piece = TextPiece(text, self._new, tuple(out), finish)
        self._new = 0
        return piece

    def pieces(self) -> Iterator[TextPiece]:
        """The pieces as they come; to stop early ends the row."""
        try:
            for part in self.answer:
                if (piece := self.take(part)) is not None:
                    yield piece
                if self.finish is not None:
                    return
            if (piece := self.take(None)) is not None:
                yield piece
        finally:
            self.answer.cancel()


def _failure_of(answer: Any) -> BaseException:
    """What a row's caller is told that has neither stopped nor become too long."""
    if answer.finish_reason == "deadline":
        return DeadlineExceededError("serving", "the text took too long")
    error = answer.error
    if isinstance(error, ArgumentError | DataError) and error.op != "generate":
        # What was asked has been checked: it is the model's, or the engine's.
        failure = BatchFailedError("serving", "the model failed")
        failure.__cause__ = error
        return failure
    if error is not None:
        return error
    return ServingClosedError("serving", "the text was given up")


class TextRows:
    """The rows of one request, for an event loop.

    Args:
        wait: Seconds that a row's next token may take.
        observe: Called with seconds, the tokens that these took, and whether they are
            a row's first.
    """

    def __init__(
        self,
        rows: Sequence[TextRow],
        wait: float,
        observe: Callable[[float, int, bool], None],
    ):
        self.rows, self._wait = list(rows), wait
        self._observe = observe
        self._times = [time.monotonic()] * len(self.rows)

    def cancel(self) -> None:
        """Gives up what is still under way."""
        for row in self.rows:
            row.answer.cancel()

    async def pieces(self) -> AsyncGenerator[tuple[int, TextPiece], None]:
        """The pieces of all rows as they come, with the numbers of their rows.

        A consumer that goes on slowly holds up nobody: the rows are written on.

        Raises:
            DeadlineExceededError: A row's next token did not come in time.
        """
        inbox: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        mail = _mail_of(asyncio.get_running_loop())
        for number, row in enumerate(self.rows):
            row.answer.listen(mail.box(inbox, number))
        left = len(self.rows)
        try:
            while left:
                number, part = await _within(self._wait, inbox)
                row = self.rows[number]
                if row.finish is not None:
                    continue
                self._time(number, part)
                piece = row.take(part)
                left -= row.finish is not None
                if piece is not None:
                    yield number, piece
        finally:
            self.cancel()

    def _time(self, number: int, part: Any) -> None:
        """Tells how long the tokens of a part took."""
        if part is None:
            return
        now, row = time.monotonic(), self.rows[number]
        seconds = now - self._times[number]
        self._observe(seconds, len(part.tokens), not row.begun)
        self._times[number] = now


async def _within(seconds: float, inbox: asyncio.Queue[Any]) -> Any:
    if not inbox.empty():
        return inbox.get_nowait()
    try:
        async with asyncio.timeout(seconds):
            return await inbox.get()
    except TimeoutError:
        raise DeadlineExceededError("serving", "a token took too long") from None


class _Mail:
    """Parts on their way from the engine's thread to an event loop.

    A step of the engine writes a token of each row: the loop is woken once for them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop, self._lock = loop, threading.Lock()
        self._parts: list[tuple[asyncio.Queue[Any], int, Any]] = []

    def box(self, inbox: asyncio.Queue[Any], number: int) -> Callable[[Any], None]:
        """What puts parts of a row into an inbox; from any thread."""

        def post(part: Any) -> None:
            with self._lock:
                self._parts.append((inbox, number, part))
                if len(self._parts) > 1:
                    return  # the loop comes anyway
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._deliver)

        return post

    def _deliver(self) -> None:
        with self._lock:
            parts, self._parts = self._parts, []
        for inbox, number, part in parts:
            inbox.put_nowait((number, part))


_MAILS: dict[int, _Mail] = {}


def _mail_of(loop: asyncio.AbstractEventLoop) -> _Mail:
    mail = _MAILS.get(id(loop))
    if mail is None or mail.loop is not loop:
        for key in [key for key, mail in _MAILS.items() if mail.loop.is_closed()]:
            del _MAILS[key]
        mail = _MAILS[id(loop)] = _Mail(loop)
    return mail
