"""Scores of rows on other rows, from the gradients of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

Scores = tuple[np.ndarray | None, np.ndarray]


class RowFeatures(NamedTuple):
    """Numbers that stand for the gradients of rows.

    Attributes:
        values: ``[n, width]``.
        squares: ``[n]``: squares of the norms of the whole gradients.
    """

    values: np.ndarray
    squares: np.ndarray


class Part(NamedTuple):
    """A part of a gradient that is projected by itself.

    Attributes:
        width: Its numbers among the features.
        entries: Its numbers in the whole gradient.
    """

    width: int
    entries: int


def tracin(
    rows: RowFeatures, others: np.ndarray | None, damping: float, parts: list[Part]
) -> Scores:
    """Products of gradients ``[n, m]``, and squares of their norms ``[n]``."""
    return None if others is None else rows.values @ others.T, rows.squares


def trak(
    rows: RowFeatures, others: np.ndarray | None, damping: float, parts: list[Part]
) -> Scores:
    """Scores ``[n, m]`` by the damped inverse of second moments, and self-influence.

    Args:
        others: ``[m, width]``, or ``None`` for no scores.
        damping: As a part of the mean eigenvalue.

    Example:
        >>> rows = RowFeatures(np.eye(2), np.ones(2))
        >>> scores, own = trak(rows, np.eye(2), 1.0, [])
        >>> scores.tolist(), own.tolist()
        ([[0.5, 0.0], [0.0, 0.5]], [0.5, 0.5])
    """
    features, width = rows.values.astype(np.float64), rows.values.shape[1]
    moments = features.T @ features
    mean = np.trace(moments) / width
    moments[np.diag_indices(width)] += damping * (mean or 1.0)
    solved = np.linalg.solve(moments, features.T)  # [width, n]
    own = np.einsum("nw,wn->n", features, solved).astype(np.float32)
    scores = None if others is None else (others @ solved).T.astype(np.float32)
    return scores, own


def datainf(
    rows: RowFeatures, others: np.ndarray | None, damping: float, parts: list[Part]
) -> Scores:
    """Scores by a mean of inverses, one of each row's second moment, part by part.

    The inverse of a mean is taken for the mean of the inverses, which have a closed
    form; the error grows with the numbers of a part.

    Args:
        others: ``[m, width]``, or ``None`` for no scores.
        damping: Of each part, as a share of the mean square of its numbers.

    Example:
        >>> rows = RowFeatures(np.array([[2.0], [1.0]]), np.array([4.0, 1.0]))
        >>> scores, _ = datainf(rows, np.array([[1.0]]), 1.0, [Part(1, 1)])
        >>> [round(float(score), 3) for score in scores[:, 0]]
        [0.44, 0.22]
    """
    count = len(rows.values)
    own = np.zeros(count)
    scores = None if others is None else np.zeros((count, len(others)))
    ends = np.cumsum([part.width for part in parts])[:-1]
    split = np.split(rows.values.astype(np.float64), ends, axis=1)
    theirs = [None] * len(parts) if others is None else np.split(others, ends, axis=1)
    for part, gradients, other in zip(parts, split, theirs, strict=True):
        squares = (gradients**2).sum(1)
        level = damping * (squares.mean() / part.entries or 1.0)
        weights = 1 / (count * (level + squares))
        moments = (gradients * weights[:, None]).T @ gradients
        solved = (gradients - gradients @ moments) / level  # [n, width]
        own += (solved * gradients).sum(1)
        if scores is not None and other is not None:
            scores += solved @ other.T
    single = None if scores is None else scores.astype(np.float32)
    return single, own.astype(np.float32)


METHODS: Mapping[str, Callable[..., Scores]] = {
    "tracin": tracin,
    "trak": trak,
    "datainf": datainf,
}
