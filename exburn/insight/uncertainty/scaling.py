"""Probabilities that are as sure as they are right: temperature and vector scaling."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
from rich.table import Table

from exburn.core.checks import check_choice, check_count
from exburn.errors import ArgumentError, DataError, warn
from exburn.insight.uncertainty.bond import ModelBond
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    check_finite_rows,
    find_head,
    rows_of_step,
    select,
    softmax,
)
from exburn.insight.uncertainty.prediction import Forecast, likely_classes
from exburn.insight.uncertainty.predictor import Predictor
from exburn.models.network import Network
from exburn.visualization.figures import new_axes

WAYS = ("temperature", "vector")
_LARGEST = 1e3  # of a factor, and 1 / it the smallest of a temperature


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ScaledPredictor(Predictor):
    """A classifier whose logits are scaled before their softmax.

    Its sets are the fewest classes whose probabilities add up to the level. They hold
    the target that often if the probabilities are right, which nothing assures:
    ``method="conformal"`` does.

    Attributes:
        way: ``"temperature"`` or ``"vector"``.
        factors: ``[1]`` or ``[classes]``: what logits are multiplied by.
        offsets: ``[1]`` or ``[classes]``: what is added to them then.
        rows: Number of rows that they were fitted to.
        before, after: The negative log likelihood of these rows.
        head, digest, bond: As of `Predictor`.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> last = exburn.layers.Dense(2, "softmax")
        >>> model = exburn.Sequential([exburn.Input((1,)), last])
        >>> model.compile("sgd", "sparse_categorical_crossentropy", seed=0)
        >>> x, y = np.linspace(-1, 1, 50)[:, None], np.tile([0, 1], 25)
        >>> sure = model.uncertainty(x, y, method="temperature")
        >>> type(sure).__name__, sure.rows, sure.after <= sure.before
        ('ScaledPredictor', 50, True)
    """

    kind: ClassVar[str] = "scaled predictor"

    way: str
    factors: np.ndarray
    offsets: np.ndarray
    rows: int
    before: float
    after: float

    @property
    def method(self) -> str:
        return self.way

    @property
    def temperature(self) -> float:
        """What logits are divided by.

        Raises:
            ArgumentError: It is a factor for each class.
        """
        if self.way != "temperature":
            raise ArgumentError(
                "ScaledPredictor.temperature",
                "vector scaling has a factor for each class, and no temperature",
                hint="predictor.factors, predictor.offsets",
            )
        return float(1 / self.factors[0])

    def _of_outputs(self, outputs: Any, op: str) -> Forecast:
        output = self.head.of(outputs)
        check_finite_rows(output, "the output", op)
        z = self.head.scores(output) * self.factors + self.offsets
        return Forecast(softmax(z))

    def _sets(self, forecast: Forecast, level: float) -> np.ndarray:
        return likely_classes(forecast.mean, level)

    def text(self) -> str:
        way = "a factor and an offset for each class"
        if self.way == "temperature":
            way = f"a temperature of {self.temperature:.4g}"
            way += ", which changes no prediction" if self.temperature > 0 else ""
        return (
            f"Logits are scaled by {way}, fitted to {self.rows:,} rows. Sets are the "
            "likeliest classes that reach the level by these probabilities; how many "
            "targets they hold is not assured, as it is by conformal sets."
        )

    def table(self) -> Table:
        table = Table(
            title=f"Probabilities by {self.way} scaling", title_justify="left"
        )
        for name in ("Class", "Factor", "Offset"):
            table.add_column(name, justify="right")
        names = ["all"] if self.way == "temperature" else range(len(self.factors))
        for name, factor, offset in zip(names, self.factors, self.offsets, strict=True):
            table.add_row(str(name), f"{factor:.4g}", f"{offset:.4g}")
        return table

    def plot(self) -> Any:
        """Draws the probability of a class before and after, by its logit."""
        figure, axes = new_axes("ScaledPredictor.plot", 4.6, 3.6)
        z = np.linspace(-8, 8, 201)
        axes.plot(z, 1 / (1 + np.exp(-z)), "--", color="0.4", label="before")
        for number in range(min(len(self.factors), 10)):
            scaled = z * self.factors[number] + self.offsets[number]
            name = "after" if self.way == "temperature" else f"class {number}"
            axes.plot(z, 1 / (1 + np.exp(-scaled)), label=name)
        axes.set(xlabel="logit over that of the rest", ylabel="probability")
        axes.legend(fontsize=7)
        return figure

    def check(self) -> None:
        check_choice("load", "way", self.way, WAYS)
        check_count("load", "rows", self.rows)
        size = 1 if self.way == "temperature" else self.head.classes
        for array in (self.factors, self.offsets):
            good = array.shape == (size,) and array.dtype == np.float64
            if not good or not np.isfinite(array).all():
                raise ValueError("its numbers fit no scaling")
        if self.way == "temperature" and not self.factors[0] > 0:
            raise ValueError("its temperature is not positive")
        if not self.head.has_classes:
            raise ValueError("its output has no classes")


def scaling(
    way: str,
    model: Network,
    x: Any,
    y: Any = None,
    *,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> ScaledPredictor:
    """``method="temperature"`` and ``"vector"``: logits that are scaled by likelihood.

    ``"temperature"`` is one factor for all logits; ``"vector"`` a factor and an offset
    for each class, which with one class against the rest is the scaling of J. Platt,
    1999.

    Args:
        x, y: Rows that the model was not trained on, for ``"vector"`` some of each
            class.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: C. Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """
    op = "uncertainty"
    head = find_head(model, output, op)
    size = rows_of_step(model, batch_size, op)
    if not head.has_classes:
        raise ArgumentError(
            op,
            f"{way!r} scales probabilities, and the output {head.name!r} is values",
            hint='method="conformal" gives intervals. Logits are told by the loss: '
            "compile with from_logits=True.",
        )
    rows = LabelledRows(model, x, y, op)
    labels, counts = rows.read(head, size)
    labels = labels.reshape(-1)
    absent = np.flatnonzero(np.bincount(labels, minlength=head.classes) == 0)
    if way == "vector" and len(absent):
        raise DataError(
            op,
            f"'vector' needs rows of each class, and there are none of {absent[0]}",
            hint='method="temperature" has one factor for all classes.',
        )
    bond = ModelBond(model)
    raw = select(head.of(rows.outputs(size)), counts)
    check_finite_rows(raw, "the output", op)
    head.probabilities(raw, op)  # checks them
    z = head.scores(raw).reshape(-1, head.classes)
    factors, offsets = fit_scaling(z, labels, way)
    before, after = _loss(z, labels), _loss(z * factors + offsets, labels)
    if np.abs(factors).max() >= 0.99 * _LARGEST or after < 1e-6:
        warn(
            f"{way} scaling found no finite factor: the rows are all predicted right, "
            "or are too few. Take more rows that the model was not trained on."
        )
    return ScaledPredictor(
        head, bond.digest, bond, way, factors, offsets, len(labels), before, after
    )


def fit_scaling(
    z: np.ndarray, labels: np.ndarray, way: str
) -> tuple[np.ndarray, np.ndarray]:
    """Factors and offsets of logits that make labels likeliest.

    Args:
        z: Logits ``[rows, classes]``.
        labels: ``[rows]``.
        way: ``"temperature"``: one factor, and an offset of 0; ``"vector"``: one for
            each class, and offsets that add up to 0, as their differences matter alone.

    Example:
        >>> z = np.array([[4.0, 0.0]] * 4)
        >>> factor, _ = fit_scaling(z, np.array([0, 0, 0, 1]), "temperature")
        >>> bool(np.isclose(factor[0], np.log(3) / 4))
        True
    """
    classes, tied = z.shape[1], way == "temperature"
    factors = 1 if tied else classes
    ones, size = np.eye(classes)[labels], np.abs(z).max() or 1.0

    def loss(parts: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = z / size * parts[:factors] + (0 if tied else parts[factors:])
        difference = (softmax(scaled) - ones) / len(z)
        slopes = (difference * z / size).sum(0)
        if tied:
            return _loss(scaled, labels), slopes.sum(keepdims=True)
        return _loss(scaled, labels), np.concatenate([slopes, difference.sum(0)])

    # The loss is convex, and logits of any size are of size 1 here.
    least = size / _LARGEST if tied else -size * _LARGEST
    bounds = [(least, size * _LARGEST)] * factors
    best = scipy.optimize.minimize(
        loss,
        np.r_[np.full(factors, size), np.zeros(0 if tied else classes)],
        jac=True,
        method="L-BFGS-B",
        bounds=bounds + [(-_LARGEST, _LARGEST)] * (0 if tied else classes),
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10},
    ).x
    offsets = np.zeros(1) if tied else best[factors:] - best[factors:].mean()
    return best[:factors] / size, offsets


def _loss(z: np.ndarray, labels: np.ndarray) -> float:
    """The mean negative log likelihood of labels, in nats."""
    top = z.max(1, keepdims=True)
    total = np.log(np.exp(z - top).sum(1)) + top[:, 0]
    return float((total - np.take_along_axis(z, labels[:, None], 1)[:, 0]).mean())
