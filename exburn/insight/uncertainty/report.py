"""`UncertaintyReport`: how right predictions with doubt are, on other rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from rich.table import Table

from exburn.insight.insight import Insight
from exburn.insight.uncertainty.conformity import contains, sizes_of
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
        table = Table(
            title=f"Uncertainty of {self.rows:,} rows ({self.method})",
            title_justify="left",
        )
        table.add_column("Figure")
        table.add_column("Value", justify="right")
        size = "mean size of a set" if self.calibration is not None else "mean width"
        figures = {
            f"coverage at {self.level:g}": self.coverage,
            size: self.size,
            "empty": self.empty or None,
            "accuracy": self.accuracy,
            "root mean squared error": self.error,
            "calibration error": self.calibration_error,
            "negative log likelihood": self.likelihood,
        }
        for name, value in figures.items():
            if value is not None:
                table.add_row(name, f"{value:.4g}")
        return table

    def plot(self) -> Any:
        """Draws the reliability diagram of classes, and coverage beside the level.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
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

    def to_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        settings: dict[str, Any] = {
            name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS, *_OPTIONAL)
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.calibration is not None:
            assert self.class_coverage is not None
            arrays["class_coverage"] = self.class_coverage
            bins = dataclasses.asdict(self.calibration)
            settings["calibration"] = [bins.pop("error"), bins.pop("largest")]
            arrays |= {f"calibration/{name}": value for name, value in bins.items()}
        return settings, arrays

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        values: dict[str, Any] = {"method": settings["method"]}
        if not isinstance(values["method"], str):
            raise TypeError("its method is no text")
        values |= {name: float(settings[name]) for name in _NUMBERS}
        values["rows"] = int(values["rows"])
        for name in _OPTIONAL:
            value = settings[name]
            values[name] = None if value is None else float(value)
        values |= {name: arrays[name] for name in _ARRAYS}
        if len({values[name].shape for name in _ARRAYS}) != 1:
            raise ValueError("its curves have unlike lengths")
        bins, by_class = None, None
        if (errors := settings.get("calibration")) is not None:
            parts = {n: arrays[f"calibration/{n}"] for n in _BINS}
            sizes = [parts["edges"].size - 1, *(parts[n].size for n in _BINS[1:])]
            if len(set(sizes)) != 1 or len(errors) != 2:
                raise ValueError("its bins have unlike lengths")
            bins = Calibration(float(errors[0]), float(errors[1]), **parts)
            by_class = arrays["class_coverage"]
        for array in (*(values[name] for name in _ARRAYS), by_class):
            if array is not None and (array.ndim != 1 or array.dtype.kind != "f"):
                raise ValueError("its curves are no floats")
        return cls(calibration=bins, class_coverage=by_class, **values)


_TEXTS = ("method",)
_NUMBERS = ("rows", "level", "coverage", "size", "empty")
_OPTIONAL = ("accuracy", "error", "likelihood")
_ARRAYS = ("levels", "coverages", "sizes")
_BINS = ("edges", "confidence", "accuracy", "counts")


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
    classes = next(iter(sets.values())).dtype == bool
    inside = {key: contains(one, targets) for key, one in sets.items()}
    sizes = {key: sizes_of(one) for key, one in sets.items()}
    about: dict[str, Any] = {"accuracy": None, "error": None, "likelihood": None}
    bins, by_class = None, None
    if classes:
        bins = calibration(targets, mean)
        about["accuracy"] = float((mean.argmax(-1) == targets).mean())
        about["likelihood"] = mean_loss(mean, None, targets)
        counts = np.bincount(targets.reshape(-1), minlength=mean.shape[-1])
        hits = np.bincount(
            targets.reshape(-1), inside[level].reshape(-1), mean.shape[-1]
        )
        with np.errstate(invalid="ignore"):
            by_class = hits / counts
    else:
        about["error"] = float(np.sqrt(np.mean((mean - targets) ** 2)))
        if deviation is not None:
            about["likelihood"] = mean_loss(mean, deviation, targets)
    levels = np.array(list(sets))
    return UncertaintyReport(
        method=method,
        rows=len(targets),
        level=level,
        coverage=float(inside[level].mean()),
        size=float(np.maximum(sizes[level], 0).mean()),
        empty=float(
            (sizes[level] == 0).mean() if classes else (sizes[level] < 0).mean()
        ),
        calibration=bins,
        levels=levels,
        coverages=np.array([inside[key].mean() for key in sets]),
        sizes=np.array([np.maximum(sizes[key], 0).mean() for key in sets]),
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
