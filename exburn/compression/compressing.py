"""``model.compress``: the smallest of several smaller models that is good enough."""

from __future__ import annotations

import dataclasses
import math
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.callbacks.contract.monitor import MonitorCallback
from exburn.compression.pruning import require_model
from exburn.compression.recipes import RECIPES, Recipe, Workshop
from exburn.compression.report import Attempt, CompressionReport
from exburn.core.checks import check_count, check_number
from exburn.data.conversion import split
from exburn.errors import ArgumentError, ExBurnError, unknown_name, warn
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.models.encoding import read_batch, read_dataset
from exburn.models.planning import input_specs, with_rows
from exburn.models.session import require_idle, require_trainer
from exburn.module.building import inspect_call, require_built
from exburn.module.variable import Static
from exburn.runtime.cost_model import count
from exburn.training.requests import check_verbose

OP = "compress"
_ROWS = 256  # of the batch that is timed
_TURNS, _SECONDS = 4, 0.04  # of the measurements of speed, and of each


@api_boundary
def plan(
    model: Model,
    target: Any = "4x",
    within: float = 0.5,
    *,
    x: Any = None,
    timed: bool = True,
) -> CompressionReport:
    """What ``model.compress`` would try, and what it comes to; nothing is trained.

    Each way's model is made without training: its file is written for its size, its
    operations are counted, and its ``predict`` is timed.

    Args:
        model: A model with weights.
        target, within: As of ``model.compress``.
        x: Rows for the timing, as of ``predict``; zeros by default, for which the
            model's inputs must have fixed shapes.
        timed: Whether ``predict`` is timed, for which every way's is compiled.

    Returns:
        A ``CompressionReport``, whose ``attempts`` have no scores.

    Raises:
        ArgumentError: A number is out of range, no way is open to the model, or its
            inputs are unknown.
        NotBuiltError: The model has no weights yet.

    Example:
        >>> import exburn
        >>> from exburn.layers import Dense, Input
        >>> model = exburn.Sequential([Input((64,)), Dense(512, "relu"), Dense(10)])
        >>> found = exburn.compression.plan(model, timed=False)
        >>> [found[name].ratio > 3 for name in ("float16", "int8", "int4")]
        [False, True, True]
    """
    ratio, within = (
        _check_target("plan", target),
        check_number("plan", "within", within),
    )
    require_model(model, "plan")
    rows = _rows_to_time(model, x) if timed else None
    attempts = _outline(Workshop(model), rows)
    return CompressionReport(tuple(attempts), ratio, within)


@api_boundary
def compress(
    self: Model,
    x: Any,
    y: Any = None,
    target: Any = "4x",
    within: float = 0.5,
    *,
    validation_data: Any = None,
    validation_split: float = 0.2,
    metric: str | None = None,
    epochs: int = 5,
    batch_size: int = 32,
    temperature: float = 2.0,
    student_loss_weight: float = 0.5,
    verbose: int | str = 0,
) -> Any:
    """The smallest of several smaller models that is good enough; this one stays.

    It tries, in this order, until a model reaches the target within the points:

    1. weights in 16, 8 and 4 bits, which takes no training: the smallest that is good;
    2. 4 bits, trained with their rounding;
    3. a quarter, a half and three quarters of the units of each layer taken away,
       trained, and stored in 8 and in 4 bits.

    Ways whose file would miss the target come last, smallest first. What is trained is
    trained on the data and beside this model, by an ``exburn.Distiller``. Size is what
    the file takes. ``exburn.compression.plan(model)`` tells sizes, operations and speed
    beforehand.

    Args:
        x, y: Data to train on, as of ``fit``.
        target: How many times smaller the file is to be: ``"4x"``, or a number.
            ``None``: as small as the points allow. The smallest file comes first then,
            and most of them are trained.
        within: Points that may be lost: hundredths of an accuracy or another metric
            between 0 and 1 that rises; of others, as a loss, per cent of this model's.
        validation_data: What models are scored on, as of ``fit``.
        validation_split: Without it, the share of the rows, taken from the end, that
            models are scored on and not trained on.
        metric: Name of the score; by default the first metric of ``compile``, or the
            loss.
        epochs, batch_size, verbose: Of each training.
        temperature: As of ``exburn.distillation.SoftTargets``.
        student_loss_weight: As of ``exburn.Distiller``.

    Returns:
        The model, whose ``compression_report`` tells what was tried and what became of
        it. If no way stays within the points, it is a copy of this one, with a warning.

    Raises:
        NotCompiledError: ``compile`` was not called.
        NotBuiltError: The model has no weights yet.
        BusyError: The model is being trained.
        ArgumentError: A number is out of range, no way is open to the model, the
            direction of the metric is unknown, or data is an iterator, which several
            trainings cannot share.
        UnknownNameError: There is no such metric.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> from exburn.layers import Dense, Input
        >>> x = np.random.default_rng(0).normal(size=(200, 64)).astype("float32")
        >>> y = (x.sum(-1) > 0).astype(int)
        >>> model = exburn.Sequential([Input((64,)), Dense(256, "relu"), Dense(2)])
        >>> model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
        >>> _ = model.fit(x, y, epochs=3, verbose=0)
        >>> small = model.compress(x, y, target="3x", within=20)
        >>> report = small.compression_report
        >>> report.chosen.name, report.reached
        ('int4', True)
    """
    ratio, within = _check_target(OP, target), check_number(OP, "within", within)
    epochs = check_count(OP, "epochs", epochs)
    batch_size = check_count(OP, "batch_size", batch_size)
    temperature = check_number(OP, "temperature", temperature, open_low=True)
    share = check_number(OP, "student_loss_weight", student_loss_weight, 0, 1)
    verbose = check_verbose(OP, verbose)
    require_trainer(self, OP)
    require_built(self, OP)
    require_idle(self, OP)
    _require_repeatable(x=x, validation_data=validation_data)
    data, held_out = _divide(self, x, y, validation_data, validation_split)
    judge = _Judge(self, held_out, metric, batch_size, within)
    fit = {**data, "epochs": epochs, "batch_size": batch_size, "verbose": verbose}
    workshop = Workshop(self, temperature, share, fit)
    first, *ways = _outline(workshop)
    first = dataclasses.replace(first, score=judge.exact, lost=0.0)
    tried: list[Attempt] = []
    best, small = None, None
    goal = math.inf if ratio is None else ratio  # as small as can be: none reaches it
    for way in _in_order(ways, goal):
        assert way.recipe is not None
        if best is not None and (best.ratio or 0) >= goal and way.recipe.trains:
            break
        if best is not None and (way.bytes or 0) >= (best.bytes or 0):
            continue
        began = time.perf_counter()
        try:
            candidate = workshop.make(way.recipe)
        except ArgumentError as error:  # training asks for more than the size did
            tried.append(Attempt(way.recipe, note=error.reason))
            continue
        seconds = time.perf_counter() - began
        size = file_bytes(candidate)
        score = judge.score(candidate)
        way = dataclasses.replace(
            way,
            bytes=size,
            ratio=(first.bytes or 0) / size,
            score=score,
            lost=judge.points_lost(score),
            seconds=seconds,
        )
        tried.append(way)
        smaller = best is None or size < (best.bytes or 0)
        if smaller and judge.is_within(way):
            best, small = way, candidate
    if small is None:
        small = workshop.copy_unchanged()
    by_recipe = {way.recipe: way for way in (*ways, *tried)}
    attempts = (first, *(by_recipe[recipe] for recipe in RECIPES))
    report = CompressionReport(attempts, ratio, within, judge.metric, best)
    if not report.reached:
        name = "the given model" if best is None else best.name
        reached = "" if ratio is None else f"reached {ratio:g} × and "
        warn(
            f"compress: nothing {reached}stayed within {within:g} points; "
            f"returned is {name}. See model.compression_report."
        )
    small._compression = Static(report)
    return small


def file_bytes(model: Model) -> int:
    """Bytes of the model's file, without the optimizer's state."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.exburn", include_optimizer=False)
        return sum(path.stat().st_size for path in Path(folder).iterdir())


class _Judge:
    """Scores models on the rows held out, beside the given one."""

    def __init__(
        self,
        model: Model,
        held_out: dict[str, Any],
        metric: str | None,
        batch_size: int,
        within: float,
    ):
        self.data = {**held_out, "batch_size": batch_size, "verbose": 0}
        self.within = within
        logs = model.evaluate(**self.data, return_dict=True)
        names = list(logs)
        self.metric = _first_metric(names) if metric is None else metric
        if self.metric not in logs:
            raise unknown_name("metric", self.metric, names, op=OP)
        self.exact = float(logs[self.metric])
        self.rises = _rises(model, self.metric)
        self.is_share = self.rises and 0 <= self.exact <= 1

    def score(self, model: Model) -> float:
        return float(model.evaluate(**self.data, return_dict=True)[self.metric])

    def points_lost(self, score: float) -> float:
        """Points: hundredths of a share; of another metric per cent of what it was."""
        lost = 100 * (self.exact - score if self.rises else score - self.exact)
        return lost if self.is_share else lost / (abs(self.exact) or 1.0)

    def is_within(self, attempt: Attempt) -> bool:
        return attempt.lost is not None and attempt.lost <= self.within  # not NaN


def _first_metric(names: list[str]) -> str:
    """The first of ``compile``; the loss if there is none.

    Losses of the single outputs stand between the two.
    """
    return next((name for name in names if not name.endswith("loss")), "loss")


def _rises(model: Model, metric: str) -> bool:
    monitor = MonitorCallback(metric)
    monitor.set_model(model)
    if monitor.monitor_op is None:
        raise ArgumentError(
            OP,
            f"the name {metric!r} does not tell whether more or less is better",
            hint="metric='loss', or another metric of compile.",
        )
    return monitor.monitor_op is np.greater


def _require_repeatable(**data: Any) -> None:
    for name, values in data.items():
        if isinstance(values, Iterator):
            raise ArgumentError(
                OP,
                f"{name} is an iterator, which is used up by one of the models that "
                "are trained or scored on it",
                {name: type(values).__name__},
                hint="Pass arrays, or a loader that can be gone through again.",
            )


def _check_target(op: str, target: Any) -> float | None:
    if target is None:
        return None
    text = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*[x×]\s*", str(target))
    number = float(text[1]) if isinstance(target, str) and text else target
    if isinstance(number, str) or isinstance(number, bool):
        raise ArgumentError(
            op,
            f"target is how many times smaller the file is to be, received {target!r}",
            hint='target="4x", or target=4; None for as small as the points allow.',
        )
    return check_number(op, "target", number, 1, open_low=True)


def _divide(
    model: Model, x: Any, y: Any, validation_data: Any, validation_split: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of ``fit`` and of ``evaluate``."""
    if validation_data is None:
        dataset = read_dataset(model, x, y, op=OP)
        train, held_out = split(dataset, validation_split, op=OP)
        return _arguments(train.tree), _arguments(held_out.tree)
    values = validation_data
    if not isinstance(values, tuple):
        values = (values,)
    return {"x": x, "y": y}, _arguments(values)


def _arguments(parts: Any) -> dict[str, Any]:
    return dict(zip(("x", "y", "sample_weight"), parts, strict=False))


def _outline(workshop: Workshop, rows: Any = None) -> list[Attempt]:
    """The given model, and every way's size, operations and speed before training."""
    models: dict[Any, Model] = {None: workshop.model}  # by what of a way makes the size
    refused: dict[Any, ExBurnError] = {}
    for recipe in RECIPES:
        if (kind := _kind(recipe)) not in models and kind not in refused:
            try:
                models[kind] = workshop.outline(recipe)
            except ExBurnError as error:
                refused[kind] = error
    if len(models) == 1:
        raise next(iter(refused.values()))
    speeds = {} if rows is None else _speeds(models, rows)
    sizes = {kind: file_bytes(model) for kind, model in models.items()}
    attempts = []
    for recipe in (None, *RECIPES):
        kind = _kind(recipe)
        if kind in refused:
            attempts.append(Attempt(recipe, note=refused[kind].reason))
            continue
        speed = speeds[kind] / speeds[None] if speeds else None
        ratio, flops = sizes[None] / sizes[kind], _flops(models[kind])
        attempts.append(Attempt(recipe, sizes[kind], ratio, flops, speed))
    return attempts


def _kind(recipe: Recipe | None) -> Any:
    """The part of a way that decides upon size and speed; not how it is trained."""
    return None if recipe is None else (recipe.mode, recipe.cut)


def _in_order(ways: list[Attempt], ratio: float) -> list[Attempt]:
    """Ways that reach the target, as in the table; then others, smallest first."""
    smaller = [way for way in ways if (way.ratio or 0) > 1]
    reach = [way for way in smaller if (way.ratio or 0) >= ratio]
    others = [way for way in smaller if (way.ratio or 0) < ratio]
    return [*reach, *sorted(others, key=lambda way: way.bytes or 0)]


def _flops(model: Model) -> float | None:
    traced = inspect_call(model)
    return None if traced is None else count(traced[0]).flops


def _rows_to_time(model: Model, x: Any) -> Any:
    if x is not None:
        batch = read_batch(model, x, op="plan")
        return jax.tree.map(lambda v: np.asarray(v)[:_ROWS], batch.tree[0])
    specs = with_rows(
        input_specs(model, hint="exburn.compression.plan(model, x=x)"), _ROWS
    )
    return jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), specs)


def _speeds(models: dict[Any, Model], rows: Any) -> dict[Any, float]:
    """Batches a second of ``predict_on_batch`` for each of the models.

    They take turns, so that whatever else the machine does slows all of them; of each
    the best time counts.
    """
    best = dict.fromkeys(models, np.inf)
    for turn in range(_TURNS + 1):
        for kind, model in models.items():
            end = time.perf_counter() + _SECONDS
            while (began := time.perf_counter()) < end:
                model.predict_on_batch(rows)
                if not turn:  # it compiles
                    break
                best[kind] = min(best[kind], time.perf_counter() - began)
    return {kind: 1 / seconds for kind, seconds in best.items()}
