"""How far predicted probabilities can be believed: calibration, and its diagram."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import DataError, ShapeError
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.visualization.figures import new_figure

__all__ = ["Calibration", "calibration", "class_probabilities"]


@guard_methods
@dataclasses.dataclass(frozen=True)
class Calibration:
    """Confidence beside accuracy, in bins of confidence.

    Attributes:
        error: The expected calibration error, ``Σ n_b/n |accuracy_b - confidence_b|``.
        largest: The largest such difference of a bin that has rows.
        edges: [bins + 1] The bounds of the bins.
        confidence: [bins] The mean confidence of the rows in each; NaN without rows.
        accuracy: [bins] The share of them that is right.
        counts: [bins] How many they are.

    Example:
        >>> found = calibration([0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8]] * 2, bins=2)
        >>> found.counts.tolist()
        [0, 4]
    """

    error: float
    largest: float
    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray

    def plot(self, axes: Any = None) -> Any:
        """Draws the reliability diagram: accuracy over confidence, in bars.

        Args:
            axes: matplotlib's axes to draw on; those of a new figure by default.

        Returns:
            matplotlib's figure.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        if axes is None:
            axes = new_figure("plot", 4.2, 4.2).add_subplot()
        widths = np.diff(self.edges)
        filled = self.counts > 0
        starts = self.edges[:-1][filled]
        axes.bar(
            starts,
            self.accuracy[filled],
            width=widths[filled],
            align="edge",
            alpha=0.75,
            edgecolor="white",
            label="accuracy",
        )
        axes.plot([0, 1], [0, 1], "--", color="0.4", linewidth=1, label="perfect")
        axes.plot(
            self.confidence[filled],
            self.accuracy[filled],
            "o",
            color="C1",
            markersize=4,
        )
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
        axes.set_title(f"calibration error {self.error:.3f}")
        axes.legend(loc="upper left")
        return axes.figure


@api_boundary
def calibration(y_true: Any, probabilities: Any, bins: int = 15) -> Calibration:
    """The expected calibration error of predictions, with the bins it is made of.

    The confidence of a row is its largest probability; a bin holds the rows whose
    confidence is above its lower bound, up to its upper one.

    Args:
        y_true: [rows] labels, or [rows, classes] one-hot.
        probabilities: [rows, classes]; or [rows] or [rows, 1] of a class against the
            rest.
        bins: How many, of equal width.

    Raises:
        ShapeError: They do not fit together.
        DataError: Something is no probability, a label no class, or there are no rows.

    Example:
        >>> found = calibration([0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8]] * 2, bins=2)
        >>> found.accuracy.tolist()[1], round(found.confidence.tolist()[1], 2)
        (0.5, 0.85)
        >>> round(found.error, 2)
        0.35

    Source: Naeini et al., *Obtaining Well Calibrated Probabilities Using Bayesian
    Binning*, 2015; Guo et al., *On Calibration of Modern Neural Networks*, 2017.
    """
    bins = check_count("calibration", "bins", bins)
    p = class_probabilities(probabilities)  # [rows, classes]
    labels = class_labels(y_true, *p.shape)  # [rows]
    confidence, right = p.max(-1), p.argmax(-1) == labels  # [rows]
    edges = np.linspace(0, 1, bins + 1)
    places = np.clip(np.searchsorted(edges, confidence, "left") - 1, 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    with np.errstate(invalid="ignore"):
        means = np.bincount(places, confidence, bins) / counts
        shares = np.bincount(places, right, bins) / counts
    gaps = np.abs(shares - means)[counts > 0]
    error = float(np.sum(counts[counts > 0] / len(p) * gaps))
    return Calibration(error, float(gaps.max()), edges, means, shares, counts)


def class_probabilities(probabilities: Any, op: str = "calibration") -> np.ndarray:
    """[rows, classes] Probabilities; of one against the rest those of both.

    Axes between, such as time, become rows.
    """
    p = np.asarray(probabilities, np.float64)
    p = p[..., None] if p.ndim == 1 else p
    p = p.reshape(-1, p.shape[-1])
    if p.shape[-1] == 1:
        p = np.concatenate([1 - p, p], -1)
    if not len(p):
        raise DataError(op, "there are no rows")
    off = np.abs(p.sum(-1) - 1)
    if not (p.min() >= -1e-6 and off.max() < 1e-2):
        raise DataError(
            op,
            "probabilities are needed: from 0 to 1, with a sum of 1",
            {"least": p.min(), "sum of the worst row": p[off.argmax()].sum()},
            hint="Logits need a softmax first.",
        )
    return p


def class_labels(
    y_true: Any, rows: int, classes: int, op: str = "calibration"
) -> np.ndarray:
    """[rows] Labels, of labels or of one-hot targets.

    Raises:
        ShapeError: There are more or fewer than rows.
        DataError: They are no whole numbers, or no classes.

    Example:
        >>> class_labels([[0, 1], [1, 0]], 2, 2).tolist()
        [1, 0]
    """
    y = np.asarray(y_true)
    if y.size == rows * classes and y.ndim > 1 and y.shape[-1] == classes:
        flat = y.reshape(rows, classes)
        if not (((flat == 0) | (flat == 1)).all() and (flat.sum(1) == 1).all()):
            raise DataError(
                op, "targets must be labels, or one-hot", hint="Not smoothed ones."
            )
        y = flat.argmax(-1)
    if y.size != rows:
        reason = "there must be one label for each row"
        raise ShapeError(op, reason, {"labels": y.shape, "rows": rows})
    if y.dtype.kind not in "biuf" or not (y == np.floor(y)).all():
        raise DataError(op, "labels must be whole numbers", {"received": y.dtype})
    labels = y.reshape(rows).astype(np.int64)
    if not (0 <= labels.min() and labels.max() < classes):
        raise DataError(
            op,
            f"labels must be from 0 to {classes - 1}",
            {"received": (labels.min(), labels.max())},
        )
    return labels
