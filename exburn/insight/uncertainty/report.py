"""`UncertaintyReport`: how right predictions with doubt are, on other rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from rich.table import Table

from exburn.insight.fields import Content, read_fields, write_fields
from exburn.insight.insight import Insight
from exburn.tuning.calibration import Calibration, calibration
from exburn.visualization.figures import new_figure

_SMALLEST = 1e-38  # of a probability whose logarithm is taken


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class UncertaintyReport(Insight):
    """How right predictions and their sets are, on rows that nothing was fitted to.

    Attributes:
        method: How the predictor was made.
        rows: Number of rows.
        level: Of the sets.
        coverage: The share of targets that are in their set.
        size: The mean number of classes in a set, or the mean width of an interval.
        empty: The share of sets without a class, or of intervals without a number.
        accuracy: The share of rows whose likeliest class is right; ``None`` of values.
        error: The root of the mean squared error of values; ``None`` of classes.
        likelihood: The mean negative logarithm of the likelihood of the targets, in
            nats; ``None`` where the method has none.
        calibration: Confidence beside accuracy, in 15 bins of equal width; ``.error``
            is the expected calibration error. ``None`` of values.
        levels: ``[levels]``: those whose coverage was looked at.
        coverages: ``[levels]``: the coverage at each.
        sizes: ``[levels]``: the size at each.
        class_coverage: ``[classes]``: of the rows of each class, NaN without any;
            ``None`` of values.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> x = np.random.default_rng(0).uniform(-1, 1, (100, 1))
        >>> sure = model.uncertainty(x[::2], x[::2] ** 2)
        >>> report = sure.report(x[1::2], x[1::2] ** 2, level=0.8)
        >>> report.rows, 0.6 < report.coverage <= 1
        (50, True)
    """

    kind: ClassVar[str] = "uncertainty report"

    method: str
    rows: int
    level: float
    coverage: float
    size: float
    empty: float
    accuracy: float | None
    error: float | None
    likelihood: float | None
    calibration: Calibration | None
    levels: np.ndarray
    coverages: np.ndarray
    sizes: np.ndarray
    class_coverage: np.ndarray | None

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error of the probabilities; ``None`` of values."""
        return None if self.calibration is None else self.calibration.error

    def text(self) -> str:
        error = np.sqrt(self.level * (1 - self.level) / self.rows)
        what = "sets" if self.calibration is not None else "intervals"
        parts = [
            f"{self.coverage:.1%} of the targets are in their {what}, at a level of "
            f"{self.level:.1%}; by chance among {self.rows:,} rows it varies by "
            f"{error:.1%}, and by the rows of the calibration."
        ]
        if self.class_coverage is not None:
            worst = int(np.nanargmin(self.class_coverage))
            parts.append(
                f"Class {worst} is covered least, in {self.class_coverage[worst]:.1%} "
                "of its rows."
            )
        if self.calibration is not None:
            parts.append(
                "The calibration error is the mean difference of confidence and "
                "accuracy, over 15 bins of confidence."
            )
        return " ".join(parts)

    def table(self) -> Table:
        size = "mean size of a set" if self.calibration is not None else "mean width"
        numbers = {
            f"coverage at {self.level:g}": self.coverage,
            size: self.size,
            "empty": self.empty or None,
            "accuracy": self.accuracy,
            "root mean squared error": self.error,
            "calibration error": self.calibration_error,
            "negative log likelihood": self.likelihood,
        }
        title = f"Uncertainty of {self.rows:,} rows ({self.method})"
        return table_of_numbers(title, numbers)

    def plot(self) -> Any:
        """Draws the reliability diagram of classes, and coverage beside the level."""
        panels = 1 if self.calibration is None else 2
        figure = new_figure("UncertaintyReport.plot", 4.4 * panels, 4.2)
        if self.calibration is not None:
            self.calibration.plot(figure.add_subplot(1, panels, 1))
        axes = figure.add_subplot(1, panels, panels)
        axes.plot([0, 1], [0, 1], "--", color="0.4", linewidth=1, label="perfect")
        axes.plot(self.levels, self.coverages, "o-", label="coverage")
        low = min(self.levels.min(), self.coverages.min())
        axes.set(xlim=(low - 0.03, 1.01), ylim=(low - 0.03, 1.01))
        axes.set(xlabel="level", ylabel="share of targets in their set")
        axes.set_title("coverage by level")
        axes.legend(loc="lower right")
        axes.grid(alpha=0.3)
        return figure

    def to_content(self) -> Content:
        return write_fields(self)

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        found = read_fields(cls, settings, arrays)
        parts = [found.levels, found.coverages, found.sizes]
        own, by_class = found.calibration, found.class_coverage
        if (own is None) != (by_class is None):
            raise ValueError("it is neither of classes nor of values")
        if own is not None and by_class is not None:
            parts.append(by_class)
            bins = own.edges[1:], own.confidence, own.accuracy, own.counts
            if len({part.shape for part in bins}) != 1:
                raise ValueError("its bins have unlike lengths")
        if any(part.ndim != 1 or part.dtype.kind != "f" for part in parts):
            raise ValueError("its curves are no floats")
        if len({part.size for part in parts[:3]}) != 1:
            raise ValueError("its curves have unlike lengths")
        return found


def make_report(
    method: str,
    targets: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray | None,
    level: float,
    sets: Mapping[float, np.ndarray],
) -> UncertaintyReport:
    """Compares predictions with targets.

    Args:
        targets: Labels ``[rows, …]``, or values like ``mean``.
        mean: Probabilities ``[rows, …, classes]``, or values ``[rows, …]``.
        deviation: Standard deviations of normal values, for their likelihood.
        level: The level that was asked for, one of ``sets``.
        sets: Sets or intervals by their level.
    """
    classes = sets[level].dtype == bool
    inside = {key: contains(one, targets) for key, one in sets.items()}
    sizes = {key: sizes_of(one) for key, one in sets.items()}
    about: dict[str, Any] = dict.fromkeys(("accuracy", "error", "calibration"))
    if classes:
        about["calibration"] = calibration(targets, mean)
        about["accuracy"] = float((mean.argmax(-1) == targets).mean())
        flat, hits = targets.reshape(-1), inside[level].reshape(-1)
        counts = np.bincount(flat, minlength=mean.shape[-1])
        with np.errstate(invalid="ignore"):
            by_class = np.bincount(flat, hits, mean.shape[-1]) / counts
    else:
        about["error"], by_class = float(np.sqrt(np.mean((mean - targets) ** 2))), None
    deviation = None if classes else deviation
    has_loss = classes or deviation is not None
    return UncertaintyReport(
        method=method,
        rows=len(targets),
        level=level,
        coverage=float(inside[level].mean()),
        size=float(np.maximum(sizes[level], 0).mean()),
        empty=float((sizes[level] < classes).mean()),
        likelihood=mean_loss(mean, deviation, targets) if has_loss else None,
        levels=np.array(list(sets)),
        coverages=np.array([one.mean() for one in inside.values()]),
        sizes=np.array([np.maximum(one, 0).mean() for one in sizes.values()]),
        class_coverage=by_class,
        **about,
    )


def mean_loss(
    mean: np.ndarray, deviation: np.ndarray | None, targets: np.ndarray
) -> float:
    """The mean negative logarithm of the likelihood of targets, in nats.

    Args:
        mean: Probabilities ``[…, classes]``, or values.
        deviation: Standard deviations of values, which are normal; else ``None``.

    Example:
        >>> round(mean_loss(np.array([[0.25, 0.75]]), None, np.array([0])), 4)
        1.3863
    """
    if deviation is None:
        own = np.take_along_axis(mean, targets[..., None], -1)[..., 0]
        return float(-np.log(np.maximum(own, _SMALLEST)).mean())
    scaled = (targets - mean) / deviation
    terms = 0.5 * scaled**2 + np.log(deviation) + 0.5 * np.log(2 * np.pi)
    return float(terms.mean())


def contains(sets: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Whether each target is in its set of classes, or in its interval.

    Example:
        >>> contains(np.array([[True, False]]), np.array([1])).tolist()
        [False]
        >>> contains(np.array([[0.0, 2.0]]), np.array([1.5])).tolist()
        [True]
    """
    if sets.dtype == bool:
        return np.take_along_axis(sets, targets[..., None], -1)[..., 0]
    return (sets[..., 0] <= targets) & (targets <= sets[..., 1])


def sizes_of(sets: np.ndarray) -> np.ndarray:
    """The number of classes of each set, or the width of each interval."""
    return sets.sum(-1) if sets.dtype == bool else sets[..., 1] - sets[..., 0]


def table_of_numbers(title: str, numbers: Mapping[str, float | None]) -> Table:
    """A table of numbers by name, without those that are ``None``.

    Example:
        >>> table_of_numbers("Sizes", {"rows": 3, "columns": None}).row_count
        1
    """
    table = Table(title=title, title_justify="left")
    table.add_column("Number")
    table.add_column("Value", justify="right")
    for name, value in numbers.items():
        if value is not None:
            table.add_row(name, f"{value:,}" if type(value) is int else f"{value:.4g}")
    return table
