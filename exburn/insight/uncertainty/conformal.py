"""Sets and intervals that hold the target as often as asked: split conformal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from rich.table import Table

from exburn.core.checks import (
    check_choice,
    check_count,
    check_flag,
    check_number,
    check_seed,
)
from exburn.errors import ArgumentError, DataError, warn
from exburn.insight.fields import Content
from exburn.insight.uncertainty.bond import ModelBond
from exburn.insight.uncertainty.conformity import (
    CLASS_SCORES,
    VALUE_SCORES,
    class_scores,
    intervals,
    row_draws,
    rows_needed,
    threshold,
    value_scores,
)
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    OutputHead,
    check_finite_rows,
    find_head,
    rows_of_step,
    select,
)
from exburn.insight.uncertainty.prediction import Forecast, check_level
from exburn.insight.uncertainty.predictor import Predictor
from exburn.models.network import Network
from exburn.visualization.figures import new_axes

_OP = "uncertainty"
_SHOWN = (0.8, 0.9, 0.95, 0.99)  # levels of a table
_ALIKE = 0.3  # a correlation of scores of rows side by side that is warned of
_PENALTY, _FREE = 0.01, 1  # of "raps"


@dataclasses.dataclass(frozen=True)
class ConformalScore:
    """How scores are made.

    Attributes:
        name: One of ``CLASS_SCORES`` or ``VALUE_SCORES``.
        penalty, free_classes: Of ``"raps"``.
        seed: Of the draws of randomized sets; ``None`` where none are drawn.
        spread: Of ``"normalized"``: the number of an output, or a function of inputs.
    """

    name: str
    penalty: float = 0.0
    free_classes: int = 0
    seed: int | None = None
    spread: int | Callable[[Any], Any] | None = None

    def spread_of(self, rows: LabelledRows) -> np.ndarray | None:
        """The spread by a function of the inputs; ``None`` if there is none."""
        return rows.call(self.spread) if callable(self.spread) else None

    def of_classes(self, p: np.ndarray) -> np.ndarray:
        """Scores ``[rows, classes]``."""
        draws = None if self.seed is None else row_draws(p, self.seed)
        return class_scores(
            p,
            self.name,
            penalty=self.penalty,
            free_classes=self.free_classes,
            draws=draws,
        )


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ConformalPredictor(Predictor):
    """Sets of classes, or intervals of values, that hold the target as often as asked.

    That holds on average over rows that are drawn as those of the calibration, whatever
    the model: for a new one with a probability of ``level`` at least.

    Attributes:
        score: How scores are made.
        scores: ``[rows, …]``: of the targets of the calibration.
        labels: ``[rows]``: their classes, where each class has its own bound;
            else ``None``.
        head, digest, bond: As of `Predictor`.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> x = np.random.default_rng(0).uniform(-1, 1, (50, 1))
        >>> sure = model.uncertainty(x, x**2)
        >>> sure.predict(x[:3], level=0.9).sets.shape
        (3, 1, 2)
    """

    kind: ClassVar[str] = "conformal predictor"

    score: ConformalScore
    scores: np.ndarray
    labels: np.ndarray | None

    @property
    def method(self) -> str:
        by_class = ", by class" if self.labels is not None else ""
        return f"conformal, {self.score.name}{by_class}"

    @property
    def value_shape(self) -> tuple[Any, ...]:
        return _value_shape(self.head, self.score.name)

    @property
    def has_spread(self) -> bool:
        return self.score.spread is not None

    def threshold(self, level: float = 0.9) -> np.ndarray:
        """The largest score of what is in a set.

        Returns:
            A number; one for each class where each has its own, or for each value of a
            row.

        Raises:
            ArgumentError: There are too few rows for the level.
        """
        op = "ConformalPredictor.threshold"
        self.check_reach(check_level(op, level), op)
        bounds = np.stack([threshold(part, level) for part in self._groups()])
        return bounds[0] if self.labels is None else bounds

    def check_reach(self, level: float, op: str) -> None:
        counts = [len(part) for part in self._groups()]
        needed, least = rows_needed(level), int(np.argmin(counts))
        if counts[least] >= needed:
            return
        of_class = f" of class {least}" if self.labels is not None else ""
        reach = counts[least] / (counts[least] + 1)
        raise ArgumentError(
            op,
            f"a level of {level:g} needs {needed} rows{of_class}, and there were "
            f"{counts[least]} at the calibration",
            hint=f"Calibrate on more rows, or ask for a level up to {reach:.3g}.",
        )

    def _groups(self) -> list[np.ndarray]:
        """The scores that have a bound together."""
        if self.labels is None:
            return [self.scores]
        return [self.scores[self.labels == c] for c in range(self.head.classes)]

    def _forecast(self, rows: LabelledRows, batch_size: int, op: str) -> Forecast:
        spread = self.score.spread_of(rows)
        return self._of_outputs(rows.outputs(batch_size), op, spread)

    def _of_outputs(self, outputs: Any, op: str, spread: Any = None) -> Forecast:
        output, spread = _read_outputs(self.head, self.score, outputs, spread, op)
        if self.head.has_classes:
            return Forecast(output)
        mean = output
        if self.score.name == "quantile":
            middle = output.shape[-1] == 3
            mean = output[..., 1] if middle else output.mean(-1)
        return Forecast(mean, spread, {"output": output})

    def check_served(self, op: str) -> None:
        if callable(self.score.spread):
            raise ArgumentError(
                op,
                "the spread is a function of rows, so that it cannot be served",
                hint="Make it an output of the model: spread='name'.",
            )

    def _sets(self, forecast: Forecast, level: float) -> np.ndarray:
        bound = self.threshold(level)
        if self.head.has_classes:
            return self.score.of_classes(forecast.mean) <= bound
        output = forecast.outputs["output"]
        return intervals(output, bound, self.score.name, forecast.spread)

    def text(self) -> str:
        what = "intervals hold" if not self.head.has_classes else "sets hold"
        parts = [
            f"By {len(self.scores):,} rows, whose scores bound those of others: {what} "
            "the target of a new row with the probability that is asked for at least, "
            "if it is drawn as they were. That is on average over rows, not for each "
            "kind of them."
        ]
        if self.labels is not None:
            parts.append("It holds for the rows of each class by themselves.")
        elif self.scores.ndim > 1 and self.scores[0].size > 1:
            parts.append("It holds for each value of a row, not for all at once.")
        if self.score.seed is not None:
            parts.append("Whether the last class is in a set is drawn.")
        return " ".join(parts)

    def table(self) -> Table:
        rows = f"{len(self.scores):,} rows ({self.score.name})"
        table = Table(title=f"Conformal predictions by {rows}", title_justify="left")
        counts = [len(part) for part in self._groups()]
        levels = [one for one in _SHOWN if rows_needed(one) <= min(counts)]
        if self.labels is not None:
            table.add_column("Class", justify="right")
        table.add_column("Rows", justify="right")
        for level in levels:
            table.add_column(f"Bound at {level:g}", justify="right")
        for number, part in enumerate(self._groups()):
            bounds = [threshold(part, level) for level in levels]
            cells = [str(number)] if self.labels is not None else []
            table.add_row(*cells, f"{len(part):,}", *map(_range_of, bounds))
        return table

    def plot(self) -> Any:
        """Draws the bound of sets by their level."""
        figure, axes = new_axes("ConformalPredictor.plot", 4.8, 3.6)
        for number, part in enumerate(self._groups()):
            flat = np.sort(part.reshape(len(part), -1), axis=0)
            levels = np.arange(1, len(part) + 1) / (len(part) + 1)
            name = f"class {number}" if self.labels is not None else None
            axes.plot(levels, flat[:, :10], linewidth=1.2, label=name)
        axes.set(xlabel="level", ylabel=f"bound of the score ({self.score.name})")
        axes.set_title("What is in a set", loc="left")
        if self.labels is not None and self.head.classes <= 12:
            axes.legend(fontsize=7)
        return figure

    def to_content(self) -> Content:
        if callable(self.score.spread):
            raise ArgumentError(
                "save",
                "the spread is a function, which no file holds",
                hint="Make it an output of the model: spread='name'.",
            )
        return super().to_content()

    def check(self) -> None:
        head, how, scores, labels = self.head, self.score, self.scores, self.labels
        names = CLASS_SCORES if head.has_classes else VALUE_SCORES
        check_choice("load", "score", how.name, names)
        check_number("load", "penalty", how.penalty)
        check_count("load", "free_classes", how.free_classes, 0)
        check_seed("load", how.seed)
        if (how.name == "normalized") != isinstance(how.spread, int):
            raise ValueError("its spread is not of the score")
        if isinstance(how.spread, int) and how.spread not in range(head.count):
            raise ValueError("its spread is no output")
        shape = () if head.has_classes else self.value_shape
        if scores.dtype != np.float64 or scores.shape[1:] != shape or not len(scores):
            raise ValueError("its scores fit no output")
        if not np.isfinite(scores).all():
            raise ValueError("its scores are not finite")
        if labels is None:
            return
        if labels.shape != scores.shape or labels.dtype != np.int64:
            raise ValueError("its labels fit no scores")
        if not head.has_classes or {*np.unique(labels)} != {*range(head.classes)}:
            raise ValueError("its labels are not those of the classes")


def conformal(
    model: Network,
    x: Any,
    y: Any = None,
    *,
    score: str | None = None,
    by_class: bool = False,
    randomized: bool = False,
    penalty: float | None = None,
    free_classes: int | None = None,
    spread: int | str | Callable[[Any], Any] | None = None,
    seed: int = 0,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> ConformalPredictor:
    """``method="conformal"``: sets or intervals that hold the target as often as asked.

    Args:
        x, y: Rows that the model was not trained on, drawn as those that come later.
        score: Of classes ``"lac"`` (the default), whose sets are the smallest on
            average; ``"aps"``, whose sets follow how hard a row is; ``"raps"``, the
            same with a penalty on long sets. Of values ``"absolute"`` (the default),
            intervals of one width; ``"normalized"``, in proportion to a spread;
            ``"quantile"``, around the quantiles that the model puts out, the lower one
            first and the upper one last on its last axis.
        by_class: Whether the level holds for the rows of each class (Mondrian sets).
        randomized: Whether the last class of sets by ``"aps"`` and ``"raps"`` is drawn,
            which makes them hold the target exactly as often as asked, not more often.
        penalty, free_classes: Of ``"raps"``: what each class beyond so many adds to the
            score; 0.01 beyond 1 by default.
        spread: Of ``"normalized"``: an output, or a function of the inputs, that gives
            a positive number for each value.
        seed: Of ``randomized``.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: V. Vovk et al., "Algorithmic Learning in a Random World", 2005; M. Sadinle
    et al., "Least Ambiguous Set-Valued Classifiers With Bounded Error Levels", 2019;
    Y. Romano et al., "Classification with Valid and Adaptive Coverage", 2020, and
    "Conformalized Quantile Regression", 2019; A. Angelopoulos et al., "Uncertainty Sets
    for Image Classifiers using Conformal Prediction", 2021.
    """
    head = find_head(model, output, _OP)
    size = rows_of_step(model, batch_size, _OP)
    names = CLASS_SCORES if head.has_classes else VALUE_SCORES
    by_class = check_flag(_OP, "by_class", by_class)
    randomized = check_flag(_OP, "randomized", randomized)
    name = check_choice(_OP, "score", score or names[0], names)
    _check_options(head, name, by_class, randomized, penalty, free_classes, spread)
    if name == "raps":
        penalty = check_number(_OP, "penalty", _PENALTY if penalty is None else penalty)
        free = _FREE if free_classes is None else free_classes
        free_classes = check_count(_OP, "free_classes", free, 0)
    seed = check_seed(_OP, seed) or 0
    how = ConformalScore(
        name,
        penalty or 0.0,
        free_classes or 0,
        seed if randomized else None,
        spread if spread is None or callable(spread) else _number(model, spread),
    )
    rows = LabelledRows(model, x, y, _OP)
    targets, counts = rows.read(head, size, _value_shape(head, name))
    if counts is not None and counts.ndim > 1:
        raise DataError(
            _OP,
            f"places of the output {head.name!r} are masked, and those of a row are "
            "not exchangeable",
            hint="Cut the rows to one length, without a mask.",
        )
    if by_class:
        sizes = np.bincount(targets, minlength=head.classes)
        if not sizes.all():
            reason = f"by_class needs rows of each class: none are of {sizes.argmin()}"
            raise DataError(_OP, reason)
    bond = ModelBond(model)
    spreads = how.spread_of(rows)
    values, spreads = _read_outputs(head, how, rows.outputs(size), spreads, _OP)
    values = select(values, counts)
    if head.has_classes:
        all_scores = how.of_classes(values)
        scores = np.take_along_axis(all_scores, targets[:, None], 1)[:, 0]
    else:
        spreads = None if spreads is None else select(spreads, counts)
        scores = value_scores(targets, values, name, spreads)
    _warn_of_order(x, scores)
    labels = targets if by_class else None
    return ConformalPredictor(head, bond.digest, bond, how, scores, labels)


def _check_options(
    head: OutputHead,
    name: str,
    by_class: bool,
    randomized: bool,
    penalty: Any,
    free_classes: Any,
    spread: Any,
) -> None:
    """Refuses options that the score or the output has no use for."""
    if head.has_classes and len(head.shape) != 2:
        raise ArgumentError(
            _OP,
            f"the output {head.name!r} has classes at several places of a row, which "
            "are not exchangeable",
            {"shape": head.shape},
            hint='method="temperature" scales their probabilities.',
        )
    reason = ""
    if by_class and not head.has_classes:
        reason = f"by_class: the output {head.name!r} is of values"
    elif randomized and name not in ("aps", "raps"):
        reason = f"randomized is of 'aps' and 'raps', not of {name!r}"
    elif penalty is not None and name != "raps":
        reason = f"penalty is of 'raps', not of {name!r}"
    elif free_classes is not None and name != "raps":
        reason = f"free_classes is of 'raps', not of {name!r}"
    elif spread is not None and name != "normalized":
        reason = f"spread is of 'normalized', not of {name!r}"
    elif spread is None and name == "normalized":
        reason = "'normalized' needs a spread: the name of an output, or a function"
    if reason:
        raise ArgumentError(_OP, reason)
    if name == "quantile" and (len(head.shape) < 2 or head.shape[-1] not in (2, 3)):
        raise ArgumentError(
            _OP,
            f"'quantile' needs an output of quantiles, [rows, …, 2] or [rows, …, 3], "
            f"and {head.name!r} is {list(head.shape)}",
            hint='score="absolute" is for outputs of one value.',
        )


def _number(model: Network, spread: int | str) -> int:
    """The number of the output that is the spread."""
    return find_head(model, spread, _OP).number


def _value_shape(head: OutputHead, name: str) -> tuple[Any, ...]:
    """The shape of a row's targets: without the axis of quantiles."""
    return head.shape[1:-1] if name == "quantile" else head.shape[1:]


def _read_outputs(
    head: OutputHead,
    how: ConformalScore,
    outputs: Any,
    spread: np.ndarray | None,
    op: str,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Probabilities or values of rows, and their spread if the score has one."""
    values = head.of(outputs)
    check_finite_rows(values, "the output", op)
    if head.has_classes:
        return head.probabilities(values, op), None
    if isinstance(how.spread, int):
        spread = np.asarray(jax.tree.leaves(outputs)[how.spread]).astype(np.float64)
    if spread is None:
        return values, None
    if spread.ndim + 1 == values.ndim and values.shape[-1] == 1:
        spread = spread[..., None]
    if spread.shape != values.shape:
        raise DataError(
            op,
            "the spread must be like the values",
            {"spread": spread.shape, "values": values.shape},
        )
    check_finite_rows(spread, "the spread", op)
    if not (spread > 0).all():
        row = int((spread <= 0).reshape(len(spread), -1).any(1).argmax())
        raise DataError(
            op,
            f"the spread of row {row} is not positive",
            hint='activation="softplus" makes an output positive.',
        )
    return values, spread


def _warn_of_order(x: Any, scores: np.ndarray) -> None:
    """Warns of rows that look like a time series, whose rows are not exchangeable."""
    index = getattr(x, "index", None)
    times = str(getattr(index, "dtype", "")).startswith("datetime64")
    reason = "the index of the table has times"
    if not times:
        flat = scores.reshape(len(scores), -1).mean(1)
        if len(flat) < 20 or not flat.std() > 0:
            return
        centred = flat - flat.mean()
        alike = float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
        if alike < max(_ALIKE, 4 / np.sqrt(len(flat))):
            return
        reason = f"scores of rows side by side correlate by {alike:.2f}"
    warn(
        f"the rows look like a time series ({reason}): sets hold the target as often "
        "as asked only where later rows are drawn as these were. If rows were only "
        "sorted, nothing is wrong; of a series calibrate anew with recent rows."
    )


def _range_of(values: np.ndarray) -> str:
    """A number, or the range of several."""
    low, high = f"{values.min():.4g}", f"{values.max():.4g}"
    return low if low == high else f"{low} … {high}"
