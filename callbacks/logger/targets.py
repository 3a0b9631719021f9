"""Where `Logger` sends values: trackers, boards, and any object with `log`."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from exburn.callbacks.logger.queue import Record
from exburn.errors import CallbackError, require, unknown_name
from exburn.runtime.files.atomic import telling_refusals

_PATIENCE = 60.0  # seconds to wait for a run of one's own to end
_ending: dict[int, threading.Event] = {}  # runs of one's own that are about to, by id


class LogTarget(Protocol):
    """A receiver of values.

    Attributes:
        place: What tells its run from others: a tuple, or the receiving object; known
            once it has begun.
    """

    place: Any

    def last_step(self) -> int:
        """The last step that its run knows of; 0 if it does not say."""
        ...

    def begin(self, config: Mapping[str, Any]) -> None:
        """Opens it, in the thread of the training."""
        ...

    def send(self, record: Record) -> None:
        """Takes values, in another thread."""
        ...

    def leave(self, failed: bool) -> None:
        """The training is over; records may still come. In its thread."""
        ...

    def finish(self, failed: bool) -> None:
        """The last record was sent, in the other thread."""
        ...


def target_of(target: Any, options: Mapping[str, Any]) -> LogTarget:
    """The receiver that a name or an object means.

    Raises:
        CallbackError, UnknownNameError: It is none.
        MissingDependencyError: Its package is not installed.
    """
    if isinstance(target, str):
        if target not in _TARGETS:
            raise unknown_name("logger", target, _TARGETS, op="Logger")
        return _TARGETS[target](dict(options))
    if isinstance(target, logging.Logger | logging.LoggerAdapter):
        raise CallbackError(
            "Logger",
            "a logger of Python's takes lines of text, not values",
            hint="callbacks.LoggingCallback(logger.info) writes a line for each epoch.",
        )
    if not callable(getattr(target, "log", None)):
        raise CallbackError(
            "Logger",
            "the receiver must be a name, or an object with a method log(values)",
            {"received": f"{type(target).__name__}: {target!r}"},
            hint=f"Names are {', '.join(_TARGETS)}.",
        )
    if options:
        raise CallbackError(
            "Logger", "options are for receivers that are named", {**options}
        )
    return _Object(target)


class _Object:
    """Calls ``log(values, step=…)``, or ``log(values)`` with the step among them."""

    def __init__(self, target: Any):
        self.place = target
        self._log: Callable[..., Any] = target.log
        self._takes_step = _takes(target.log, "step")

    def last_step(self) -> int:
        return _step_of(self.place)

    def begin(self, config: Mapping[str, Any]) -> None:
        """It is open already."""

    def send(self, record: Record) -> None:
        if self._takes_step:
            self._log(record.values, step=record.step)
        else:
            self._log({**record.values, "step": record.step})

    def leave(self, failed: bool) -> None:
        """It is somebody else's to close."""

    def finish(self, failed: bool) -> None:
        """It is somebody else's to close."""


class _WeightsAndBiases:
    """The run of ``wandb`` that is open, or one of its own."""

    def __init__(self, options: dict[str, Any]):
        reason = "Weights & Biases needs wandb"
        self._wandb = require("wandb", "Logger", reason, extra="wandb")
        self._options, self._own = options, False
        self._run: Any = None
        self._shared = False  # whether others log into the run, too
        self.place: Any = None

    def begin(self, config: Mapping[str, Any]) -> None:
        self._run = self._wandb.run
        if self._run is not None and (ending := _ending.get(id(self._run))):
            ending.wait(_PATIENCE)  # it is one of ours, whose last records are sent
            self._run = self._wandb.run
        self._own, self._shared = self._run is None, False
        if self._own:
            self._run = self._wandb.init(**{"config": dict(config), **self._options})
        self.place = "wandb", getattr(self._run, "id", None)

    def last_step(self) -> int:
        return _step_of(self._run)

    def send(self, record: Record) -> None:
        # W&B leaves out what comes with a step below the run's. Where others log into
        # the run meanwhile, and count its steps on, it counts ours, too.
        self._shared = self._shared or _step_of(self._run) > record.step
        if self._shared:
            self._run.log({**record.values, "step": record.step})
        else:
            self._run.log(record.values, step=record.step)

    def leave(self, failed: bool) -> None:
        """It is finished when the last record was sent."""
        if self._own:
            _ending[id(self._run)] = threading.Event()

    def finish(self, failed: bool) -> None:
        if not self._own:
            return
        try:
            self._run.finish(exit_code=int(failed))
        finally:
            _ending.pop(id(self._run)).set()


class _MLflow:
    """The active run of ``mlflow``, or one of its own.

    Which run is active is a thread's own matter, so records name theirs.
    """

    def __init__(self, options: dict[str, Any]):
        reason = "MLflow needs mlflow"
        self._mlflow = require("mlflow", "Logger", reason, extra="mlflow")
        self._entities = require("mlflow.entities", "Logger", reason, extra="mlflow")
        self._options, self._id, self._own = options, "", False
        self._client: Any = None
        self.place: Any = None

    def last_step(self) -> int:
        return 0  # it takes values of any step

    def begin(self, config: Mapping[str, Any]) -> None:
        active = self._mlflow.active_run()
        self._own = active is None
        run = active or self._mlflow.start_run(**self._options)
        self._client, self._id = self._mlflow.MlflowClient(), run.info.run_id
        self.place = "mlflow", self._id
        if self._own:
            self._mlflow.log_params({k: v for k, v in config.items() if v is not None})

    def send(self, record: Record) -> None:
        metric, when = self._entities.Metric, int(record.time * 1e3)
        values = [metric(k, v, when, record.step) for k, v in record.values.items()]
        self._client.log_batch(self._id, metrics=values)

    def leave(self, failed: bool) -> None:
        if self._own:
            self._mlflow.end_run("FAILED" if failed else "FINISHED")

    def finish(self, failed: bool) -> None:
        """It is ended already: MLflow takes records of ended runs, too."""


class _Trackio:
    """A run of ``trackio``, which holds the current one per thread."""

    def __init__(self, options: dict[str, Any]):
        reason = "Trackio needs trackio"
        self._trackio = require("trackio", "Logger", reason, extra="trackio")
        self._options = options
        self._run: Any = None
        self.place: Any = None

    def begin(self, config: Mapping[str, Any]) -> None:
        options = {"project": "exburn", "config": dict(config), **self._options}
        self._run = self._trackio.init(**options)
        self.place = "trackio", options["project"], getattr(self._run, "name", None)

    def last_step(self) -> int:
        return 0  # it takes values of any step

    def send(self, record: Record) -> None:
        self._run.log(record.values, step=record.step)

    def leave(self, failed: bool) -> None:
        """It is finished when the last record was sent."""

    def finish(self, failed: bool) -> None:
        self._run.finish()


class _TensorBoard:
    """A file of events for TensorBoard, written by ``tensorboardX``."""

    def __init__(self, options: dict[str, Any]):
        reason = "TensorBoard's files are written by tensorboardX"
        package = require("tensorboardX", "Logger", reason, extra="tensorboard")
        self._make, self._options = package.SummaryWriter, options
        self._writer: Any = None
        self.place: Any = None

    def begin(self, config: Mapping[str, Any]) -> None:
        options = {"logdir": "logs", **self._options}
        with telling_refusals("Logger", options["logdir"]):
            self._writer = self._make(**options)
        self.place = "tensorboard", os.path.abspath(options["logdir"])

    def last_step(self) -> int:
        return 0  # its files are only added to

    def send(self, record: Record) -> None:
        for name, value in record.values.items():
            self._writer.add_scalar(name, value, record.step, walltime=record.time)

    def leave(self, failed: bool) -> None:
        """It is closed when the last record was sent."""

    def finish(self, failed: bool) -> None:
        self._writer.close()


_TARGETS: dict[str, Callable[[dict[str, Any]], LogTarget]] = {
    "wandb": _WeightsAndBiases,
    "mlflow": _MLflow,
    "trackio": _Trackio,
    "tensorboard": _TensorBoard,
}


def _step_of(run: Any) -> int:
    """The step that a run says it is at; 0 if it says none."""
    step = getattr(run, "step", 0)
    return step if type(step) is int and step > 0 else 0


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Tells whether a function takes an argument of this name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-ins tell nothing
        return False
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)
