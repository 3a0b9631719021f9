"""Sets and intervals: how ill a target fits a prediction, and what sets hold.

Plain functions of arrays. A set holds every target whose score is at most that of the
``k``-th smallest of ``n`` other rows, ``k = ceil((n + 1) · level)``: if all rows are
exchangeable, a new one is among them with at least that probability.
"""

from __future__ import annotations

import math

import numpy as np

CLASS_SCORES = ("lac", "aps", "raps")
VALUE_SCORES = ("absolute", "normalized", "quantile")
_ROUNDING = 1e-9  # of (n + 1) · level, which 10 · 0.7 is 7 by


def rank_of(level: float, rows: int) -> int:
    """The rank of the score that bounds sets, from 1 on; ``rows + 1`` if none does.

    Example:
        >>> rank_of(0.9, 99), rank_of(0.9, 100), rank_of(0.9, 8)
        (90, 91, 9)
    """
    return math.ceil((rows + 1) * level - _ROUNDING)


def rows_needed(level: float) -> int:
    """The fewest rows whose scores give sets at a level.

    Example:
        >>> rows_needed(0.9), rows_needed(0.95), rows_needed(0.5)
        (9, 19, 1)
    """
    return math.ceil(level / (1 - level) - _ROUNDING)


def threshold(scores: np.ndarray, level: float) -> np.ndarray:
    """The bound of sets ``[…]`` by scores ``[rows, …]``, of which there are enough.

    Example:
        >>> float(threshold(np.array([3.0, 1.0, 2.0, 2.0]), 0.6))
        2.0
    """
    return np.sort(scores, axis=0)[rank_of(level, len(scores)) - 1]


def class_scores(
    p: np.ndarray,
    score: str,
    *,
    penalty: float = 0.0,
    free_classes: int = 0,
    draws: np.ndarray | None = None,
) -> np.ndarray:
    """The score of every class of each row, ``[rows, classes]`` like probabilities.

    Args:
        score: ``"lac"``, one less the probability; ``"aps"``, the probability of all
            classes that are as likely at least; ``"raps"``, with a penalty on rank.
        penalty, free_classes: Of ``"raps"``: what each rank beyond so many adds.
        draws: The share, for each row, of the class' own probability that is taken off.

    Example:
        >>> class_scores(np.array([[0.5, 0.25, 0.25]]), "aps").tolist()
        [[0.5, 0.75, 1.0]]
    """
    if score == "lac":
        return 1 - p
    order = np.argsort(-p, axis=1, kind="stable")
    ordered = np.take_along_axis(p, order, 1)
    sums = np.cumsum(ordered, 1)
    if draws is not None:
        sums = sums - draws[:, None] * ordered
    if score == "raps":
        ranks = np.arange(1, p.shape[1] + 1)
        sums = sums + penalty * np.maximum(ranks - free_classes, 0)
    scores = np.empty_like(sums)
    np.put_along_axis(scores, order, sums, 1)
    return scores


def row_draws(p: np.ndarray, seed: int) -> np.ndarray:
    """A number from 0 to 1 for each row, which its own probabilities determine.

    So a row's set does not depend on the rows beside it, and scores are a function of
    the row, as exchangeability needs it.

    Source: G. Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014,
    whose mixing of 64 bits this is.

    Example:
        >>> p = np.array([[0.5, 0.5], [0.4, 0.6], [0.5, 0.5]])
        >>> draws = row_draws(p, 0)
        >>> bool(draws[0] == draws[2] != draws[1])
        True
    """
    bits = np.ascontiguousarray(p, np.float64).view(np.uint64)
    mixed = np.full(len(p), seed, np.uint64)
    for column in bits.T:
        mixed = (mixed ^ column) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)) * 2.0**-53


def value_scores(
    y: np.ndarray, output: np.ndarray, score: str, spread: np.ndarray | None = None
) -> np.ndarray:
    """The score of the target of each row: its error, as a share of a spread if any.

    Of ``"quantile"`` it is how far the target is outside of the first and last entry on
    the outputs' last axis; negative inside.

    Example:
        >>> value_scores(np.array([3.0]), np.array([[1.0, 2.0]]), "quantile").tolist()
        [1.0]
    """
    if score == "quantile":
        return np.maximum(output[..., 0] - y, y - output[..., -1])
    errors = np.abs(y - output)
    return errors if spread is None else errors / spread


def intervals(
    output: np.ndarray, bound: np.ndarray, score: str, spread: np.ndarray | None = None
) -> np.ndarray:
    """The values whose score is at most a bound, ``[rows, …, 2]``.

    Example:
        >>> intervals(np.array([3.0]), np.array(0.5), "absolute").tolist()
        [[2.5, 3.5]]
    """
    if score == "quantile":
        return np.stack([output[..., 0] - bound, output[..., -1] + bound], -1)
    reach = bound if spread is None else bound * spread
    return np.stack([output - reach, output + reach], -1)
