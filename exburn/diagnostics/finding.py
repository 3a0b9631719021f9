"""Learning rates and batch sizes that are found by running some steps of training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice, check_count, check_number
from exburn.core.printing import amount_text, time_text
from exburn.data import ArrayDataset
from exburn.errors import (
    ArgumentError,
    DataError,
    OutOfMemoryError,
    TrainingWarning,
    warn,
)
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.models.network import Network
from exburn.models.planning import Plan, make_plan, with_rows
from exburn.models.preparing import fixed_batch_size, guard_run
from exburn.models.session import require_trainer
from exburn.runtime.transfer import release_spare
from exburn.training.memory import free_bytes
from exburn.training.requests import DataRequest, FitData
from exburn.training.trainer import Trainer
from exburn.training.trials import Timed, time_step, trial, try_rates
from exburn.visualization.figures import mark_suggestion, new_axes

_WORST = 4.0  # times the best loss: where a rate is too large for sure
_WIDTH = 3  # steps: the standard deviation of the weights that smooth the losses
_ABOVE = 1.25  # times the first losses: no loss counts as more
_FIRST = 10  # losses that tell where it began
_RISE = 0.25  # of what the loss had fallen: more is no noise
_NOISE = 1.2  # standard deviations of a loss: a smaller fall is by chance
_STEEP = 0.9  # of the steepest fall: the smallest rate that reaches it is suggested
_GAIN = 0.9  # of the best speed: the smallest batch that reaches it is suggested
_SECONDS = 0.3  # of one measurement
_PAUSES = 3  # sizes in a row without a gain after which no larger one is run


@dataclasses.dataclass(frozen=True, repr=False)
class LearningRates:
    """The losses of a range of learning rates.

    Attributes:
        suggestion: A rate to begin with: where the loss falls steeply, before it has
            been at its lowest. ``None`` where the loss fell by no more than its noise
            at any rate, as that of a trained model does: then the losses tell nothing.
        rates: The rates, one for each step.
        losses: The loss of each step.
        smoothed: Their mean with those around, by which the suggestion was found.
        diverged: Whether the loss rose so far, or was NaN, that the trial ended.
        fall: The share of the loss that was lost at the best rates, from 0 to 1.
    """

    suggestion: float | None
    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    diverged: bool

    @property
    def fall(self) -> float:
        start = float(np.mean(self.smoothed[:_FIRST]))
        return (start - min(self.smoothed)) / (abs(start) or 1.0)

    def plot(self) -> Any:
        """Draws the losses over the rates, and marks the suggestion.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        figure, axes = new_axes("LearningRates.plot")
        smoothed = np.asarray(self.smoothed)
        axes.plot(self.rates, self.losses, color="0.75", linewidth=1, label="a step")
        axes.plot(self.rates, smoothed, color="tab:blue", label="smoothed")
        if self.suggestion is not None:
            distances = np.abs(np.log(np.asarray(self.rates) / self.suggestion))
            at = smoothed[int(np.argmin(distances))]
            label = f"suggestion: {self.suggestion:.2g}"
            axes.axvline(self.suggestion, color="tab:red", linestyle=":", linewidth=1)
            mark_suggestion(axes, self.suggestion, at, label)
        low = float(np.nanmin(self.losses))
        first = float(smoothed[0])
        room = max(first - low, 0.05 * abs(first)) or 1.0
        axes.set_ylim(low - 0.1 * room, low + 1.6 * room)
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss")
        axes.legend()
        return figure

    def __repr__(self) -> str:
        tried = (
            f"{len(self.rates)} steps from {self.rates[0]:.2g} to {self.rates[-1]:.2g}"
        )
        end = ", where the loss diverged" if self.diverged else ""
        number = "no suggestion, the loss fell by no more than its noise"
        if self.suggestion is not None:
            number = f"suggestion {self.suggestion:.2g}"
        return f"<LearningRates: {number}; {tried}{end}>"


@dataclasses.dataclass(frozen=True, repr=False)
class BatchSizes:
    """Batch sizes that were run.

    Attributes:
        suggestion: The size that was looked for; it was run.
        limit: ``"memory"`` or ``"throughput"``.
        sizes: The sizes, in the order in which they were run.
        samples_per_second: Of each of them; 0 where the memory did not suffice.
        planned: The largest that may be run by the plan of the memory.
    """

    suggestion: int
    limit: str
    sizes: list[int]
    samples_per_second: list[float]
    planned: int

    def __int__(self) -> int:
        return self.suggestion

    def plot(self) -> Any:
        """Draws the samples per second over the sizes, and marks the suggestion.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        figure, axes = new_axes("BatchSizes.plot")
        ran = sorted(
            (size, speed)
            for size, speed in zip(self.sizes, self.samples_per_second, strict=True)
            if speed
        )
        sizes, speeds = [size for size, _ in ran], [speed for _, speed in ran]
        axes.plot(sizes, speeds, "o-", color="tab:blue")
        chosen = dict(ran)[self.suggestion]
        label = f"suggestion: {self.suggestion:,}"
        mark_suggestion(axes, self.suggestion, chosen, label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_ylim(0, 1.1 * max(speeds))
        axes.set_xlabel("batch size")
        axes.set_ylabel("samples per second")
        axes.legend(loc="lower right")
        return figure

    def __repr__(self) -> str:
        speeds = dict(zip(self.sizes, self.samples_per_second, strict=True))
        speed = amount_text(speeds[self.suggestion])
        seconds = time_text(self.suggestion / speeds[self.suggestion])
        return (
            f"<BatchSizes: suggestion {self.suggestion:,} by {self.limit}, {speed} "
            f"samples/s, {seconds} a step; {len(self.sizes)} sizes were run>"
        )


def find_learning_rate(
    self: Network,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    lowest: float = 1e-6,
    highest: float = 10.0,
    steps: int = 100,
    sample_weight: Any = None,
) -> LearningRates:
    """Trains a copy for some steps, each with a larger learning rate than the last.

    The loss falls where rates are large enough to learn, and rises where they are too
    large; the suggestion is a rate at which it falls steeply, as a share of it. The
    model is as it was afterwards, to the last bit: weights, optimizer, metrics, seeds.
    It may be called in a hook, where it looks for a rate for the rest of the run.

    Args:
        x, y, sample_weight: Data as of ``fit``; rows are shuffled, and gone through as
            often as need be.
        batch_size: Rows of a step, as of ``fit``.
        lowest, highest: The first and the last rate; those between them grow evenly.
        steps: How many steps; it ends early where the loss becomes four times the best,
            or NaN.

    Returns:
        Rates and losses, with ``.suggestion`` and ``.plot()``. There is no suggestion,
        with a warning, where the loss fell by no more than its noise.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: A number is out of range, or the optimizer hides its rate.
        DataError, ShapeError, TargetError: The data do not fit the model, or the loss
            is not finite before a rate is tried.
        BusyError: The model is being trained, and this is no hook that has its weights.

    Example:
        >>> import exburn
        >>> (x, y), _ = exburn.datasets.moons.load_data(200, seed=0)
        >>> from exburn import layers
        >>> hidden = layers.Dense(16, "relu")
        >>> model = exburn.Sequential([exburn.Input((2,)), hidden, layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy", seed=0)
        >>> found = model.find_learning_rate(x, y)
        >>> 1e-4 < found.suggestion < 1
        True
        >>> history = model.fit(x, y, learning_rate=found.suggestion, verbose=0)

    Source: L. N. Smith, "Cyclical Learning Rates for Training Neural Networks", 2017.
    """
    op = "find_learning_rate"
    trainer = require_trainer(self, op)
    steps = check_count(op, "steps", steps, 10)
    lowest = check_number(op, "lowest", lowest, open_low=True)
    highest = check_number(op, "highest", highest, lowest, open_low=True)
    _check_rate(op, trainer)
    with prepared_aside(self, op, x, y, sample_weight, batch_size) as data:
        rates = np.geomspace(lowest, highest, steps).tolist()
        losses, diverged = try_rates(
            trainer, data.dataset, data.batch_size, rates, _WORST
        )
    if not losses or not np.isfinite(losses[0]):
        raise DataError(
            op,
            "the loss must be finite before a rate is tried, received "
            f"{losses[0] if losses else 'no batch'}",
            hint="Look for NaN in the weights and in the data; callbacks.Watch names "
            "the layer.",
        )
    rates = rates[: len(losses)]
    smoothed = smooth(losses)
    suggestion = suggest(rates, smoothed, noise(losses))
    if not diverged and len(losses) < steps:
        warn(
            f"the source ended after {len(losses)} of {steps} steps: rates above "
            f"{rates[-1]:.2g} were not tried.\n"
            "  → Pass arrays, a source that repeats, or fewer steps.",
            TrainingWarning,
        )
    elif suggestion is None:
        warn(
            "the loss fell by no more than its noise at any learning rate, so that "
            "none is suggested: the model has learnt what it can, or there is nothing "
            "to learn in so few steps\n"
            "  → Look for a rate before training, with larger batches or more steps; "
            ".plot() shows the losses.",
            TrainingWarning,
        )
    return LearningRates(
        suggestion=suggestion,
        rates=rates,
        losses=losses,
        smoothed=smoothed,
        diverged=diverged,
    )


def find_batch_size(
    self: Network,
    x: Any,
    y: Any = None,
    *,
    limit: str = "memory",
    most: int | None = None,
    sample_weight: Any = None,
) -> BatchSizes:
    """Looks for a batch size, and runs it: the largest one, or the smallest fast one.

    It begins with what ``plan`` says of the memory, and runs a few steps of that size
    on a copy of the weights and the optimizer, beside the model's own; where the memory
    does not suffice, of smaller ones. The model is as it was afterwards, to the last
    bit. It may be called in a hook of a callback.

    Args:
        x, y, sample_weight: Arrays as of ``fit``, whose rows are repeated as need be.
        limit: ``"memory"``: the largest batch that the device has memory for.
            ``"throughput"``: the smallest that reaches nine tenths of the most samples
            per second, of powers of two.
        most: No size above this one; the number of rows of ``x`` by default.

    Returns:
        The sizes and their speed, with ``.suggestion`` and ``.plot()``.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: The limit is neither; or the model's ``Input`` fixes the batch.
        DataError, ShapeError, TargetError: The data do not fit the model.
        OutOfMemoryError: Not even a few rows fit.
        BusyError: The model is being trained, and this is no hook that has its weights.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("sgd", "mse")
        >>> found = model.find_batch_size(np.ones((64, 4)), np.ones((64, 3)))
        >>> found.suggestion, found.sizes
        (64, [64])
    """
    op = "find_batch_size"
    trainer = require_trainer(self, op)
    limit = check_choice(op, "limit", limit, ("memory", "throughput"))
    if (fixed := fixed_batch_size(self)) is not None:
        raise ArgumentError(op, f"the model's Input fixes batches of {fixed} rows")
    if trainer.holder.placement.spans_processes:
        raise ArgumentError(
            op,
            "several processes train the model, and would measure different speeds",
            hint="Call model.plan(batch_size), or look for a size in one process.",
        )
    with prepared_aside(self, op, x, y, sample_weight, None) as data:
        dataset = data.dataset
        if not isinstance(dataset, ArrayDataset):
            raise DataError(
                op,
                "batch sizes are tried on arrays, received a loader of batches",
                hint="Take some rows of it: find_batch_size(x[:1000], y[:1000]).",
            )
        most = dataset.size if most is None else check_count(op, "most", most)
        planned = _largest_planned(trainer, most)
        sizes = _run_sizes(trainer, dataset, limit, max(planned, 1))
    ran = [timed for timed in sizes if timed.seconds]
    if not ran:
        raise OutOfMemoryError(
            op,
            "the device has not enough memory for a training step beside the model",
            {"tried": ", ".join(str(timed.batch_size) for timed in sizes)},
        )
    if limit == "memory":
        chosen = max(timed.batch_size for timed in ran)
    else:
        fast = _GAIN * max(timed.samples_per_second for timed in ran)
        chosen = min(t.batch_size for t in ran if t.samples_per_second >= fast)
    return BatchSizes(
        suggestion=chosen,
        limit=limit,
        sizes=[timed.batch_size for timed in sizes],
        samples_per_second=[timed.samples_per_second for timed in sizes],
        planned=planned,
    )


def smooth(losses: list[float]) -> list[float]:
    """The mean of each loss and those of the steps around it, of near ones most.

    What comes after is weighed as what came before, so that nothing is moved to larger
    rates. It is the geometric mean, where losses are positive: a loss far above the
    others counts for little, and one that falls from 10 to 1 no more than from 1 to
    0.1. Where it diverges, no loss counts as more than a little above the first ones.

    Example:
        >>> [round(v, 3) for v in smooth([4.0] * 9 + [1.0] * 9)][7:11]
        [2.605, 2.191, 1.825, 1.536]
    """
    values = np.asarray(losses, np.float64)
    start = np.median(values[:_FIRST])
    logarithms = bool((values > 0)[np.isfinite(values)].all())
    top = start + (_ABOVE - 1) * abs(start)
    values = np.where(np.isfinite(values), np.minimum(values, top), top)
    values = np.log(values) if logarithms else values
    places = np.arange(len(values))
    weights = np.exp(-0.5 * ((places[:, None] - places) / _WIDTH) ** 2)
    means = weights @ values / weights.sum(1)
    return (np.exp(means) if logarithms else means).tolist()


def noise(losses: list[float]) -> float:
    """The standard deviation of a step's loss, told by those of steps after each other.

    Of the logarithms, where losses are positive, as ``smooth`` takes them.

    Example:
        >>> noise([2.0, 2.0, 2.0, 2.0, 0.5])
        0.0
    """
    values = np.asarray(losses, np.float64)
    values = values[np.isfinite(values)]
    if (values > 0).all():
        values = np.log(values)
    if len(values) < 2:
        return 0.0
    # By the median: few steps change the loss as much as those where it diverges.
    return float(np.median(np.abs(np.diff(values))) / (0.6745 * np.sqrt(2)))


def suggest(
    rates: list[float], smoothed: list[float], noise: float = 0.0
) -> float | None:
    """The rate at which a smoothed loss falls steeply, before its minimum.

    Of the rates at which it falls nearly as steeply as anywhere it is the smallest. The
    minimum is that before the loss first rises again for good: where a rate has killed
    a model, its loss may be lower still.

    Args:
        rates: The rates, evenly spaced in their logarithm.
        noise: The standard deviation of a loss that was not smoothed.

    Returns:
        The rate; ``None`` where the loss does not fall by more than its noise.

    Example:
        >>> suggest([0.001, 0.01, 0.1, 1.0], [1.0, 0.9, 0.2, 5.0])
        0.01
    """
    values = np.asarray(smoothed)
    if (values > 0).all():
        values = np.log(values)
    start, lowest = values[:_FIRST].mean(), np.minimum.accumulate(values)
    fallen = start - lowest
    risen = values - lowest > _RISE * fallen
    over = np.flatnonzero(risen & (fallen > _RISE * np.ptp(values)))
    end = int(np.argmin(values[: over[0]] if len(over) else values))
    if end < 2 or start - values[end] <= _NOISE * noise:
        return None
    slopes = np.gradient(values[: end + 1], np.log(rates[: end + 1]))[:-1]
    return float(rates[int(np.argmax(slopes <= _STEEP * slopes.min()))])


def _check_rate(op: str, trainer: Trainer) -> None:
    optimizer = trainer.holder.optimizer
    if optimizer.searches:
        raise ArgumentError(
            op, f"{type(optimizer).__name__} finds the length of its steps by itself"
        )
    _ = optimizer.learning_rate  # says so where a transformation hides it


@contextlib.contextmanager
def prepared_aside(
    model: Network, op: str, x: Any, y: Any, sample_weight: Any, batch_size: Any
) -> Iterator[FitData]:
    """In the block the model is prepared for the data; afterwards it is as before."""
    trainer = require_trainer(model, op)
    trainer.holder.check_free(op)
    request = DataRequest(
        op=op, x=x, y=y, sample_weight=sample_weight, batch_size=batch_size
    )
    data = read_fit_data(model, request)
    with trial(trainer):
        prepare_for_fit(model, data)
        with guard_run(model, op, data.dataset, data.batch_size):
            yield data


def _largest_planned(trainer: Trainer, most: int) -> int:
    """The most rows, up to a bound, that the memory suffices for by XLA's analysis."""
    placement = trainer.holder.placement
    # Buffers of programs and libraries come on top; a CPU's memory has other users.
    share = 0.5 if jax.default_backend() == "cpu" else 0.9
    release_spare()
    available = int(share * free_bytes(placement.local_devices))

    def plan(rows: int, largest: bool) -> Plan:
        specs = with_rows(trainer.preparer.batch_specs["train"], rows)
        options: dict[str, Any] = {"distribution": placement.distribution}
        options |= {"largest": largest, "available": available}
        return make_plan(trainer, "train", specs, rows, **options)

    if plan(most, False).fits:
        return most
    return min(plan(min(most, 32), True).largest_batch or 0, most)


def _run_sizes(
    trainer: Trainer, dataset: ArrayDataset, limit: str, bound: int
) -> list[Timed]:
    """Runs sizes up to a bound: the largest ones, or powers of two."""
    sizes: list[Timed] = []
    if limit == "memory":
        rows = bound
        while True:
            sizes.append(time_step(trainer, dataset.tree, rows, _SECONDS))
            if sizes[-1].seconds is not None or rows == 1:
                return sizes
            rows = max(rows * 3 // 4, 1)
    best, pauses = 0.0, 0
    for rows in [*_powers(bound), bound]:
        sizes.append(time_step(trainer, dataset.tree, rows, _SECONDS))
        speed = sizes[-1].samples_per_second
        pauses = 0 if speed > best / _GAIN else pauses + 1
        best = max(best, speed)
        if not speed or pauses >= _PAUSES:
            break
    return sizes


def _powers(bound: int) -> list[int]:
    return [n for k in range(3, bound.bit_length()) if (n := 1 << k) < bound]
