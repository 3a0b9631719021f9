"""What a predictor says of rows: a mean, a spread, and sets or intervals at a level."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from exburn.core.checks import check_number
from exburn.errors.boundary import guard_methods


@guard_methods
@dataclasses.dataclass(frozen=True)
class Prediction:
    """Predictions of rows with their doubt; ``mean, sets = prediction`` takes it apart.

    Attributes:
        mean: Probabilities ``[rows, classes]``, or values ``[rows, …]``.
        sets: Booleans ``[rows, classes]``: the classes that a row may be of; or the
            bounds of an interval, ``[rows, …, 2]``.
        spread: How far the mean is uncertain, in its shape; ``None`` where the method
            does not say.

    Example:
        >>> p = np.array([[0.7, 0.2, 0.1]])
        >>> mean, sets = Prediction(p, likely_classes(p, 0.8))
        >>> sets.tolist()
        [[True, True, False]]
    """

    mean: np.ndarray
    sets: np.ndarray
    spread: np.ndarray | None = None

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.mean, self.sets))


class Forecast(NamedTuple):
    """A prediction before a level is chosen.

    Attributes:
        mean, spread: As of `Prediction`.
        outputs: Further arrays that the sets are made of, by name.
    """

    mean: np.ndarray
    spread: np.ndarray | None = None
    outputs: dict[str, np.ndarray] = {}


def check_level(op: str, level: float) -> float:
    """A share between 0 and 1, of which neither is one."""
    return check_number(op, "level", level, 0, 1, open_low=True, open_high=True)


def likely_classes(p: np.ndarray, level: float) -> np.ndarray:
    """The fewest classes whose probabilities add up to a level, as booleans.

    Args:
        p: Probabilities ``[…, classes]``.

    Example:
        >>> likely_classes(np.array([[0.5, 0.3, 0.2]]), 0.5).tolist()
        [[True, False, False]]
    """
    order = np.argsort(-p, axis=-1, kind="stable")
    ordered = np.take_along_axis(p, order, -1)
    before = np.cumsum(ordered, -1) - ordered
    sets = np.empty(p.shape, bool)
    np.put_along_axis(sets, order, before < level - 1e-12, -1)
    return sets
