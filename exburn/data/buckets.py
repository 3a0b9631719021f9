"""Which rows of unlike lengths are padded to which width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_BUCKETS = 6
"""Widths of one data set, and so programs of each kind, at most."""

_CANDIDATES = 128  # widths that are looked at
_GRID = 8  # wider ones than four times this are multiples of it
_FEWEST = 8  # batches of an epoch for each further width
_SAVES = 0.02  # of all positions: what a further width, a compilation, has to save


def choose_buckets(
    lengths: Sequence[np.ndarray], batch_size: int, most: int = MOST_BUCKETS
) -> list[tuple[np.ndarray, tuple[int, ...]]]:
    """The rows of each bucket, and their width on each axis, the narrowest first.

    Of all ways to cut the rows, in the order of their lengths, into ``most`` parts the
    one with the fewest positions to compute, those that fill up a part's last batch
    among them. A width more, which is a program more, has to save 2 % of them; a short
    epoch has fewer.

    Args:
        lengths: Of the rows, for each axis: ``[rows]``.
        batch_size: Rows of a batch.

    Example:
        >>> lengths = np.array([3, 9, 3, 9, 3, 9, 3, 9])
        >>> [(r.tolist(), w) for r, w in choose_buckets([lengths], 1)]
        [([0, 2, 4, 6], (3,)), ([1, 3, 5, 7], (9,))]
    """
    total = np.sum(lengths, axis=0)
    most = min(most, 1 + len(total) // (_FEWEST * batch_size))
    order = np.argsort(total, kind="stable")
    ends = _cuts(total[order])
    cost = _costs([v[order] for v in lengths], ends, batch_size)
    # best[n][j]: the least cost of the rows before ends[j] in n parts.
    best, back = [cost[0].copy()], [np.zeros(len(ends), int)]
    for _ in range(1, min(most, len(ends))):
        whole = best[-1][:, None] + cost[1:]  # [last part begins after, ends at]
        back.append(whole.argmin(0))
        best.append(whole.min(0))
    parts = 0
    for n in range(1, len(best)):
        if best[n][-1] < best[parts][-1] * (1 - _SAVES) ** (n - parts):
            parts = n
    edges = [len(ends) - 1]
    for n in range(parts, 0, -1):
        edges.append(int(back[n][edges[-1]]))
    stops = [int(ends[i]) for i in reversed(edges)]
    buckets, start = [], 0
    longest = tuple(int(v.max()) for v in lengths)
    for stop in stops:
        rows = np.sort(order[start:stop])
        widths = tuple(int(_width(v[rows].max())) for v in lengths)
        widths = tuple(map(min, widths, longest))
        buckets.append((rows, widths))
        start = stop
    return buckets


def _width(length: Any) -> Any:
    """Lengths, rounded up where tiles of hardware are narrower than the rounding."""
    return np.where(length <= 4 * _GRID, length, -(-length // _GRID) * _GRID)


def _cuts(total: np.ndarray) -> np.ndarray:
    """Numbers of rows after which a bucket may end: where the length changes."""
    ends = np.append(np.flatnonzero(np.diff(total)) + 1, len(total))
    if len(ends) > _CANDIDATES:
        ends = ends[np.linspace(0, len(ends) - 1, _CANDIDATES).round().astype(int)]
    return ends


def _costs(
    lengths: Sequence[np.ndarray], ends: np.ndarray, batch_size: int
) -> np.ndarray:
    """Positions of a bucket by its first and last cut: ``[begin, end]``."""
    begins = np.concatenate([[0], ends])
    cost = np.full((len(begins), len(ends)), math.inf)
    # Of the rows between neighbouring cuts.
    widest = [_width(np.maximum.reduceat(v, begins[:-1])) for v in lengths]
    for i, begin in enumerate(begins[:-1]):
        width = sum(np.maximum.accumulate(w[i:]) for w in widest)
        rows = ends[i:] - begin
        rows = np.where(rows < batch_size, rows, -(-rows // batch_size) * batch_size)
        cost[i, i:] = rows * width
    return cost
