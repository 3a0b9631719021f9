"""The progress bar of `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from exburn.callbacks.contract import Callback, CallbackList
from exburn.callbacks.contract.amounts import amount_of_step
from exburn.callbacks.contract.every import Every, check_every
from exburn.callbacks.progress_bar.layout import Line
from exburn.callbacks.progress_bar.view import ProgressView, choose_view
from exburn.errors import warn

_SHARE = 0.01  # of the time may go into drawing
_LONGEST_PAUSE = 2.0


class ProgressBar(Callback):
    """Shows each epoch's progress: steps, time left, samples/s, loss and metrics.

    A terminal gets a live bar that stays as one line when the epoch is over; a
    notebook one cell that is updated in place; anything else plain lines. It draws at
    most ten times a second, and less often where drawing is slow, so that it takes
    about one hundredth of the time at most.

    Each epoch has one row, and its values stand below those of the one before. Where a
    row would be too long for the terminal or the notebook, the epochs become a table:
    the names stand above the values. Before a program is compiled, the live line, or a
    line of its own in a file, says so; afterwards the epoch's line says how long it
    took.

    Args:
        verbose: 0 silent, 1 live, 2 one line for each epoch, `"table"` a table of the
            epochs at any width, `"auto"` 1 in a terminal or notebook and 2 elsewhere;
            None for what `fit` was given.
        console: A `rich.console.Console` to draw on instead of standard output.
        every: Which epochs are shown: 10, or an `Every` of epochs; all by default.

    Raises:
        CallbackError: `every` counts something else than epochs.

    Attributes:
        data_wait: Share of the time spent waiting for data, from 0 to 1. A trainer
            that measures it sets it; from 5 % on it is shown.
        alone: Whether no one else prints between two epochs. Then the lines of epochs
            that take milliseconds are printed together, ten times a second.
        quick: Whether the first step comes at once, unless it is compiled. Else
            something is shown before it.

    Example:
        >>> import io
        >>> from rich.console import Console
        >>> bar = ProgressBar(verbose=2, console=Console(file=io.StringIO()))
        >>> bar.set_params({"epochs": 3, "steps": 10})
        >>> bar.on_train_begin()
        >>> bar.on_epoch_begin(0)
        >>> bar.on_chunk_end(10, {"loss": 0.5})
        >>> bar.on_epoch_end(0, {"loss": 0.5, "val_loss": 0.25})
        >>> bar.console.file.getvalue().startswith("Epoch 1/3 - 10/10 -  0.0s - ")
        True
    """

    light = True

    def __init__(
        self,
        verbose: int | str | None = None,
        console: Any = None,
        *,
        every: int | str | Every | None = None,
    ):
        self.every = check_every("ProgressBar", every, "epochs")
        self.verbose = verbose
        self.console = console
        self.data_wait: float | None = None
        self.alone = self.quick = False
        self._clock = time.perf_counter
        self._view: ProgressView | None = None
        self._fitting = False
        self._steps: int | None = None  # of the last epoch, if nobody knew before
        self._draw_at = 0.0
        self._compiled = 0.0  # seconds, since the last line that stays
        self._meter = _Meter("", 0, {}, None, 0.0)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._open()
        self._fitting = True
        self._steps = None
        names = list(self._params().get("metrics") or ())
        if self._params().get("validation"):
            names += [f"val_{name}" for name in names]
        if self._view is not None:
            self._view.expect(names)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        epochs = self._params().get("epochs")
        width = len(f"Epoch {epochs}/{epochs}")
        name = f"{epoch + 1}/{epochs}"
        self._start(f"Epoch {name}", width, self._steps, epoch=name)

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._advance(step, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps = self._meter.step
        self._finish(logs)
        self._meter.label = ""  # nothing to draw until an epoch begins that is shown

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._close()

    def on_compile(self, program: str) -> None:
        if self._view is None:
            return
        if not self._view.live:
            self._write_safely(self._view.announce, f"Compiling {program} …")
        elif self._meter.label:
            self._draw_at, self._meter.compiling = 0.0, program
            self._draw(self._clock())

    def on_compile_end(self, program: str, seconds: float) -> None:
        self._meter.compiling = ""
        self._compiled += seconds

    def on_data_wait(self) -> None:
        if self._view is not None and self._view.live and self._meter.label:
            self._draw(self._clock())

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._fitting:
            self._open()
            self._start("Evaluate")

    def on_test_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        if self._fitting:
            self._meter.validated = step
            self._draw(self._clock())
        else:
            self._advance(step, logs)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        if not self._fitting:
            self._finish(logs)
            self._close()

    def on_predict_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._open()
        self._start("Predict")

    def on_predict_chunk_end(
        self, step: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._advance(step, None)

    def on_predict_end(self, logs: dict[str, Any] | None = None) -> None:
        self._finish(None)
        self._close()

    def on_exit(self, error: BaseException | None = None) -> None:
        self._close()

    def _params(self) -> Mapping[str, Any]:
        return self.params or {}

    def _open(self) -> None:
        self._close()
        verbose = self._params().get("verbose", "auto")
        verbose = verbose if self.verbose is None else self.verbose
        verbose = verbose if self.writes else 0
        self._view = choose_view(verbose, self.console, alone=self.alone)
        self._draw_at, self._compiled = 0.0, 0.0
        self._meter = _Meter("", 0, {}, None, 0.0)

    def _close(self) -> None:
        view, self._view, self._fitting = self._view, None, False
        if view is not None:
            self._write_safely(view.close)

    def _start(
        self,
        label: str,
        width: int = 0,
        steps: int | None = None,
        epoch: str = "",
    ) -> None:
        now = self._clock()
        self._meter = _Meter(label, width, self._params(), steps, now, epoch)
        if self._view is not None:
            if self._draw_at == 0.0 and self._view.live and not self.quick:
                self._draw(now)
            else:  # a short epoch needs its last line only
                self._draw_at = now + self._view.interval

    def _advance(self, step: int, logs: Mapping[str, Any] | None) -> None:
        now = self._clock()
        self._meter.advance(step, logs or {}, now)
        self._draw(now)

    def _draw(self, now: float) -> None:
        view = self._view
        if view is None or not self._meter.label or now < self._draw_at:
            return
        line = self._meter.line(now, True, self.data_wait)
        self._write_safely(view.show, line)
        done = self._clock()
        pause = min((done - now) / _SHARE, _LONGEST_PAUSE)
        self._draw_at = done + max(pause, view.interval)

    def _finish(self, logs: Mapping[str, Any] | None) -> None:
        if self._view is not None:
            now, meter = self._clock(), self._meter
            meter.logs = logs or {}
            compiled, self._compiled = self._compiled, 0.0
            line = meter.line(now, False, self.data_wait, compiled)
            self._write_safely(self._view.finish, line)

    def _write_safely(self, write: Callable[..., None], *line: Line | str) -> None:
        """Calls it; a full disk or a closed pipe ends the bar, not the training."""
        try:
            write(*line)
        except OSError as error:
            self._view = None
            reason = f"the progress bar ends, it cannot be written: {error}"
            warn(reason, RuntimeWarning)


ProgbarLogger = CallbackList.progress_bar = ProgressBar


class _Meter:
    """How far one epoch, evaluation or prediction is, and how fast."""

    def __init__(
        self,
        label: str,
        width: int,
        params: Mapping[str, Any],
        steps: int | None,
        now: float,
        epoch: str = "",
    ):
        self.label, self.epoch, self.compiling = label, epoch, ""
        self.width = width
        self.total = params.get("steps") or steps
        self.size, self.unit = amount_of_step(params)
        self.samples = params.get("samples")
        self.step = 0
        self.validated = 0
        self.logs: Mapping[str, Any] = {}
        self.began = self.latest = now
        self.first: tuple[int, float] | None = None  # step and time of the first chunk

    def advance(self, step: int, logs: Mapping[str, Any], now: float) -> None:
        self.step, self.logs, self.latest = step, logs, now
        if self.first is None:
            self.first = (step, now)

    def line(
        self,
        now: float,
        interim: bool,
        data_wait: float | None = None,
        compiled: float = 0.0,
    ) -> Line:
        total = self.total if interim else (self.total or self.step)
        count = f"{self.step}/{total}" if total else f"{self.step} steps"
        if total:  # it gets no longer
            count = count.rjust(2 * len(str(total)) + 1)
        waits = interim and self.compiling
        return Line(
            self.label,
            self.width,
            self.step,
            total,
            f"compiling {self.compiling} …" if waits else count,
            "" if waits else duration_text(now - self.began),
            tuple(self.logs.items()),
            tuple(self._fields(interim, data_wait)),
            self.epoch,
            f"compiled in {duration_text(compiled)}" if compiled else "",
            self._speed(interim),
        )

    def _fields(self, interim: bool, data_wait: float | None) -> Iterator[str]:
        if interim and (pace := self._pace(True)) and self._is_steady():
            left = (self.total or 0) - self.step
            if left > 0:
                yield f"ETA {duration_text(left / pace[1])}"
        if interim and self.validated:
            yield f"validation {self.validated}"
        if data_wait is not None and data_wait >= 0.05:
            yield f"data wait {data_wait:.0%}"

    def _speed(self, interim: bool) -> str:
        if not (pace := self._pace(interim)):
            return ""
        samples, steps = pace
        rate = samples if samples else steps
        return f"{_rate(rate)} {self.unit if samples else 'steps'}/s"

    def _is_steady(self) -> bool:
        return self.first is not None and self.first[0] < self.step

    def _pace(self, interim: bool) -> tuple[float, float] | None:
        """Samples and steps in a second; ``None`` while nothing tells them."""
        # While running, leave out the first chunk: it may have waited for the compiler.
        start_step, start = 0, self.began
        if interim and self._is_steady() and self.first is not None:
            start_step, start = self.first
        seconds, steps = self.latest - start, self.step - start_step
        if seconds <= 0 or steps <= 0:
            return None
        samples = self._samples(self.step) - self._samples(start_step)
        return samples / seconds, steps / seconds

    def _samples(self, step: int) -> float:
        count = step * self.size
        return count if self.samples is None else min(count, self.samples)


def duration_text(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours >= 10:
        return f"{hours}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
