"""Probabilities that are as sure as they are right: temperature and vector scaling."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.optimize
from rich.table import Table

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, DataError, warn
from exburn.insight.uncertainty.bond import ModelBond
from exburn.insight.uncertainty.outputs import (
    LabelledRows,
    check_finite_rows,
    find_head,
    rows_of_step,
    softmax,
)
from exburn.insight.uncertainty.prediction import Forecast, likely_classes
from exburn.insight.uncertainty.predictor import Predictor
from exburn.models.network import Network
from exburn.visualization.figures import new_axes

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
        head: The output that is predicted.
        digest: Of the model's weights, which must stay as they were.
        bond: The model; ``None`` of one that was loaded without it.

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
        """Draws the probability of a class before and after, by its logit.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
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

    def own_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        names = ("way", "rows", "before", "after")
        settings = {name: getattr(self, name) for name in names}
        return settings, {"factors": self.factors, "offsets": self.offsets}

    @classmethod
    def from_own(
        cls,
        common: Mapping[str, Any],
        settings: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> Self:
        way, head = settings["way"], common["head"]
        factors, offsets = arrays["factors"], arrays["offsets"]
        if way not in WAYS or not head.has_classes:
            raise ValueError("it names no scaling")
        size = 1 if way == "temperature" else head.classes
        for array in (factors, offsets):
            good = array.shape == (size,) and array.dtype == np.float64
            if not good or not np.isfinite(array).all():
                raise ValueError("its numbers fit no scaling")
        if way == "temperature" and not factors[0] > 0:
            raise ValueError("its temperature is not positive")
        rows = check_count("ScaledPredictor.load", "rows", settings["rows"])
        losses = float(settings["before"]), float(settings["after"])
        return cls(**common, way=way, factors=factors, offsets=offsets, rows=rows,
                   before=losses[0], after=losses[1])  # fmt: skip


def temperature(
    model: Network,
    x: Any,
    y: Any = None,
    *,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> ScaledPredictor:
    """``method="temperature"``: one factor for all logits, by the likelihood of rows.

    Args:
        x, y: Rows that the model was not trained on.
        output: The name or number of an output, of a model with several.
        batch_size: Rows of a step; 32 by default.

    Source: C. Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """
    return _fit_scaling(model, x, y, "temperature", output, batch_size)


def vector(
    model: Network,
    x: Any,
    y: Any = None,
    *,
    output: int | str | None = None,
    batch_size: int | None = None,
) -> ScaledPredictor:
    """``method="vector"``: a factor and an offset for each class.

    With one class against the rest it is the scaling of J. Platt, 1999.

    Args:
        x, y, output, batch_size: As of ``"temperature"``; there must be rows of each
            class.

    Source: C. Guo et al., "On Calibration of Modern Neural Networks", 2017.
    """
    return _fit_scaling(model, x, y, "vector", output, batch_size)


def _fit_scaling(
    model: Network, x: Any, y: Any, way: str, output: Any, batch_size: int | None
) -> ScaledPredictor:
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
    labels = rows.targets_of(head)
    absent = np.flatnonzero(
        np.bincount(labels.reshape(-1), minlength=head.classes) == 0
    )
    if way == "vector" and len(absent):
        raise DataError(
            op,
            f"'vector' needs rows of each class, and there are none of {absent[0]}",
            hint='method="temperature" has one factor for all classes.',
        )
    bond = ModelBond(model)
    raw = head.of(rows.outputs(size))
    check_finite_rows(raw, "the output", op)
    head.probabilities(raw, op)  # checks them
    z, flat = head.scores(raw).reshape(-1, head.classes), labels.reshape(-1)
    factors, offsets = WAYS[way](z, flat)
    before, after = _loss(z, flat), _loss(z * factors + offsets, flat)
    if np.abs(factors).max() >= 0.99 * _LARGEST:
        warn(
            f"{way} scaling found no finite factor: the rows are all predicted right, "
            "or are too few. Take more rows that the model was not trained on."
        )
    return ScaledPredictor(
        head, bond.digest, bond, way, factors, offsets, rows.rows, before, after
    )


def fit_temperature(z: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor of logits that makes labels likeliest, and an offset of 0.

    Args:
        z: Logits ``[rows, classes]``.
        labels: ``[rows]``.

    Example:
        >>> z = np.array([[4.0, 0.0]] * 4)
        >>> factor, _ = fit_temperature(z, np.array([0, 0, 0, 1]))
        >>> bool(np.isclose(factor[0], np.log(3) / 4))
        True
    """
    own = np.take_along_axis(z, labels[:, None], 1)[:, 0]

    def slope(log_factor: float) -> float:
        p = softmax(np.exp(log_factor) * z)
        return float(np.mean((p * z).sum(1) - own))

    low, high = -np.log(_LARGEST), np.log(_LARGEST)
    if slope(low) >= 0:  # the loss is convex in the factor
        best = low
    elif slope(high) <= 0:
        best = high
    else:
        best = scipy.optimize.root_scalar(slope, bracket=(low, high), xtol=1e-12).root
    return np.array([np.exp(best)]), np.zeros(1)


def fit_vector(z: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors and offsets ``[classes]`` of logits that make labels likeliest.

    Offsets add up to 0, since only their differences matter.
    """
    classes = z.shape[1]
    ones = np.eye(classes)[labels]

    def loss(parts: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = z * parts[:classes] + parts[classes:]
        difference = (softmax(scaled) - ones) / len(z)
        gradient = np.concatenate([(difference * z).sum(0), difference.sum(0)])
        return _loss(scaled, labels), gradient

    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    best = scipy.optimize.minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_LARGEST, _LARGEST)] * (2 * classes),
        options={"maxiter": 2000, "ftol": 1e-12, "gtol": 1e-8},
    ).x
    factors, offsets = best[:classes], best[classes:]
    return factors, offsets - offsets.mean()


def _loss(z: np.ndarray, labels: np.ndarray) -> float:
    """The mean negative log likelihood of labels, in nats."""
    top = z.max(1, keepdims=True)
    total = np.log(np.exp(z - top).sum(1)) + top[:, 0]
    return float((total - np.take_along_axis(z, labels[:, None], 1)[:, 0]).mean())


#: The fit of each way of scaling: of logits and labels factors and offsets.
WAYS = {"temperature": fit_temperature, "vector": fit_vector}
