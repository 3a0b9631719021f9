"""Cross-validation as lanes: the rows of each fold, and what scores of folds say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from exburn.core.checks import check_count, check_flag, check_number
from exburn.errors import ArgumentError, DataError
from exburn.errors.boundary import api_boundary, guard_methods

__all__ = ["ConfidenceInterval", "Folds", "confidence_interval", "fold_masks"]

OP = "folds"  # in errors


@guard_methods
@dataclasses.dataclass(frozen=True)
class Folds:
    """Splits of the rows into ``n`` parts, each validated on once.

    They are scikit-learn's: ``StratifiedKFold(n, shuffle=shuffle, random_state=seed)``
    where the targets are classes, else ``KFold`` with the same arguments.

    Args:
        n: How many, at least 2.
        stratified: Whether each part has every class in the same proportion; ``None``:
            if the targets are integers, booleans or text, one a row.
        shuffle: Whether rows are shuffled first; else parts are neighbours.
        seed: Of the shuffling.

    Raises:
        ArgumentError: An argument is out of range.

    Example:
        >>> train, validation = fold_masks(Folds(2, shuffle=False), rows=4)
        >>> validation.tolist()
        [[True, True, False, False], [False, False, True, True]]
    """

    n: int = 5
    stratified: bool | None = None
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self):
        check_count(OP, "folds", self.n, 2)
        check_flag(OP, "shuffle", self.shuffle)
        check_count(OP, "seed", self.seed, 0)
        if self.stratified is not None:
            check_flag(OP, "stratified", self.stratified)

    def parts(self, rows: int, y: Any = None) -> np.ndarray:
        """[rows] The fold that each row is validated in.

        Args:
            rows: How many rows there are.
            y: Their targets, which only stratified splits look at.

        Raises:
            DataError: There are fewer rows, or rows of a class, than folds.
        """
        rng = np.random.RandomState(self.seed)  # scikit-learn's
        if rows < self.n:
            raise DataError(OP, f"{self.n} folds need as many rows, received {rows}")
        labels = None if y is None else _labels(y, self.n, self.stratified)
        if labels is None and self.stratified:
            reason = "stratified folds need targets that are classes"
            raise DataError(OP, reason, hint="Folds(n, stratified=False).")
        if labels is None or self.stratified is False:
            return self._neighbours(rows, rng)
        return self._by_class(labels, rng)

    def _neighbours(self, rows: int, rng: np.random.RandomState) -> np.ndarray:
        order = np.arange(rows)
        if self.shuffle:
            rng.shuffle(order)
        parts = np.empty(rows, np.int64)
        for number, part in enumerate(np.array_split(order, self.n)):
            parts[part] = number
        return parts

    def _by_class(self, labels: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        # Labels dealt out in order of the classes give each fold its share of each.
        dealt = np.sort(labels)
        parts = np.empty(len(labels), np.int64)
        for label in range(labels.max() + 1):
            counts = [np.sum(dealt[i :: self.n] == label) for i in range(self.n)]
            own = np.repeat(np.arange(self.n), counts)
            if self.shuffle:
                rng.shuffle(own)
            parts[labels == label] = own
        return parts


def fold_masks(
    folds: Any, rows: int, y: Any = None, groups: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows that each fold trains on, and those that it is validated on.

    Args:
        folds: Their number; a :class:`Folds`; a splitter of scikit-learn; or pairs of
            indices ``(train, validation)``, as its ``split`` gives them.
        y: Their targets, for splits that look at them.
        groups: What a splitter keeps together, one for each row.

    Returns:
        Two arrays [folds, rows] of booleans.
    """
    rows = check_count(OP, "rows", rows)
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (rows,):
            reason = f"groups must have one entry for each of the {rows:,} rows"
            raise DataError(OP, reason, {"received": groups.shape})
        if not callable(getattr(folds, "split", None)):
            hint = "folds=GroupKFold(5), of scikit-learn."
            raise ArgumentError(OP, "only a splitter knows groups", hint=hint)
    pairs = _pairs(folds, rows, y, groups)
    if pairs is None:
        if not isinstance(folds, Folds):
            folds = Folds(check_count(OP, "folds", folds, 2))
        validation = folds.parts(rows, y) == np.arange(folds.n)[:, None]
        return ~validation, validation
    if not pairs or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
        reason = "folds must be a number, Folds(…), a splitter or pairs of indices"
        raise ArgumentError(OP, f"{reason}, received {folds!r}")
    train = np.stack([_mask(indices, rows, "train") for indices, _ in pairs])
    validation = np.stack([_mask(indices, rows, "validation") for _, indices in pairs])
    both = np.flatnonzero((train & validation).any(1))
    if len(both):
        reason = f"fold {both[0]} trains on rows that it is validated on"
        raise DataError(OP, reason)
    return train, validation


@guard_methods
@dataclasses.dataclass(frozen=True)
class ConfidenceInterval:
    """The mean of scores, and an interval that has the true mean with some confidence.

    Attributes:
        mean: Of the scores.
        low, high: The interval; NaN of a single score.
        std: The scores' standard deviation, with n - 1.
        n: How many there are.

    Example:
        >>> ConfidenceInterval(mean=0.9, low=0.88, high=0.92, std=0.01, n=5).mean
        0.9
    """

    mean: float
    low: float
    high: float
    std: float
    n: int

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ± {self.high - self.mean:.2g}"


@api_boundary
def confidence_interval(
    scores: Any, level: float = 0.95, folds: int | None = None
) -> ConfidenceInterval:
    """The mean of independent runs with Student's t interval.

    ``mean ± t s √(1/n)``, with t the quantile of n - 1 degrees of freedom. Scores of
    folds are not independent, since their training rows overlap: there it is
    ``mean ± t s √(1/n + 1/(folds - 1))``, which Nadeau and Bengio found about right.

    Args:
        scores: [n] scores of seeds, of folds, or of both.
        level: The confidence.
        folds: How many folds they come from, if they do.

    Raises:
        ArgumentError: There are no scores, or ``level`` is not between 0 and 1.

    Example:
        >>> found = confidence_interval([0.90, 0.92, 0.94])
        >>> round(found.low, 3), round(found.high, 3), str(found)
        (0.87, 0.97, '0.92 ± 0.05')

    Source: Student, *The Probable Error of a Mean*, 1908; Nadeau and Bengio,
    *Inference for the Generalization Error*, 2003.
    """
    check_number(OP, "level", level, 0, 1, open_low=True, open_high=True)
    values = np.asarray(scores, np.float64).ravel()  # [n]
    n = len(values)
    if not n:
        raise ArgumentError(OP, "an interval needs at least one score")
    mean = float(values.mean())
    if n < 2:
        return ConfidenceInterval(mean, math.nan, math.nan, math.nan, n)
    from scipy.special import stdtrit

    overlap = 1 / (check_count(OP, "folds", folds, 2) - 1) if folds is not None else 0.0
    std = float(values.std(ddof=1))
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * std * math.sqrt(1 / n + overlap)
    return ConfidenceInterval(mean, mean - half, mean + half, std, n)


def _labels(y: Any, folds: int, stratified: bool | None) -> np.ndarray | None:
    """[rows] Classes numbered as they appear; ``None`` where targets are none.

    With ``stratified`` one-hot targets are classes, too.
    """
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim == 2 and stratified:
        targets = targets.argmax(-1)
    if targets.ndim != 1 or targets.dtype.kind not in "biuOUS":
        return None
    _, first, inverse, counts = np.unique(
        targets, return_index=True, return_inverse=True, return_counts=True
    )
    if counts.max() < folds and stratified is None:
        return None  # counts or ids, not classes
    if counts.max() < folds:
        reason = f"no class has {folds} rows, as many as there are folds"
        raise DataError(OP, reason, {"most": int(counts.max())})
    places = np.argsort(np.argsort(first))  # [classes] in order of appearance
    return places[inverse]


def _pairs(folds: Any, rows: int, y: Any, groups: Any) -> list[Any] | None:
    """Training and validation rows of each fold, where they are given."""
    if isinstance(folds, Folds | str | bytes):
        return None
    if callable(getattr(folds, "split", None)):
        try:
            return list(folds.split(np.zeros((rows, 1)), y, groups))
        except ValueError as error:  # what scikit-learn raises of its arguments
            hint = "Pass groups=, one for each row." if groups is None else ""
            text = f"{type(folds).__name__} cannot split these rows: {error}"
            raise DataError(OP, text, hint=hint) from error
    return list(folds) if isinstance(folds, Iterable) else None


def _mask(indices: Any, rows: int, what: str) -> np.ndarray:
    """[rows] True at these rows: indices, or a mask already."""
    array = np.asarray(indices)
    if array.dtype == bool and array.shape == (rows,):
        mask = array.copy()
    elif array.ndim == 1 and array.dtype.kind in "iu":
        if len(array) and not (0 <= array.min() and array.max() < rows):
            reason = f"{what} rows of a fold must be from 0 to {rows - 1}"
            raise DataError(OP, reason, {"received": (array.min(), array.max())})
        mask = np.zeros(rows, bool)
        mask[array] = True
    else:
        reason = f"{what} rows of a fold must be indices, received {indices!r}"
        raise ArgumentError(OP, reason)
    if not mask.any():
        raise DataError(OP, f"a fold has no {what} rows")
    return mask
