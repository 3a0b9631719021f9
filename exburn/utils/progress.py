"""A progress bar for loops written by hand."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterable
from typing import Any

from exburn.config import is_interactive_logging_enabled
from exburn.core.printing import page_width, shorten
from exburn.errors import ArgumentError, printable
from exburn.errors.boundary import api_boundary, guard_methods


@guard_methods
class Progbar:
    """Shows how far a loop is, how long it will take, and values averaged on the way.

    At the end stands what the last call is given: the results of the whole loop.

    Args:
        target: Steps in all; ``None`` if unknown.
        width: Width of the bar in characters.
        verbose: 0 (nothing), 1 (a line that changes) or 2 (one line at the end).
        interval: Least number of seconds between two changes of the line.
        stateful_metrics: Names of values that are shown as they are, not averaged.
        stateless_metrics: Names of the only values that are averaged, instead.
        unit_name: What a step is called.

    Raises:
        ArgumentError: Both kinds of names are given.

    Example:
        >>> bar = Progbar(2, verbose=2)
        >>> bar.update(1, [("loss", 1.0)])
        >>> bar.update(2, [("loss", 3.0)])  # doctest: +ELLIPSIS
        2/2 - 0s - ... - loss: 3.0000
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        stateless_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ):
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ArgumentError(
                "Progbar",
                "stateful_metrics and stateless_metrics name the same in two ways",
                hint="Give one of them.",
            )
        self.target, self.width, self.verbose = target, width, verbose
        self.interval, self.unit_name = interval, unit_name
        self.stateful_metrics = set(stateful_metrics or ())
        self.stateless_metrics = (
            None if stateless_metrics is None else set(stateless_metrics)
        )
        self._values: dict[str, tuple[float, float]] = {}
        self._start = self._shown = time.monotonic()
        self._length = self._seen = 0
        self._live = getattr(sys.stdout, "isatty", bool)() or in_notebook()

    def update(
        self,
        current: int,
        values: Iterable[tuple[str, Any]] | None = None,
        finalize: bool | None = None,
    ) -> None:
        """Shows that ``current`` steps are done.

        Args:
            current: Steps done.
            values: ``(name, value)`` of the steps since the last update.
            finalize: Whether this is the end; by default when the target is reached.
        """
        reached = self.target is not None and current >= self.target
        done = reached if finalize is None else finalize
        steps = max(current - self._seen, 1)
        for name, value in values or ():
            total, weight = self._values.get(name, (0.0, 0.0))
            if done or not self._averages(name):
                self._values[name] = float(value), 1
            else:
                self._values[name] = total + float(value) * steps, weight + steps
        self._seen = current
        now = time.monotonic()
        if self.verbose == 1 and not done and now - self._shown < self.interval:
            return
        if self.verbose == 1:
            self._draw(current, now, done)
        elif self.verbose == 2 and done:
            self._write(f"{self._count(current)} - {self._fields(current, now)}\n")
        self._shown = now

    def _averages(self, name: str) -> bool:
        if self.stateless_metrics is not None:
            return name in self.stateless_metrics
        return name not in self.stateful_metrics

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Shows that ``n`` more steps are done."""
        self.update(self._seen + n, values)

    def _draw(self, current: int, now: float, done: bool) -> None:
        if not is_interactive_logging_enabled():
            if done:
                text = f"{self._count(current)} {self._fields(current, now)}"
                logging.getLogger("exburn").info(text)
            return
        if not self._live and not done:
            return
        bar = ""
        if self.target:
            filled = min(int(self.width * current / self.target), self.width)
            bar = f" {'━' * filled}{' ' * (self.width - filled)}"
        line = f"{self._count(current)}{bar} {self._fields(current, now, done)}"
        if self._live and not done:  # a second row would stay when the line changes
            line = shorten(line, page_width() - 1, tail=0)
        clear = " " * max(self._length - len(line), 0)
        start = "\r" if self._live else ""
        self._write(start + line + clear + ("\n" if done else ""))
        self._length = 0 if done else len(line)

    def _count(self, current: int) -> str:
        if self.target is None:
            return f"{current}/Unknown"
        digits = len(str(self.target))
        return f"{current:{digits}d}/{self.target}"

    def _fields(self, current: int, now: float, done: bool = True) -> str:
        spent = now - self._start
        each = spent / max(current, 1)
        if done or self.target is None:
            parts = [f"{spent:.0f}s"]
        else:
            parts = [f"{each * (self.target - current):.0f}s left"]
        parts.append(f"{_duration(each)}/{self.unit_name}")
        for name, (total, weight) in self._values.items():
            mean = total / max(weight, 1)
            small = mean != 0 and (abs(mean) < 1e-3 or not math.isfinite(mean))
            name = printable(str(name))
            parts.append(f"{name}: {mean:.4e}" if small else f"{name}: {mean:.4f}")
        return " - ".join(parts)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


@api_boundary
def in_notebook() -> bool:
    """Whether IPython runs this program (and was not only imported by it)."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.0f}s"
    return f"{seconds * 1e3:.0f}ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f}us"
