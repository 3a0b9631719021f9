"""What the engine is asked for, and the answer as it comes."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_count, check_number, check_optional, check_seed
from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    DataError,
    DTypeError,
    ExBurnError,
)

_OP = "TextRequest"
_MOST_TOPS = 64  # likeliest tokens that are told beside the chosen one


@dataclasses.dataclass(frozen=True, eq=False)
class TextRequest:
    """A text to write on from, and how.

    Args:
        tokens: Token numbers of the prompt, ``[time]``.
        max_new_tokens: Tokens to write at most.
        temperature: The scores are divided by it before the draw; 0 takes the likeliest
            token.
        top_k: Only so many of the likeliest tokens are drawn; 0 for all.
        top_p, min_p: As of ``exburn.text.TopP`` and ``MinP``, of those that are left.
        repetition_penalty: As of ``exburn.text.Sampler``.
        stops: Sequences of token numbers, each of which ends the text, and is not part
            of the answer.
        seed: Makes the draws those of ``generate`` with this seed, in any company.
        logprobs: How many of the likeliest tokens are told beside the chosen one, with
            the logarithms of their probabilities by the model's scores as they are; 0
            for the chosen one's alone, ``None`` for none.
        constraint: What tokens may come, ``exburn.text.TextConstraint``.
        adapter: Name of one of the model's adapters; ``None`` for the active one.
        deadline: Time of ``time.monotonic()`` at which the text ends, ready or not.
        client: Whom the request is of: those of several clients take turns.

    Raises:
        ArgumentError: A number is out of range.
        DataError: There are no tokens.
        DTypeError: They are no integers.

    Example:
        >>> TextRequest([1, 2, 3], 8, temperature=0.0, stops=[[2]]).tokens.tolist()
        [1, 2, 3]
    """

    tokens: Any
    max_new_tokens: int
    _: dataclasses.KW_ONLY
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stops: Sequence[Sequence[int]] = ()
    seed: int | None = None
    logprobs: int | None = None
    constraint: Any = None
    adapter: str | None = None
    deadline: float | None = None
    client: Hashable = None

    def __post_init__(self):
        values = {
            "tokens": _read_tokens(self.tokens),
            "max_new_tokens": check_count(_OP, "max_new_tokens", self.max_new_tokens),
            "temperature": check_number(_OP, "temperature", self.temperature),
            "top_k": min(check_count(_OP, "top_k", self.top_k, 0), 1 << 30),
            "top_p": check_number(_OP, "top_p", self.top_p, high=1, open_low=True),
            "min_p": check_number(_OP, "min_p", self.min_p, high=1),
            "repetition_penalty": check_number(
                _OP, "repetition_penalty", self.repetition_penalty, open_low=True
            ),
            "stops": _read_stops(self.stops),
            "seed": check_seed(_OP, self.seed),
            "logprobs": check_optional(check_count, _OP, "logprobs", self.logprobs, 0),
            "deadline": check_optional(check_number, _OP, "deadline", self.deadline),
        }
        if (values["logprobs"] or 0) > _MOST_TOPS:
            raise ArgumentError(
                _OP, f"logprobs is at most {_MOST_TOPS}, received {self.logprobs}"
            )
        if self.constraint is not None and not hasattr(self.constraint, "start"):
            raise ArgumentError(
                _OP,
                f"constraint is an exburn.text.TextConstraint, not {self.constraint!r}",
            )
        if not isinstance(self.client, Hashable):
            raise ArgumentError(_OP, f"client must be hashable, not {self.client!r}")
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _read_tokens(tokens: Any) -> np.ndarray:
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise ArgumentError(_OP, f"tokens have one axis, not the shape {array.shape}")
    if array.size == 0:
        raise DataError(
            _OP,
            "the prompt is empty",
            hint="Begin with the token that ends or begins a text.",
        )
    if array.dtype.kind not in "iu":
        raise DTypeError(_OP, f"token numbers must be integers, received {array.dtype}")
    if array.min() < 0 or array.max() >= 1 << 31:
        raise DataError(_OP, f"token numbers are ≥ 0, received {array.min()}")
    return array.astype(np.int32)


def _read_stops(stops: Any) -> tuple[tuple[int, ...], ...]:
    rows = []
    for stop in stops:
        numbers = [stop] if isinstance(stop, int | np.integer) else stop
        row = tuple(check_count(_OP, "stops", token, 0) for token in numbers)
        if not row:
            raise ArgumentError(_OP, "a stop must not be empty")
        rows.append(row)
    # Of stops that are complete at the same token the longest is taken away.
    return tuple(sorted(set(rows), key=len, reverse=True))


@dataclasses.dataclass(frozen=True)
class TextPart:
    """Tokens of an answer.

    Attributes:
        tokens: ``int32[n]``.
        logprobs: ``float32[n]``: logarithms of their probabilities, if asked for.
        top: For each token the likeliest ones, ``(token, logarithm)``, if asked for.
    """

    tokens: np.ndarray
    logprobs: np.ndarray | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = None

    @classmethod
    def join(cls, parts: Sequence[TextPart]) -> TextPart:
        """All tokens of several parts, of at least one."""
        told = [part.logprobs for part in parts if part.logprobs is not None]
        tops = [part.top for part in parts if part.top is not None]
        return cls(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate(told) if told else None,
            tuple(row for top in tops for row in top) if tops else None,
        )


class TextAnswer:
    """The answer to a request: its parts as they come, or all of it.

    Attributes:
        request: The request.
        finish_reason: ``"stop"``, ``"length"``, ``"cancelled"``, ``"deadline"`` or
            ``"error"``; ``None`` while it is written.
        error: What made it fail, or ``None``.
        stop: The sequence of tokens that ended it, or ``None``.
        prompt_tokens: Tokens of the prompt.
        shared_tokens: Those of them that another text's pages had.
        times: Moments of ``time.monotonic()``: ``submitted``, ``admitted``, ``first``
            (token), ``ended``; ``None`` of what has not come.

    Example:
        >>> from exburn.applications import GPT2
        >>> from exburn.models.generation.engine import TextEngine
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=32)
        >>> with TextEngine(model, slots=2) as engine:
        ...     answer = engine.submit(TextRequest([1, 2], 3, temperature=0))
        ...     parts = [part.tokens for part in answer]
        >>> sum(map(len, parts)), answer.finish_reason
        (3, 'length')
    """

    def __init__(self, request: TextRequest, wake: Callable[[], None] = lambda: None):
        self.request = request
        self.finish_reason: str | None = None
        self.error: BaseException | None = None
        self.stop: tuple[int, ...] | None = None
        self.prompt_tokens, self.shared_tokens = len(request.tokens), 0
        self.times: dict[str, float | None] = {
            "submitted": time.monotonic(),
            "admitted": None,
            "first": None,
            "ended": None,
        }
        self._parts: list[TextPart] = []
        self._changed = threading.Condition()
        self._listeners: list[Callable[[TextPart | None], None]] = []
        self._wake, self._cancelled = wake, False

    @property
    def has_ended(self) -> bool:
        """Whether no more tokens come."""
        return self.finish_reason is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled it."""
        return self._cancelled

    def __iter__(self) -> Iterator[TextPart]:
        """The parts, each as soon as it is there.

        Raises:
            ExBurnError: The request has failed.
        """
        at = 0
        while True:
            with self._changed:
                while at == len(self._parts) and not self.has_ended:
                    self._changed.wait()
                parts = self._parts[at:]
            yield from parts
            at += len(parts)
            if not parts:
                self._raise()
                return

    def listen(self, callback: Callable[[TextPart | None], None]) -> None:
        """Has a function called with each part, and with ``None`` at the end.

        Those that are there come at once; later ones from the engine's thread, which
        waits for the function. One that raises fails the request.
        """
        with self._changed:
            self._listeners.append(callback)
            for part in self._parts:
                callback(part)
            if self.has_ended:
                callback(None)

    def cancel(self) -> None:
        """Ends the text; its slot and its pages are free for others at once."""
        self._cancelled = True
        self._wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has ended; False if that takes longer than so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.has_ended, timeout)

    def result(self, timeout: float | None = None) -> TextPart:
        """All tokens, once the text has ended.

        Raises:
            TimeoutError: That takes longer than ``timeout`` seconds.
            ExBurnError: The request has failed.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"no answer within {timeout} s")
        self._raise()
        asked = self.request.logprobs
        empty = TextPart(
            np.zeros(0, np.int32),
            None if asked is None else np.zeros(0, np.float32),
            () if asked else None,
        )
        return TextPart.join([empty, *self._parts])

    # ------------------------------------------------------------------ the engine's
    def add(self, part: TextPart) -> None:
        """Adds tokens. What a listener raises is the caller's."""
        with self._changed:
            if self.times["first"] is None:
                self.times["first"] = time.monotonic()
            self._parts.append(part)
            self._changed.notify_all()
            for listener in self._listeners:
                listener(part)

    def end(self, reason: str, error: BaseException | None = None) -> list[Exception]:
        """Ends it, once; returns what listeners raise."""
        with self._changed:
            if self.has_ended:
                return []
            self.times["ended"] = time.monotonic()
            self.error, self.finish_reason = error, reason
            self._changed.notify_all()
            failures = []
            for listener in self._listeners:
                try:
                    listener(None)
                except Exception as failure:
                    failures.append(failure)
            return failures

    def _raise(self) -> None:
        if self.error is None:
            return
        if isinstance(self.error, ExBurnError):
            raise self.error
        kind = type(self.error).__name__
        raise BatchFailedError(
            "TextEngine", f"the request failed: {kind}: {self.error}"
        ) from self.error
