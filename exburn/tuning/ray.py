"""Sweeps by Ray Tune, for models of which one fills a device: a process a trial.

``exburn.sweep`` trains small models side by side as one program. Where a model fills a
GPU by itself, or trains on a mesh of several, trials run in processes of their own;
Ray starts them, on one machine or a cluster, and stops those that fall behind.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from exburn.callbacks import Callback
from exburn.core.checks import check_count, check_number, check_optional
from exburn.errors import ArgumentError, require
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.saving import load_model
from exburn.tuning.records import LaneRecord, Trial, check_mode
from exburn.tuning.result import SweepResult
from exburn.tuning.schedulers import Halving, Hyperband
from exburn.tuning.space import Space

__all__ = ["Report", "sweep"]

OP = "ray.sweep"  # in errors
_LOGS, _FILE = "logs", "model.exburn"


class Report(Callback):
    """Tells Ray Tune what each epoch logged, and keeps the model; ends a stopped trial.

    It belongs into the ``callbacks=`` of the ``fit`` in a training function of
    :func:`sweep`.

    Args:
        save: Whether the model is written at each epoch. Without it the result has no
            models, and nothing is written.

    Example:
        >>> Report(save=False)  # doctest: +SKIP
    """

    def __init__(self, save: bool = True):
        super().__init__()
        self.save = save

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        tune = _ray("ray.tune")
        report = {_LOGS: {name: float(value) for name, value in (logs or {}).items()}}
        if not self.save:
            tune.report(report)
            return
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder, _FILE))
            tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))


@api_boundary
def sweep(
    train_fn: Callable[[Trial], Any],
    *,
    over: Mapping[str, Any],
    epochs: int,
    monitor: str = "val_loss",
    mode: str = "min",
    sampler: Any = None,
    halving: Any = None,
    seed: int = 0,
    gpus_per_trial: float = 0,
    cpus_per_trial: float = 1,
    concurrent: int | None = None,
    folder: str | Path | None = None,
    verbose: int = 0,
) -> SweepResult:
    """Trains each trial in a process of its own, which Ray Tune starts.

    Ray is joined as by ``ray.init()``: the cluster of ``RAY_ADDRESS``, or one on this
    machine.

    Args:
        train_fn: Called with a trial, path → value: builds and compiles a model, and
            fits it with the callback :class:`Report`. It is pickled.
        over: As of ``exburn.sweep``; paths are whatever ``train_fn`` makes of them.
        epochs: Epochs of each trial, which ``train_fn`` asks for, too.
        monitor: The logged name that trials are compared by.
        mode: ``"min"`` or ``"max"``: which of its values are better.
        sampler: ``tuning.grid()`` or ``tuning.random(n)``.
        halving: ``Halving`` or ``Hyperband``, which Ray runs asynchronously (ASHA); or
            one of Ray's own schedulers.
        seed: Of what is drawn here.
        gpus_per_trial, cpus_per_trial: What Ray sets aside for each, also a part of
            one.
        concurrent: The most trials at once; as many as fit by default.
        folder: Where Ray writes, which all machines see; ``~/ray_results`` by default.
        verbose: Ray's: 0, 1 or 2.

    Returns:
        The result: records of all trials, and the models that ``Report`` has kept.

    Raises:
        ArgumentError: An argument that can never work.
        MissingDependencyError: Ray Tune is not installed.

    Example:
        >>> def train(trial):
        ...     model = make_model(trial["width"])
        ...     model.compile("adam", "cross_entropy", mesh="fsdp")
        ...     model.fit(x, y, epochs=9, validation_split=0.1, callbacks=[Report()])
        >>> sweep(train, over={"width": []}, epochs=9, gpus_per_trial=8)
        Traceback (most recent call last):
        exburn.errors.ArgumentError: sweep: the values of 'width' must have at least one
        value, received none

    Source: Liaw et al., *Tune: A Research Platform for Distributed Model Selection and
    Training*, 2018; Li et al., *A System for Massively Parallel Hyperparameter Tuning*,
    2020.
    """
    if not callable(train_fn):
        raise ArgumentError(OP, f"train_fn must be a function, received {train_fn!r}")
    epochs = check_count(OP, "epochs", epochs)
    check_mode(OP, mode)
    gpus = check_number(OP, "gpus_per_trial", gpus_per_trial)
    cpus = check_number(OP, "cpus_per_trial", cpus_per_trial)
    check_optional(check_count, OP, "concurrent", concurrent)
    space = Space.of(over, sampler, seed, mode)
    if space.asks:
        raise ArgumentError(
            OP,
            "the sampler must be grid() or random(n)",
            hint="A study of Optuna is asked by exburn.sweep.",
        )
    trials = space.trials()
    scheduler = _scheduler(halving, epochs)
    tune = _ray("ray.tune")
    path = None if folder is None else Path(folder).expanduser().absolute()
    run = functools.partial(_run, train_fn, trials, gpus > 0)
    tuner = tune.Tuner(
        tune.with_resources(run, {"cpu": cpus, "gpu": gpus}),
        param_space={"number": tune.grid_search(list(range(len(trials))))},
        tune_config=tune.TuneConfig(
            metric=f"{_LOGS}/{monitor}",
            mode=mode,
            scheduler=scheduler,
            max_concurrent_trials=concurrent,
        ),
        run_config=tune.RunConfig(
            name=path and path.name,
            storage_path=path and str(path.parent),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            verbose=verbose,
        ),
    )
    return _result(tuner.fit(), trials, epochs, monitor, mode)


def _run(
    train_fn: Callable[[Trial], Any],
    trials: Sequence[Trial],
    on_gpu: bool,
    config: Mapping[str, Any],
) -> None:
    """Runs in the process of a trial."""
    if not on_gpu:  # it must not take the GPU of another
        jax.config.update("jax_platforms", "cpu")
    train_fn(dict(trials[config["number"]]))


def _scheduler(halving: Any, epochs: int) -> Any:
    """Ray's scheduler; ``None``: every trial trains to its end.

    Raises:
        ArgumentError: It is none.
    """
    if halving is None or callable(getattr(halving, "on_trial_result", None)):
        return halving
    if not isinstance(halving, Halving | Hyperband):
        raise ArgumentError(
            OP,
            "halving must be Halving(), Hyperband() or a scheduler of Ray, received "
            f"{halving!r}",
        )
    brackets = 1
    if isinstance(halving, Hyperband):
        ratio = max(1.0, epochs / halving.min_epochs)
        brackets = 1 + int(math.log(ratio, halving.eta) + 1e-9)
    return _ray("ray.tune.schedulers").ASHAScheduler(
        time_attr="training_iteration",
        max_t=epochs,
        grace_period=min(halving.min_epochs, epochs),
        reduction_factor=halving.eta,
        brackets=brackets,
    )


def _result(
    grid: Any, trials: Sequence[Trial], epochs: int, monitor: str, mode: str
) -> SweepResult:
    """Records of all trials, in their order, and how their models are read.

    Raises:
        ArgumentError: No trial has logged what is monitored.
    """
    records = [LaneRecord(dict(trial), status="nan") for trial in trials]
    files: dict[int, Any] = {}
    failed: list[BaseException] = []
    for result in grid:
        number = result.config["number"]
        record = records[number]
        files[number] = result.checkpoint
        if result.error is not None:
            failed.append(result.error)
        frame = result.metrics_dataframe
        rows = [] if frame is None else frame.to_dict("records")
        for row in rows:
            logs = {
                name.removeprefix(f"{_LOGS}/"): value
                for name, value in row.items()
                if name.startswith(f"{_LOGS}/")
            }
            if logs:  # Ray has a row of its own for a trial that reported nothing
                record.log(logs, monitor)
        if math.isfinite(record.score):
            record.status = "finished" if record.epochs >= epochs else "stopped"
    if all(monitor not in record.history for record in records):
        raise ArgumentError(
            OP,
            f"no trial has logged {monitor!r}",
            {"logged": ", ".join({n: None for r in records for n in r.history})},
            hint="Pass callbacks=[tuning.ray.Report()] to fit.",
        ) from (failed[0] if failed else None)
    return SweepResult(records, functools.partial(_load, files), monitor, mode)


def _load(files: Mapping[int, Any], number: int) -> Model:
    """The model that a trial's last report has kept."""
    if files.get(number) is None:
        raise ArgumentError(
            OP, f"trial {number} has kept no model", hint="Report(save=True)."
        )
    with files[number].as_directory() as folder:
        return load_model(Path(folder, _FILE))


def _ray(module: str) -> Any:
    reason = "trials are started by Ray Tune"
    return require(module, OP, reason, extra="ray", package="'ray[tune]'")
