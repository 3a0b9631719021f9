"""Steps on copies of a model's arrays, which leave the model as it is."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import ArgumentError
from exburn.runtime.failures import is_exhausted
from exburn.runtime.signals import defer_signals
from exburn.training.feed.chunking import FeedRequest, make_feed, single_chunk
from exburn.training.feed.gather import HostGather
from exburn.training.objective.readings import Readings
from exburn.training.state import TrainState, seed_data
from exburn.training.trainer import Trainer

_LONGEST = 100  # steps of one measurement
_KEPT = 0.7  # of the moving average, with each loss


@contextlib.contextmanager
def trial(trainer: Trainer) -> Iterator[None]:
    """In the block a module may be prepared for other data, also within a hook.

    Afterwards it is prepared as before, and shows the same arrays.
    """
    preparer = trainer.preparer
    specs, built_for = dict(preparer.batch_specs), preparer.objective.built_parts()
    try:
        with defer_signals():
            yield
    finally:
        for kind, batch in specs.items():
            if (ready := preparer.find_ready(kind, batch)) is not None:
                preparer.recall(kind, ready)
        if "train" in specs or "test" in specs:
            preparer.objective.recall(built_for)
        preparer.batch_specs = specs or preparer.batch_specs


def trial_state(trainer: Trainer) -> TrainState:
    """The state that a step would start from now: the arrays are the module's own.

    No program may consume it.
    """
    holder, preparer = trainer.holder, trainer.preparer
    run = holder.state
    params, frozen, others = holder.split.read()
    if run is not None and holder.shown is not None:  # the module shows an average
        params = run.params
    opt_state = holder.opt_state if run is None else run.opt_state
    if opt_state is None:
        opt_state = holder.placement.init(holder.optimizer.init, params)
    step: Any = np.int32(holder.step) if run is None else run.step
    arrays = params, frozen, others, opt_state, preparer.fresh_totals("train")
    state = TrainState(*arrays, step, jax.device_put(seed_data(holder.seed)))
    return holder.placement.state(state)


def try_rates(
    trainer: Trainer,
    dataset: ArrayDataset | StreamDataset,
    batch_size: int,
    rates: Sequence[float],
    worst: float,
) -> tuple[list[float], bool]:
    """The loss of one step after another, each with the next of the learning rates.

    Args:
        dataset: Its rows are shuffled, and gone through as often as need be.
        worst: How many times the best moving average ends the trial, as does NaN.

    Returns:
        The losses, and whether the trial ended so.
    """
    holder, preparer = trainer.holder, trainer.preparer
    programs = preparer.programs
    program = programs.further("find_learning_rate", lambda: programs.steps.try_rates)
    state, totals = trial_state(trainer), preparer.fresh_totals("train")
    feed = make_feed(
        preparer, dataset, batch_size, FeedRequest(training=True, shuffle=True)
    )
    losses: list[float] = []
    average, epoch = _Average(worst), 0
    with contextlib.closing(feed), holder.placement.scope():
        while len(losses) < len(rates):
            begun = len(losses)
            for chunk in feed.epoch(holder.seed, epoch):
                source = chunk.data if chunk.index is None else chunk.index
                step_rates = np.full(_steps_of(source), rates[-1], np.float32)
                part = rates[len(losses) : len(losses) + chunk.steps]
                step_rates[: len(part)] = part
                args, _ = holder.placement.bind((state, *chunk.arguments), 1)
                state, readings = program(args[0], totals, step_rates, *args[1:])
                for loss in _losses(readings)[: len(part)]:
                    losses.append(loss)
                    if average.rises(loss):
                        return losses, True
                if len(losses) >= len(rates):
                    break
            if len(losses) == begun:  # the source gives no batch any more
                break
            epoch += 1
    return losses, False


class _Average:
    """The moving average of losses, which says when they have risen for good.

    Args:
        worst: How many times the lowest average that is.
    """

    def __init__(self, worst: float):
        self._worst, self._lowest = worst, np.inf
        self._mean, self._count = 0.0, 0

    def rises(self, loss: float) -> bool:
        """Whether this loss ends the trial: single batches may be unlike others."""
        if not np.isfinite(loss):
            return True
        self._count += 1
        self._mean = _KEPT * self._mean + (1 - _KEPT) * loss
        mean = self._mean / (1 - _KEPT**self._count)
        self._lowest = min(self._lowest, mean)
        return mean - self._lowest > (self._worst - 1) * abs(self._lowest)


def _steps_of(source: Any) -> int:
    if isinstance(source, list):
        return sum(_steps_of(part) for part in source)
    return jax.tree.leaves(source)[0].shape[0]


def _losses(readings: Readings) -> list[float]:
    """The loss of each step, of readings with an axis of steps in front."""
    if "loss" in readings.names:
        column = np.asarray(readings.numbers)[:, readings.names.index("loss")]
        return column.tolist()
    if "loss" not in readings.others:
        raise ArgumentError(
            "find_learning_rate",
            "the model's train_step logs no 'loss'",
            {"logged": ", ".join((*readings.names, *readings.others))},
        )
    return np.asarray(readings.others["loss"], np.float64).reshape(-1).tolist()


@dataclasses.dataclass(frozen=True)
class Timed:
    """One size of batches that was run.

    Attributes:
        seconds: Time of a step; ``None`` if the device had not enough memory.
    """

    batch_size: int
    seconds: float | None

    @property
    def samples_per_second(self) -> float:
        return self.batch_size / self.seconds if self.seconds else 0.0


def time_step(trainer: Trainer, batch: tuple, rows: int, seconds: float) -> Timed:
    """Runs training steps of so many rows on a copy of the state.

    Args:
        seconds: How long to measure, about; one step at least.
    """
    placement, exact = trainer.holder.placement, trainer.preparer.exact_rows(True)
    size = jax.tree.leaves(batch)[0].shape[0]
    with HostGather(threads=1) as gatherer:
        taken = gatherer.take(batch, np.arange(rows) % size)
    width = rows if exact else placement.width(rows)
    chunk = single_chunk(taken, width, exact=exact, placement=placement)
    program = trainer.preparer.programs.apart()
    try:
        with placement.scope():
            state = _copy(trial_state(trainer))
            arguments = placement.send(chunk.data), chunk.index, chunk.count
            state, readings = program(state, *arguments)
            jax.block_until_ready(readings)
            times: list[float] = []
            while not times or (len(times) < _LONGEST and sum(times) < seconds):
                start = time.perf_counter()
                state, readings = program(state, *arguments)
                jax.block_until_ready(readings)
                times.append(time.perf_counter() - start)
            return Timed(rows, min(times))  # others may be waiting for a core
    except Exception as error:
        if not is_exhausted(error):
            raise
        return Timed(rows, None)


@jax.jit
def _copy(state: TrainState) -> TrainState:
    return jax.tree.map(jnp.copy, state)
