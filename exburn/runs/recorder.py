"""The callbacks behind ``fit(run=…)``: one records, the other saves checkpoints."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exburn.callbacks import StateCheckpoint
from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.rates import current_rate
from exburn.errors import warn
from exburn.runs.directory import CHECKPOINTS, RunDirectory
from exburn.runs.report import write_report
from exburn.runtime.device import memory_use

_GLANCE = 1.0  # seconds between two looks at memory and rate, and two chunks' lines
_CHUNKS = 2000  # lines of chunks until their gaps widen
_REPORT = 30.0  # seconds between two reports while the training goes on
_SHARE = 0.005  # of the time may go into them
_BETWEEN, _WITHIN = 60.0, 300.0  # seconds between checkpoints, at epochs' ends or not
_MOST_TRACE = 8000  # characters of a traceback


class RunRecorder(Callback):
    """Writes what happens in a training into the folder of a run.

    Lines are added at once, by one call of the system each. A disk that refuses costs
    a warning, not the training.

    Args:
        directory: The folder; ``None`` in a process that writes nothing.
    """

    light = True

    def __init__(self, directory: RunDirectory | None, checkpoint: RunCheckpoint):
        self.directory, self.checkpoint = directory, checkpoint
        self._began = self._epoch_began = time.perf_counter()
        self._begun = self._started = False
        self._goes_on = directory is not None and directory.events.size > 0
        self._epoch = self._step = 0
        self._validation = 0.0  # seconds of this epoch that went into it
        self._chunk_at = self._glance_at = 0.0
        self._report_at = self._began + _REPORT
        self._nan = self._warned = False
        self._lost = 0

    # ------------------------------------------------------------------ hooks
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._began, self._begun = time.perf_counter(), True
        facts = {name: (self.params or {}).get(name) for name in ("epochs", "steps")}
        self._event("begin", resumed=self.checkpoint.resumed, pid=os.getpid(), **facts)

    def on_compile(self, program: str) -> None:
        self._event("compile", program=program)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._started:  # what earlier tries recorded from here on is void
            self._started = True
            self._metric({"kind": "start", "epoch": epoch})
        self._epoch, self._step, self._validation = epoch, 0, 0.0
        self._epoch_began = time.perf_counter()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._validation -= time.perf_counter()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._validation += time.perf_counter()

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._step = step
        logs = logs or {}
        self._look_for_nan(step, logs)
        seconds = time.perf_counter() - self._began
        if seconds < self._chunk_at:
            return
        self._chunk_at = seconds + max(_GLANCE, seconds / _CHUNKS)
        self._metric(
            {
                "kind": "chunk",
                "epoch": self._epoch,
                "step": step,
                "seconds": round(seconds, 3),
                "logs": logs,
            }
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = logs or {}
        self._look_for_nan(self._step, logs)
        now = time.perf_counter()
        record: dict[str, Any] = {
            "kind": "epoch",
            "epoch": epoch,
            "step": self._step,
            "seconds": round(now - self._began, 4),
            "epoch_seconds": round(now - self._epoch_began, 4),
        }
        trained = now - self._epoch_began - self._validation
        if (rate := self._samples(trained)) is not None:
            record["samples_per_second"] = round(rate, 1)
        if now >= self._glance_at:
            self._glance_at = now + _GLANCE
            use = memory_use()
            record["device_bytes"], record["host_bytes"] = use.device, use.host
            if "learning_rate" not in logs:
                record["learning_rate"] = self._rate()
        self._metric({**record, "logs": logs})
        if now >= self._report_at:
            self._write_report()
            took = time.perf_counter() - now
            self._report_at = now + max(_REPORT, took / _SHARE)

    def on_exit(self, error: BaseException | None = None) -> None:
        if self.directory is None:
            return
        if self._goes_on and not self._begun:  # it ended as it is written there
            self.directory.close()
            return
        seconds = round(time.perf_counter() - self._began, 3)
        facts: dict[str, Any] = {"seconds": seconds, "epoch": self._epoch}
        if self._lost:
            facts["lost_lines"] = self._lost
        if error is None or isinstance(error, GeneratorExit):  # `break` in a loop
            planned = (self.params or {}).get("epochs") or 0
            stopped = self._started and self._epoch + 1 < planned
            self._event("end", stopped_early=stopped, **facts)
        else:
            facts["step"] = self._step
            self._event(_end_of(error), **facts, **_description(error))
        self._write_report()
        self.directory.close()

    # ------------------------------------------------------------------ writing
    def _event(self, event: str, **facts: Any) -> None:
        if self.directory is not None:
            record = {"time": round(time.time(), 3), "event": event, **facts}
            self._try(self.directory.events.add, record)

    def _metric(self, record: Mapping[str, Any]) -> None:
        if self.directory is not None:
            self._try(self.directory.metrics.add, record)

    def _write_report(self) -> None:
        if self.directory is not None:
            path = self.directory.path
            self._try(lambda: write_report(path, ends=True))

    def _try(self, write: Callable[..., object], *arguments: Any) -> None:
        """Writes; the first refusal is told, and all are counted."""
        try:
            write(*arguments)
        except Exception as error:  # whoever watches a training does not end it
            self._lost += 1
            if not self._warned:
                self._warned = True
                warn(f"the run is not recorded as a whole: {error}", RuntimeWarning)

    def _look_for_nan(self, step: int, logs: Mapping[str, Any]) -> None:
        if self._nan:
            return
        wrong = {
            name: value
            for name, value in logs.items()
            if isinstance(value, float) and not math.isfinite(value)
        }
        if wrong:
            self._nan = True
            self._event("nan", epoch=self._epoch, step=step, values=wrong)

    def _samples(self, seconds: float) -> float | None:
        """Rows a second in an epoch, its validation left out."""
        params = self.params or {}
        size, samples = params.get("batch_size"), params.get("samples")
        if not size or not self._step or seconds <= 0:
            return None
        rows = self._step * size
        return (rows if samples is None else min(rows, samples)) / seconds

    def _rate(self) -> float | None:
        optimizer = getattr(self.model, "optimizer", None)
        try:
            return None if optimizer is None else current_rate(optimizer)
        except (AttributeError, KeyError, TypeError, ValueError):  # one of the user's
            return None


class RunCheckpoint(StateCheckpoint):
    """Saves the whole run about once a minute, when it is told to end, and at its end.

    Attributes:
        resumed: Whether this training goes on from a checkpoint.
    """

    def __init__(self, path: Path):
        super().__init__(path / CHECKPOINTS, keep=2, on_error="warn")
        self.resumed = False
        self._saved_at = time.monotonic()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.resumed = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._saved_at = time.monotonic()

    def _due(self, point: Any) -> bool:
        now = time.monotonic()
        passed = now - self._saved_at
        last = (self.params or {}).get("epochs") == point.epoch + 1
        last = point.ended and (last or self.model.stop_training)
        due = last or passed >= (_BETWEEN if point.ended else _WITHIN)
        if due and not last and self.writer is not None and self.writer.busy:
            return False  # a large one takes its time
        if due:
            self._saved_at = now
        return due


def _end_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return "terminated" if isinstance(error, SystemExit) else "failed"


def _description(error: BaseException) -> dict[str, Any]:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return {"error": type(error).__name__}
    trace = "".join(traceback.format_exception(error))
    return {
        "error": f"{type(error).__name__}: {error}"[:_MOST_TRACE],
        "traceback": trace[-_MOST_TRACE:],
    }
