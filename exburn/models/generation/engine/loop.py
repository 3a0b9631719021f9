"""The engine's thread: it calls the programs, and gives what they draw to the texts.

Programs are called ahead: while one runs, the host reads what the one before has drawn.
So a text may be written on a little behind its end, which is dropped. A text under a
constraint is not written ahead, since its next token depends on the last one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.compression.quantization.low_rank import RowAdapters
from exburn.errors import DataError, ServingClosedError
from exburn.models.generation.engine.choosing import Choices
from exburn.models.generation.engine.flights import Flight, Flights
from exburn.models.generation.engine.meter import Meter
from exburn.models.generation.engine.programs import (
    CacheLayout,
    EnginePrograms,
    EngineState,
)
from exburn.models.generation.engine.rows import Row
from exburn.models.generation.engine.scheduler import RowScheduler
from exburn.models.generation.memory import RowWeights
from exburn.runtime.donation import is_consumed
from exburn.text.constraints import compute_masks

_OP = "TextEngine"
# The sizes that programs grow from: tokens of a piece, pages, likeliest tokens.
_LEAST_PIECE, _LEAST_PAGES, _LEAST_TOPS = 16, 8, 5
_GROWTH = {"gpu": 4}  # times, from one size to the next; elsewhere each takes its time


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model as the engine's programs take it.

    Attributes:
        split: Its arrays: a ``SplitModule``.
        place: Called for a context in which new arrays go to its device.
        adapters, active: Names of all adapters, and of the one that is computed where
            a pass names none.
    """

    programs: EnginePrograms
    layout: CacheLayout
    split: Any
    place: Callable[[], contextlib.AbstractContextManager]
    adapters: tuple[str, ...] = ()
    active: str | None = None

    def weights(self, groups: Any, rows: list[Row], size: int) -> Any:
        """The arrays, with the adapter of each row where they are not all alike."""
        names = [row.adapter for row in rows]
        if set(names) <= {self.active}:
            return groups
        numbers = np.full(size, -1, np.int32)
        numbers[: len(rows)] = [
            -1 if name is None else self.adapters.index(name) for name in names
        ]
        return RowWeights(groups, RowAdapters(numbers, self.adapters))


class EngineLoop:
    """The rounds of an engine, each of a piece of prompts and a few tokens.

    Args:
        source: The model.
        piece: Tokens of prompts that are read at a time.
        stride: Tokens that are written at a time, if no text waits for its first.
    """

    def __init__(
        self,
        source: ModelSource,
        scheduler: RowScheduler,
        slots: int,
        piece: int,
        stride: int,
    ):
        self.source, self.scheduler, self.meter = source, scheduler, Meter()
        self._flights = Flights(scheduler, self.meter)
        self._slots, self._piece, self._stride = slots, piece, stride
        self._state: EngineState | None = None
        self._groups: Any = None
        self._weights: list[weakref.ref] = []  # the arrays among them
        self._number = 0  # of the round
        self._changed = threading.Condition()
        self._incoming: deque[Row] = deque()
        self._sweeps = self._closing = False
        self._next: ModelSource | None = None
        self._deadline = float("inf")

    # ------------------------------------------------------------------ other threads
    def put(self, row: Row) -> None:
        """Adds a text.

        Raises:
            ServingClosedError: The engine is closed.
        """
        with self._changed:
            if self._closing:
                raise _closing_error()
            self._incoming.append(row)
            self.meter.counts["submitted"] += 1
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Texts without a slot."""
        return len(self._incoming) + len(self.scheduler.queue)

    def wake(self) -> None:
        """Has it look for cancelled texts."""
        with self._changed:
            self._sweeps = True
            self._changed.notify()

    def renew(self, source: ModelSource) -> None:
        """Has it go on with other weights, of which all texts are read anew."""
        with self._changed:
            self._next = source
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread, and fails what is under way."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    # ------------------------------------------------------------------ the thread
    def run(self) -> None:
        """Runs rounds until it is closed."""
        while True:
            try:
                with self._changed:
                    while not self._has_work():
                        self._groups = None  # others may consume them meanwhile
                        self._changed.wait()
                    if self._closing:
                        break
                with self.source.place():
                    self._round()
            except BaseException as error:
                if not self._lost_weights():
                    self._fail_all(error)
        self._fail_all(_closing_error())
        self._state = None

    def _lost_weights(self) -> bool:
        """Whether a program failed because the model got other weights meanwhile.

        A training consumes those it begins with. The next round reads texts anew.
        """
        if self._groups is None or self._state is None:
            return False
        now = self._state, self.source.split.read()
        return any(map(is_consumed, jax.tree.leaves(self._groups))) and not any(
            map(is_consumed, jax.tree.leaves(now))
        )

    def _has_work(self) -> bool:
        work = (
            self._closing or self._incoming or self._flights.under_way or self._sweeps
        )
        return bool(work or self._next or self.scheduler.rows or self.scheduler.queue)

    def _fail_all(self, error: BaseException) -> None:
        """Fails every text: the state is lost."""
        scheduler = self.scheduler
        if not isinstance(error, ServingClosedError):
            self.meter.fail(error)
        with self._changed:
            rows, self._incoming = list(self._incoming), deque()
        rows += [*scheduler.rows.values(), *scheduler.queue.drop(lambda row: True)]
        for row in rows:
            self._flights.end(row, "error", error, keep=False)
        scheduler.pool.forget_all()
        self._state, self._groups = None, None
        self._flights.drop()

    def _round(self) -> None:
        self._number += 1
        self._take_in()
        self._sweep()
        self._follow_weights()
        while (row := self.scheduler.admit()) is not None:
            self._begin(row)
        rows = self.scheduler.rows.values()
        constrained = any(row.matcher is not None for row in rows)
        if constrained:
            self._flights.look()
        reads = bool(self.scheduler.reading)
        if reads:
            self._read()
            if constrained:  # what may follow the first token depends on it
                self._flights.look()
        self._write(1 if reads else self._stride)
        self._flights.look(before=self._number)

    def _take_in(self) -> None:
        with self._changed:
            while self._incoming:
                row = self._incoming.popleft()
                self.scheduler.queue.put(row)
                self._sweeps |= row.answer.is_cancelled
                deadline = row.request.deadline
                if deadline is not None:
                    self._deadline = min(self._deadline, deadline)

    def _sweep(self) -> None:
        """Ends what is cancelled or late."""
        now = time.monotonic()
        if not self._sweeps and now < self._deadline:
            return
        self._sweeps, self._deadline = False, float("inf")
        scheduler = self.scheduler

        def reason(row: Row) -> str | None:
            if row.answer.is_cancelled:
                return "cancelled"
            deadline = row.request.deadline
            if deadline is None:
                return None
            if deadline <= now:
                return "deadline"
            self._deadline = min(self._deadline, deadline)
            return None

        gone = scheduler.queue.drop(lambda row: reason(row) is not None)
        gone += [row for row in scheduler.rows.values() if reason(row) is not None]
        for row in gone:
            self._flights.end(row, reason(row) or "cancelled")

    def _follow_weights(self) -> None:
        """Reads texts anew if the model has other weights than they were read with."""
        with self._changed:
            source, self._next = self._next, None
        if source is None and self._are_replaced():
            source = self.source
        if source is not None:
            self._flights.look()
            scheduler = self.scheduler
            for row in sorted(scheduler.rows.values(), key=lambda row: -row.order):
                scheduler.preempt(row)
                self.meter.counts["preempted"] += 1
            scheduler.pool.forget_all()
            if source.layout != self.source.layout:
                self._state = None
            self.source, self._groups = source, None
        if self._groups is None:
            self._groups = self.source.split.read()
            self._weights = [weakref.ref(v) for v in jax.tree.leaves(self._groups)]
        if self._state is None:
            layout = self.source.layout
            self._state = layout.state(self.scheduler.pool.count, self._slots)

    def _are_replaced(self) -> bool:
        """Whether the model has other arrays than the last programs were given."""
        split = self.source.split
        if self._groups is not None:
            return split.replaced_arrays(*self._groups) is not None
        arrays = jax.tree.leaves(split.read())
        pairs = itertools.zip_longest((ref() for ref in self._weights), arrays)
        return any(before is not now for before, now in pairs)

    # ------------------------------------------------------------------ calls
    def _begin(self, row: Row) -> None:
        if row.answer.times["admitted"] is None:
            row.answer.times["admitted"] = time.monotonic()
            self.meter.counts["prompt_tokens"] += len(row.text)
            self.meter.counts["shared_tokens"] += row.answer.shared_tokens
        if row.request.repetition_penalty != 1:
            assert self._state is not None and row.slot is not None
            if self._state.seen is None:
                shape = self._slots, self.source.layout.vocabulary
                seen = jnp.zeros(shape, bool)
                self._state = dataclasses.replace(self._state, seen=seen)
            self._state = self.source.programs.note(self._state, row.slot, row.text)

    def _read(self) -> None:
        """Reads a piece of the prompts whose turn it is."""
        reading = self.scheduler.reading
        size = _size(reading[0].unread, _LEAST_PIECE, self._piece)
        rows = reading[: max(self._piece // size, 1)]
        compute_masks([row.matcher for row in rows if row.unread <= size])
        rows = [row for row in rows if row.unread > size or self._may_draw(row)]
        if not rows:
            return
        counts = [min(row.unread, size) for row in rows]
        height = _size(len(rows), 1, self._piece // size)
        ids = np.zeros((height, size), np.int32)
        for place, (row, count) in enumerate(zip(rows, counts, strict=True)):
            ids[place, :count] = row.text[row.length : row.length + count]
        ends = [row.length + count for row, count in zip(rows, counts, strict=True)]
        whole, reals = self.scheduler.numbers(rows, counts, ends, height, _pages)
        program = self.source.programs.read
        self._call(program, rows, (ids, whole, reals), ())
        for row, count in zip(rows, counts, strict=True):
            self.scheduler.note_read(row, count)

    def _write(self, steps: int) -> None:
        """Writes tokens of all texts that are read."""
        rows = self.scheduler.writing
        if any(row.matcher is not None for row in rows):
            steps = 1
        if all(row.rest < steps for row in rows):
            steps = 1
        compute_masks([row.matcher for row in rows])
        rows = self._with_pages([row for row in rows if self._may_draw(row)], steps)
        if not rows:
            return
        ends = [row.length + steps for row in rows]
        height = _size(len(rows), 1, self._slots)
        ones = [1] * len(rows)
        numbers = self.scheduler.numbers(rows, ones, ends, height, _pages)
        self._call(self.source.programs.write, rows, numbers, (steps,))
        for row in rows:
            row.length += steps
            row.index += steps

    def _call(
        self, program: Callable, rows: list[Row], first: tuple, last: tuple
    ) -> None:
        """Calls a program, whose tokens are looked at later."""
        size = len(first[-1])
        masks = self._masks(rows, size)
        choices = _choices(rows, masks is not None)
        weights = self.source.weights(self._groups, rows, size)
        self._state, chosen = program(
            weights, self._state, *first, masks, choices, *last
        )
        for array in jax.tree.leaves(chosen):
            array.copy_to_host_async()
        drawn = [(place, row, row.turn) for place, row in enumerate(rows)]
        if not last:  # of a piece: prompts that end in it
            size = first[0].shape[1]
            drawn = [entry for entry in drawn if entry[1].unread <= size]
        self._flights.put(Flight(self._number, drawn, chosen))

    def _with_pages(self, rows: list[Row], steps: int) -> list[Row]:
        """Those rows that have pages for so many tokens more."""
        for row in rows:
            while row.slot is not None and not self.scheduler.grow(
                row, row.length + steps
            ):
                if self._flights.under_way:  # some may have ended
                    self._flights.look()
                else:
                    self.scheduler.preempt(self.scheduler.youngest())
                    self.meter.counts["preempted"] += 1
        return [row for row in rows if row.slot is not None]

    def _may_draw(self, row: Row) -> bool:
        """Whether a row's constraint tells what may come; one that fails ends it."""
        if row.matcher is None:
            return True
        try:
            row.mask = np.asarray(row.matcher.mask(), np.uint32)
            if not row.mask.any():
                if not row.matcher.has_ended:
                    raise DataError(_OP, "the constraint allows no token to come")
                row.tell(last=True)
                self._flights.end(row, "stop")
                return False
        except Exception as error:
            self._flights.end(row, "error", error)
            return False
        return True

    def _masks(self, rows: list[Row], size: int) -> np.ndarray | None:
        """The bits of tokens that may come, if any row has a constraint."""
        if all(row.matcher is None for row in rows):
            return None
        words = -(-self.source.layout.vocabulary // 32)
        masks = np.full((size, words), 0xFFFFFFFF, np.uint32)
        for place, row in enumerate(rows):
            if row.matcher is not None:
                masks[place] = 0
                masks[place, : len(row.mask)] = row.mask[:words]
        return masks


def _pages(count: int) -> int:
    """The number of pages that a program is made for."""
    return _size(count, _LEAST_PAGES, 1 << 30)


def _size(count: int, least: int, most: int) -> int:
    """The size of a program that is made for so many, or fewer.

    Example:
        >>> _size(1, 1, 24), _size(17, 1, 24), _size(99, 1, 24)
        (1, 24, 24)
    """
    size, growth = least, _GROWTH.get(jax.default_backend(), 2)
    while size < min(count, most):
        size *= growth
    return min(size, most)


def _choices(rows: list[Row], masks: bool) -> Choices:
    """What any of the rows asks for."""
    requests = [row.request for row in rows]
    drawn = [request for request in requests if request.temperature > 0]
    tops = [r.logprobs for r in requests if r.logprobs is not None]
    return Choices(
        draws=bool(drawn),
        filters=any(r.top_k or r.top_p < 1 or r.min_p > 0 for r in drawn),
        penalty=any(r.repetition_penalty != 1 for r in requests),
        masks=masks,
        tops=None if not tops else max(tops) and _size(max(tops), _LEAST_TOPS, 64),
    )


def _closing_error() -> ServingClosedError:
    return ServingClosedError(_OP, "the engine is closed")
