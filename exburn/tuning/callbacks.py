"""Callbacks of a whole sweep, which may end it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from exburn.callbacks import EarlyStopping
from exburn.core.printing import print_text
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods
from exburn.tuning.records import LaneRecord, describe


class RunningSweep(Protocol):
    """The sweep under way, as callbacks see it.

    Attributes:
        monitor, mode: The value that lanes are compared by, and which way it is better.
    """

    epochs: int
    monitor: str
    mode: str

    @property
    def records(self) -> list[LaneRecord]:
        """The record of each lane, in the order of the trials."""
        ...

    @property
    def notes(self) -> list[str]:
        """Sentences on what runs in turn, and on how many lanes run at once."""
        ...

    def best(self) -> LaneRecord:
        """The lane of the best score so far."""
        ...

    def describe(self) -> list[str]:
        """The work that is to be done, in lines."""
        ...

    def stop(self) -> None:
        """Ends the sweep after this epoch."""
        ...


class SweepCallback:
    """Base of what is told of a sweep; every hook does nothing.

    ``self.run`` is the sweep under way: its ``records`` hold what each lane has logged,
    and ``self.run.stop()`` ends it after this epoch.

    Example:
        >>> class Patience(SweepCallback):
        ...     def on_epoch_end(self, epoch):
        ...         if self.run.best().score < 0.01:
        ...             self.run.stop()
    """

    run: RunningSweep

    def on_sweep_begin(self) -> None:
        """All is prepared, and no lane has been trained yet."""

    def on_epoch_end(self, epoch: int) -> None:
        """All lanes that run have trained this epoch, counted from 0."""

    def on_rung_end(self, epochs: int, stopped: Sequence[int]) -> None:
        """The scheduler has decided; lanes of these numbers end here.

        Args:
            epochs: Epochs that the lanes have behind them.
            stopped: Numbers of the lanes among the records.
        """

    def on_sweep_end(self) -> None:
        """No lane runs any more."""


@guard_methods
class Progress(SweepCallback):
    """A line for each epoch: how many lanes run, and the best of them.

    Args:
        seconds: The least time between two lines; that of the last epoch comes always.
        write: Called with each line.

    Example:
        >>> lines = []
        >>> isinstance(Progress(seconds=5.0, write=lines.append), SweepCallback)
        True
    """

    def __init__(self, seconds: float = 1.0, write: Callable[[str], Any] | None = None):
        self._seconds, self._write = seconds, write or _print
        self._last = self._begun = 0.0

    def on_sweep_begin(self) -> None:
        self._begun = time.perf_counter()
        for line in self.run.describe():
            self._write(line)

    def on_epoch_end(self, epoch: int) -> None:
        now, run = time.perf_counter(), self.run
        if now - self._last < self._seconds and epoch + 1 < run.epochs:
            return
        self._last = now
        running = [r for r in run.records if r.status == "running"]
        frozen = sum(r.status == "nan" for r in run.records)
        line = f"epoch {epoch + 1}/{run.epochs} · {len(running)} lanes"
        line += f" · {frozen} NaN" if frozen else ""
        if (best := run.best()).history:
            line += f" · best {run.monitor} {best.score:.4g} ({describe(best.trial)})"
        self._write(f"{line} · {now - self._begun:.1f} s")

    def on_rung_end(self, epochs: int, stopped: Sequence[int]) -> None:
        if stopped:
            left = sum(r.status == "running" for r in self.run.records)
            self._write(f"after {epochs} epochs {left} lanes go on")


class FunctionSweepCallback(SweepCallback):
    """A function that is called after each epoch, with its number and the records."""

    def __init__(self, function: Callable[[int, list[LaneRecord]], Any]):
        self._function = function

    def on_epoch_end(self, epoch: int) -> None:
        self._function(epoch, self.run.records)


def make_callbacks(
    listed: Any, verbose: Any
) -> tuple[list[SweepCallback], EarlyStopping | None]:
    """The callbacks of a sweep: those given, functions among them, and its progress.

    An ``EarlyStopping`` comes by itself: it watches each lane.
    """
    if verbose not in (0, 1, 2, "auto", True, False):
        raise ArgumentError("sweep", f"verbose must be 0 or 1, received {verbose!r}")
    if listed is None:
        listed = []
    callbacks: list[SweepCallback] = []
    stopping: EarlyStopping | None = None
    for one in listed if isinstance(listed, list | tuple) else [listed]:
        if type(one) is EarlyStopping and stopping is None:
            stopping = one
        elif isinstance(one, SweepCallback):
            callbacks.append(one)
        elif callable(one) and not hasattr(one, "on_epoch_end"):
            callbacks.append(FunctionSweepCallback(one))
        else:
            raise ArgumentError(
                "sweep",
                f"a callback must be a tuning.SweepCallback, received {one!r}",
                hint="Callbacks of fit see one model; those of a sweep see all lanes. "
                "One EarlyStopping watches each of them.",
            )
    return [*callbacks, Progress()] if verbose else callbacks, stopping


def _print(line: str) -> None:
    print_text(line, file=sys.stdout)
