"""Event filters: which calls of its hooks reach a callback."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, CallbackError
from exburn.errors.boundary import guard_methods
from exburn.runtime.sharding import processes

_UNITS = ("steps", "seconds", "epochs", "chunks")
_WORDS = {"step": "steps", "batch": "steps", "epoch": "epochs", "chunk": "chunks"}


@guard_methods
@dataclasses.dataclass(frozen=True)
class Every:
    """When a callback is called: its argument or attribute ``every``.

    One unit is given. ``steps``, ``seconds`` and ``chunks`` choose among the calls of
    batch hooks, ``epochs`` among the epochs. Chunks, the calls of the compiled
    program, and seconds cost nothing; so that the n-th step is seen, chunks end there.

    Args:
        steps: After every n-th step of an epoch.
        seconds: After so many seconds since the last call, or since the beginning; at
            the end of the chunk under way.
        epochs: In every n-th epoch.
        chunks: After every n-th chunk of steps.
        after: Only later than this. It counts steps of the whole run for filters of
            steps and chunks, else epochs or seconds.
        before: Not later than this, counted likewise.
        once: Only the first time.

    Raises:
        CallbackError: Not exactly one unit is given, or a number is out of range.

    Example:
        >>> from exburn.callbacks import CallbackList, Every, LambdaCallback
        >>> show = lambda batch, logs: print("step", batch + 1)
        >>> every = Every(steps=2, after=2, before=7)
        >>> shown = LambdaCallback(on_train_batch_end=show, every=every)
        >>> callbacks = CallbackList(shown)
        >>> for batch in range(10):
        ...     callbacks.on_train_batch_end(batch)
        step 4
        step 6

    Source: the event filters of Axon (Elixir) and PyTorch-Ignite.
    """

    steps: int | None = None
    _: dataclasses.KW_ONLY
    seconds: float | None = None
    epochs: int | None = None
    chunks: int | None = None
    after: float = 0
    before: float | None = None
    once: bool = False

    def __post_init__(self):
        units = [unit for unit in _UNITS if getattr(self, unit) is not None]
        if len(units) != 1:
            raise CallbackError(
                "Every",
                f"give one of {', '.join(_UNITS)}, received {units or 'none'}",
                hint='Write Every(steps=100), Every(seconds=30) or every="epoch".',
            )
        if self.seconds is not None:
            name, value = "seconds", self.seconds
            check_number("Every", name, value, open_low=True, error=CallbackError)
        else:
            check_count("Every", units[0], getattr(self, units[0]), error=CallbackError)
        check_number("Every", "after", self.after, error=CallbackError)
        if self.before is not None:
            least = self.after
            check_number("Every", "before", self.before, least, error=CallbackError)

    @property
    def unit(self) -> str:
        """The unit: ``"steps"``, ``"seconds"``, ``"epochs"`` or ``"chunks"``."""
        return next(unit for unit in _UNITS if getattr(self, unit) is not None)


def check_every(op: str, value: Any, *units: str) -> Every | None:
    """The argument ``every`` of a callback, as an ``Every``.

    Args:
        op: The callback named in errors.
        value: A number, ``"step"``, ``"chunk"``, ``"epoch"``, an ``Every``, ``None``.
        *units: Those that the callback can follow, that of a plain number first; all,
            and steps first, by default.

    Raises:
        CallbackError: It is none of them, or counts something else.

    Example:
        >>> check_every("CSVLogger", 100).steps
        100
        >>> check_every("EarlyStopping", 2, "epochs").epochs
        2
    """
    units = units or _UNITS
    if isinstance(value, str) and value in _WORDS:
        counted: dict[str, Any] = {_WORDS[value]: 1}
        value = Every(**counted)
    with contextlib.suppress(ArgumentError, TypeError):
        counted = {units[0]: check_count(op, "every", value)}
        value = Every(**counted)
    if value is not None and not isinstance(value, Every):
        raise CallbackError(
            op,
            f"every must be a positive number of {units[0]}, 'step', 'chunk', "
            f"'epoch', an Every or None, received {value!r}",
            hint="Write every=10, every='epoch' or every=Every(seconds=30).",
        )
    if value is not None and value.unit not in units:
        raise CallbackError(
            op,
            f"every must count {' or '.join(units)}, received {value.unit}",
            hint=f"Write every=Every({units[0]}=…).",
        )
    return value


class Occasions:
    """Counts towards the next call that a filter lets through.

    Args:
        every: The filter.
    """

    def __init__(self, every: Every):
        self.every, self.together = every, False
        self.begin_run()

    def begin_run(self) -> None:
        """Begins to count anew; what was restored stays once."""
        self.start = self.last = time.monotonic()
        self.before_epoch = self.chunks = 0
        self.over = False
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.done = self.seen = 0  # steps up to the last call, and all, of this epoch
        self.open = False
        self._asked: tuple[int, bool] | None = None

    def begin_epoch(self) -> None:
        """The steps count from 0 again; those before belong to the run."""
        self.before_epoch += self.seen
        self._begin_epoch()

    def resume_at(self, batch: int) -> None:
        """The epoch goes on after so many batches."""
        self.done = self.seen = batch

    def in_epoch(self, epoch: int) -> bool:
        """Whether a filter of epochs lets the epoch through, counted from 0."""
        number, every = epoch + 1, self.every.epochs
        return every is None or (number % every == 0 and self._within(number))

    def begins(self) -> bool:
        """Whether the beginning of this step is that of what the next call ends."""
        first, self.open = not self.open and not self.over, True
        return first

    def is_due(self, steps: int) -> bool:
        """Whether there is a call when so many steps of the epoch are done."""
        if self._asked is None or self._asked[0] != steps:
            self._asked = steps, self._decide(steps)
        return self._asked[1]

    def ends(self, steps: int) -> bool:
        """As ``is_due``, once for each chunk: it counts."""
        due = self.is_due(steps)
        if steps <= self.seen:
            self.begin_epoch()
        if self._reaches(steps, self.done):
            self.done = steps
        self.seen, self.chunks, self._asked = steps, self.chunks + 1, None
        if due:
            self.open = False
            if self.every.epochs is None:
                self.pass_once()
        return due

    def pass_once(self) -> None:
        """Notes that a call was let through."""
        self.last, self.over = time.monotonic(), self.every.once

    def _decide(self, steps: int) -> bool:
        every, now = self.every, time.monotonic()
        done, before = self.done, self.before_epoch
        if steps <= self.seen:  # an epoch began unannounced
            done, before = 0, before + self.seen
        if every.seconds is not None:
            late = now - self.last >= every.seconds and self._within(now - self.start)
            # Clocks differ, and all processes run a hook or none does.
            return processes.broadcast(late) if self.together else late
        position = before + steps
        if every.epochs is not None:
            return True  # all steps of the epochs that are let through
        if every.chunks is not None:
            return (self.chunks + 1) % every.chunks == 0 and self._within(position)
        return self._reaches(steps, done) and self._within(position)

    def _reaches(self, steps: int, done: int) -> bool:
        every = self.every.steps
        return every is not None and steps // every > done // every

    def _within(self, position: float) -> bool:
        every = self.every
        if self.over or position <= every.after:
            return False
        return every.before is None or position <= every.before

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs, so that it calls at the same steps."""
        state = {"steps": self.before_epoch, "chunks": self.chunks, "over": self.over}
        state |= {"done": self.done, "seen": self.seen}
        if self.every.seconds is not None:
            now = time.monotonic()
            state["elapsed"] = [now - self.start, now - self.last]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where ``state_dict`` was called."""
        self.before_epoch, self.chunks = state["steps"], state["chunks"]
        self.done, self.seen, self.over = state["done"], state["seen"], state["over"]
        if "elapsed" in state:
            run, last = state["elapsed"]
            now = time.monotonic()
            self.start, self.last = now - run, now - last
