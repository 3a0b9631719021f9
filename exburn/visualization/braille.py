"""Curves made of braille's dots, eight to a cell of the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exburn.visualization.curves import PlotAxis, Point, thin

# Bits of a cell's dots by row and column, from U+2800 on.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BLANK = 0x2800
_MARKS = "*+x"

Run = tuple[str, int]  # neighbouring cells of one curve, and its number (-1: none)


def draw_braille(
    curves: Sequence[Sequence[Point]],
    width: int,
    height: int,
    *,
    x: PlotAxis,
    y: PlotAxis,
    plain: bool = False,
) -> list[list[Run]]:
    """Curves as rows of text; where two meet, the later one gives the colour.

    Args:
        curves: Points of each, with rising x.

    Example:
        >>> rising = [(0.0, 0.0), (1.0, 1.0)]
        >>> x = y = PlotAxis([0.0, 1.0])
        >>> rows = draw_braille([rising], 4, 2, x=x, y=y)
        >>> ["".join(text for text, _ in row) for row in rows]
        ['⠀⠀⡠⠊', '⡠⠊⠀⠀']
    """
    down, across = (1, 1) if plain else _DOTS.shape
    weights = np.ones((1, 1), int) if plain else _DOTS
    cells = np.zeros((height, width), int)
    owners = np.full((height, width), -1)
    for number, points in enumerate(curves):
        dots = _draw_line(points, height * down, width * across, x, y)
        parts = dots.reshape(height, down, width, across)
        bits = np.einsum("hdwa,da->hw", parts, weights)
        owners[bits > 0] = number
        cells |= bits
    if plain:
        marks = np.array([ord(" "), *map(ord, _MARKS)])
        codes = marks[np.where(owners < 0, 0, 1 + owners % len(_MARKS))]
    else:
        codes = _BLANK + cells
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    return [
        _runs(text[row * width : (row + 1) * width], owners[row])
        for row in range(height)
    ]


def _draw_line(
    points: Sequence[Point], rows: int, columns: int, x: PlotAxis, y: PlotAxis
) -> np.ndarray:
    """The dots [rows, columns] that a curve passes, without gaps where it is steep."""
    dots = np.zeros((rows, columns), int)
    places = [
        ((columns - 1) * x.place(px), (rows - 1) * (1 - y.place(py)))
        for px, py in thin(points, 2 * columns)
        if py > 0 or not y.logarithmic
    ]
    if not places:
        return dots
    places = np.clip(np.round(places), 0, [columns - 1, rows - 1])
    moves = np.diff(places, axis=0)
    steps = np.maximum(np.abs(moves).max(axis=1), 1).astype(int)
    segments = np.repeat(np.arange(len(steps)), steps)
    passed = np.arange(len(segments)) - np.repeat(np.cumsum(steps) - steps, steps)
    parts = (passed / steps[segments])[:, None]
    line = np.vstack([places[segments] + moves[segments] * parts, places[-1]])
    at = np.floor(line + 0.5).astype(int)
    dots[at[:, 1], at[:, 0]] = 1
    return dots


def _runs(text: str, owners: np.ndarray) -> list[Run]:
    """A row's cells, those of one curve together, with the blank ones after them."""
    last = np.maximum.accumulate(np.where(owners >= 0, np.arange(len(owners)), -1))
    filled = np.where(last >= 0, owners[last], -1)
    ends = [*(np.flatnonzero(np.diff(filled)) + 1).tolist(), len(text)]
    begins = [0, *ends[:-1]]
    return [
        (text[begin:end], int(filled[begin]))
        for begin, end in zip(begins, ends, strict=True)
    ]
