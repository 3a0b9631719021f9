"""The state that a dashboard shows: progress, speed, memory, curves."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exburn.callbacks.contract.amounts import amount_of_step
from exburn.core.printing import size_text
from exburn.errors import printable
from exburn.visualization.curves import Curve, Panel, Point, thin

_MOST_POINTS = 2000  # of a curve; thinned to half of that where there are more
_FEW = 3  # epochs from which on they make a curve by themselves
_WINDOW = 5.0  # seconds that the speed is averaged over
_MESSAGES = 200


class Series:
    """Points of a curve, of which there are never more than so many."""

    def __init__(self):
        self.points: list[Point] = []

    def add(self, x: float, y: float) -> None:
        self.points.append((x, y))
        if len(self.points) > _MOST_POINTS:
            self.points = thin(self.points, _MOST_POINTS // 2)


class DashboardState:
    """A training as a dashboard shows it.

    Args:
        title: What is trained.
        device: Where.
        clock: Seconds that never go back.

    Attributes:
        phase: What is going on: ``"training"``, ``"compiling"`` … or how it ended.
        epoch, step: Finished epochs of the run, and steps of the one at hand.
        epochs, steps: How many there are to be; ``None`` where nobody knows.
        logs: What was logged last.
        gauges: Texts such as the memory in use.
        messages: The last lines that were printed.
    """

    def __init__(
        self,
        title: str,
        device: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.title, self.device, self._clock = title, device, clock
        self.phase = "starting"
        self.epochs: int | None = None
        self.steps: int | None = None
        self.step_size, self.unit = 0.0, "steps"
        self.epoch = self.step = 0
        self.logs: dict[str, Any] = {}
        self.gauges: list[str] = []
        self.data_wait: float | None = None
        self.messages: deque[str] = deque(maxlen=_MESSAGES)
        self.began = clock()
        self.ended: float | None = None
        self._by_epoch: dict[str, Series] = {}
        self._by_chunk: dict[str, Series] = {}
        self._rates = Series()
        self._marks: deque[tuple[float, float]] = deque()  # time, rows seen
        self._rows = 0.0
        self._first: tuple[float, float] | None = None  # time, share of the run done

    # ------------------------------------------------------------------ what comes in
    def plan(self, params: Mapping[str, Any]) -> None:
        """Takes what the run was called with."""
        self.epochs, self.steps = params.get("epochs"), params.get("steps")
        self.step_size, self.unit = amount_of_step(params)

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self.step, self.phase = epoch, 0, "training"

    def advance(self, step: int, logs: Mapping[str, Any]) -> None:
        """Notes that so many steps of the epoch are done."""
        now = self._clock()
        self._rows += (step - self.step) * (self.step_size or 1)
        self.step, self.phase = step, "training"
        self.logs = dict(logs)
        self._marks.append((now, self._rows))
        while len(self._marks) > 2 and now - self._marks[0][0] > _WINDOW:
            self._marks.popleft()
        if self._first is None:
            self._first = now, self.share
        if self.epoch < _FEW and self.steps:
            length = max(self.steps, step)
            self._note(self._by_chunk, self.epoch + step / length, logs)

    def end_epoch(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Notes the logs of a finished epoch, its validation's among them."""
        rate = self.rate
        self.epoch, self.logs = epoch + 1, dict(logs)
        self.steps = self.steps or self.step or None
        self.step = 0
        self._note(self._by_epoch, epoch + 1, logs)
        if rate:
            self._rates.add(epoch + 1, rate)
        if self._first is None:
            self._first = self._clock(), self.share

    def end(self, phase: str) -> None:
        """Notes how the run ended."""
        self.phase, self.ended = phase, self._clock()

    def _note(self, into: dict[str, Series], x: float, logs: Mapping[str, Any]) -> None:
        for name, value in logs.items():
            if isinstance(value, int | float) or np.ndim(value) == 0:
                try:
                    number = float(value)
                except (TypeError, ValueError):
                    continue
                into.setdefault(name, Series()).add(x, number)

    # ------------------------------------------------------------------ what is shown
    @property
    def elapsed_time(self) -> float:
        """Seconds since the beginning."""
        return (self._clock() if self.ended is None else self.ended) - self.began

    @property
    def share(self) -> float:
        """The part of the run that is done, from 0 to 1; 0 where nobody knows."""
        if not self.epochs:
            return 0.0
        within = self.step / self.steps if self.steps else 0.0
        return min((self.epoch + min(within, 1.0)) / self.epochs, 1.0)

    @property
    def eta(self) -> float | None:
        """Seconds that are left, by the pace since the first chunk was there."""
        if self._first is None or self.ended is not None:
            return None
        (began, first), now, share = self._first, self._clock(), self.share
        if share <= first or now <= began:
            return None
        return (now - began) / (share - first) * (1 - share)

    @property
    def rate(self) -> float | None:
        """Rows (of batches of unknown size: steps) a second, over some seconds."""
        if len(self._marks) < 2:
            return None
        (first, before), (last, rows) = self._marks[0], self._marks[-1]
        return (rows - before) / (last - first) if last > first else None

    def summary(self) -> str:
        """The training in one line."""
        total = f" of {self.epochs}" if self.epochs else ""
        parts = [self.title, self.phase, f"epoch {self.epoch}{total}"]
        parts.append(duration_text(self.elapsed_time))
        parts += [f"{name} {value_text(v)}" for name, v in self.logs.items()]
        return printable(" · ".join(parts))

    def panels(self) -> list[Panel]:
        """The curves: one panel for a metric, training and validation together."""
        names = [*self._by_epoch, *self._by_chunk]
        panels = []
        for name in dict.fromkeys(name.removeprefix("val_") for name in names):
            curves = [
                Curve(label, points)
                for label, key in (("train", name), ("val", f"val_{name}"))
                if (points := self._points(key))
            ]
            if curves:
                panels.append(Panel(name, tuple(curves)))
        if len(self._rates.points) > 1:
            panels.append(Panel(f"{self.unit}/s", (Curve("", self._rates.points),)))
        return panels

    def table(self) -> tuple[list[str], list[tuple[float, list[str]]]]:
        """A table of the logs: the names, and for each epoch the values as text."""
        names = list(self._by_epoch)
        values = {name: dict(series.points) for name, series in self._by_epoch.items()}
        epochs = sorted({x for points in values.values() for x in points})
        return names, [
            (x, [value_text(values[n][x]) if x in values[n] else "" for n in names])
            for x in epochs
        ]

    def _points(self, name: str) -> list[Point]:
        ended = self._by_epoch.get(name)
        points = [] if ended is None else ended.points
        within = self._by_chunk.get(name)
        if len(points) >= _FEW or within is None:
            return points
        return sorted({**dict(within.points), **dict(points)}.items())


def duration_text(seconds: float) -> str:
    """A time for people.

    Example:
        >>> [duration_text(s) for s in (9.94, 192, 3600, 200_000)]
        ['9.9s', '3m12s', '1h00m', '2d07h']
    """
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}m{rest:02d}s"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h" if days else f"{hours}h{minutes:02d}m"


def rate_text(rate: float) -> str:
    """Rows a second for people.

    Example:
        >>> rate_text(1234567.0), rate_text(0.25)
        ('1,234,567', '0.25')
    """
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def memory_texts(use: Any) -> list[str]:
    """The memory in use, as far as it is known."""
    texts = []
    if use.device is not None:
        limit = f" of {size_text(use.device_limit)}" if use.device_limit else ""
        texts.append(f"device {size_text(use.device)}{limit}")
    if use.host is not None:
        texts.append(f"host {size_text(use.host)}")
    return texts


def value_text(value: Any) -> str:
    """A logged value for people."""
    if isinstance(value, float) or hasattr(value, "dtype") and np.ndim(value) == 0:
        number = float(value)
        if not math.isfinite(number):
            return str(number)
        if 1000 <= abs(number) < 1e9:
            return f"{number:,.0f}"
        small = number == 0 or 1e-3 <= abs(number) < 1000
        return f"{number:.4f}" if small else f"{number:.3e}"
    return str(value)
