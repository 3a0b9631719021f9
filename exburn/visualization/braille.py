"""Curves made of braille's dots, eight to a cell of the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from exburn.visualization.curves import Axis, Point

# Bits of a cell's dots by row and column, from U+2800 on.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800

Cell = tuple[str, int]  # what is printed, and the number of the curve (-1: none)


def draw_braille(
    curves: Sequence[Sequence[Point]],
    width: int,
    height: int,
    *,
    x: Axis,
    y: Axis,
    plain: bool = False,
) -> list[list[Cell]]:
    """Curves in rows of cells; where two meet, the later one gives the colour.

    Args:
        curves: Points of each, with rising x.
        width, height: In cells.
        x, y: Their axes.
        plain: Letters of ASCII instead of braille's.

    Example:
        >>> rising = [(0.0, 0.0), (1.0, 1.0)]
        >>> x = y = Axis([0.0, 1.0])
        >>> rows = draw_braille([rising], 4, 2, x=x, y=y)
        >>> ["".join(text for text, _ in row) for row in rows]
        ['⠀⠀⡠⠊', '⡠⠊⠀⠀']
    """
    across, down = (1, 1) if plain else (2, 4)
    columns, rows = width * across, height * down
    cells = [[0] * width for _ in range(height)]
    owners = [[-1] * width for _ in range(height)]
    for number, points in enumerate(curves):
        for column, low, high in _columns(points, columns, rows, x, y):
            for row in range(low, high + 1):
                line, place = row // down, column // across
                cells[line][place] |= _DOTS[row % down][column % across]
                owners[line][place] = number
    marks = "*+x"

    def text(bits: int, owner: int) -> str:
        if plain:
            return marks[owner % 3] if bits else " "
        return chr(_BLANK + bits)

    return [
        [(text(bits, owner), owner) for bits, owner in zip(line, own, strict=True)]
        for line, own in zip(cells, owners, strict=True)
    ]


def _columns(
    points: Sequence[Point], columns: int, rows: int, x: Axis, y: Axis
) -> list[tuple[int, int, int]]:
    """Of each column of dots the highest and the lowest row that the curve passes."""
    dots = [
        (
            min(max(round(x.place(px) * (columns - 1)), 0), columns - 1),
            min(max(round((1 - y.place(py)) * (rows - 1)), 0), rows - 1),
        )
        for px, py in points
        if math.isfinite(py) and (py > 0 or not y.logarithmic)
    ]
    spans: dict[int, tuple[int, int]] = {}

    def mark(column: int, *at: int) -> None:
        low, high = spans.get(column, (at[0], at[0]))
        spans[column] = min(low, *at), max(high, *at)

    for number, (column, row) in enumerate(dots):
        mark(column, row)
        if not number:
            continue
        before, old = dots[number - 1]
        last = old
        for between in range(before + 1, column + 1):
            now = round(old + (row - old) * (between - before) / (column - before))
            # A steep line goes on in this column where it ended in the one before.
            mark(between, last + (now > last) - (now < last), now)
            last = now
        if before == column:
            mark(column, old, row)
    return [(column, low, high) for column, (low, high) in spans.items()]
