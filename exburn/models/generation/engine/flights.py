"""Programs that were called, whose tokens nobody has looked at; and texts that end."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from typing import Any

import jax

from exburn.errors import DataError
from exburn.models.generation.engine.meter import Meter
from exburn.models.generation.engine.rows import Row
from exburn.models.generation.engine.scheduler import RowScheduler


@dataclasses.dataclass(frozen=True)
class Flight:
    """A program that was called.

    Attributes:
        number: That of its round.
        rows: Place in the program, row, and the row's turn then.
        chosen: What it draws, ``[steps, rows]`` each: a ``choosing.Chosen``.
    """

    number: int
    rows: list[tuple[int, Row, int]]
    chosen: Any


class Flights:
    """Gives what programs have drawn to the texts, in the order of the calls."""

    def __init__(self, scheduler: RowScheduler, meter: Meter):
        self._scheduler, self._meter = scheduler, meter
        self._flights: deque[Flight] = deque()

    @property
    def under_way(self) -> bool:
        """Whether tokens are to come."""
        return bool(self._flights)

    def put(self, flight: Flight) -> None:
        """Adds a program."""
        self._flights.append(flight)

    def drop(self) -> None:
        """Forgets all programs: what they draw is lost."""
        self._flights.clear()

    def look(self, before: float = float("inf")) -> None:
        """Waits for the programs of rounds before a number, and ends texts by them."""
        while self._flights and self._flights[0].number < before:
            flight = self._flights.popleft()
            chosen = jax.device_get(flight.chosen)
            now = time.monotonic()
            for place, row, turn in flight.rows:
                if row.turn == turn and not row.answer.has_ended:
                    self._take(row, place, chosen, now)

    def _take(self, row: Row, place: int, chosen: Any, now: float) -> None:
        count, reason = len(row.written), None
        try:
            for step, token in enumerate(chosen.token[:, place].tolist()):
                if not chosen.sound[step, place]:
                    raise DataError(
                        "TextEngine", "the model's scores are NaN or infinite"
                    )
                reason = row.take(token, *_logarithms(row, chosen, step, place))
                if reason is not None:
                    break
            row.tell(last=reason is not None)
        except Exception as error:  # also of its constraint, or of who listens
            self.end(row, "error", error, keep=False)
            return
        self._measure(row, count, now)
        if reason is not None:
            self.end(row, reason)

    def _measure(self, row: Row, count: int, now: float) -> None:
        """Notes when a row has got its tokens beyond so many."""
        news = len(row.written) - count
        self._meter.counts["tokens"] += news
        if count == 0:
            self._meter.first.append(now - (row.answer.times["submitted"] or now))
        else:
            self._meter.between.append((now - row.moment) / news)
        row.moment = now

    def end(
        self,
        row: Row,
        reason: str,
        error: BaseException | None = None,
        keep: bool = True,
    ) -> None:
        """Ends a text; its slot and its pages are free.

        Args:
            keep: Whether its pages may serve others.
        """
        self._scheduler.release(row, keep)
        if reason == "deadline":
            try:
                row.tell(last=True)
            except Exception as failure:  # of who listens
                reason, error = "error", failure
        self._meter.counts[reason] += 1
        for failure in row.answer.end(reason, error):
            self._meter.failure = failure


def _logarithms(row: Row, chosen: Any, step: int, place: int) -> tuple:
    """The logarithm of a token's probability, and the likeliest ones, if asked for."""
    asked = row.request.logprobs
    if asked is None:
        return None, None
    logprob = float(chosen.logprob[step, place])
    if not asked:
        return logprob, None
    tokens, values = (array[step, place, :asked].tolist() for array in chosen.top)
    return logprob, tuple(zip(tokens, values, strict=True))
