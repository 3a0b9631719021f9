"""Curves of numbers over time: thinned, scaled, and with round numbers on the axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

Point = tuple[float, float]
_LEAST_SPAN = 1e-290  # hundredths of it are still ordinary numbers
_LOGARITHMIC = 50.0  # largest over smallest, from which on an axis is logarithmic


@dataclasses.dataclass(frozen=True)
class Curve:
    """One line of a panel.

    Attributes:
        points: Pairs (x, y) with rising x; those that are not finite are gaps.
    """

    name: str
    points: Sequence[Point]
    best: Point | None = None


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves with the same axes."""

    title: str
    curves: tuple[Curve, ...]


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many of the points, peaks and valleys among them.

    Of each of ``most // 2`` pieces of equal length the smallest and the largest stay.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) <= most:
        return finite
    count = max(most // 2 - 1, 1)
    inner, extremes = finite[1:-1], [finite[0]]
    for number in range(count):
        piece = inner[number * len(inner) // count : (number + 1) * len(inner) // count]
        ends = {min(piece, key=_height), max(piece, key=_height)}
        extremes += sorted(ends)
    return [*extremes, finite[-1]]


def _height(point: Point) -> float:
    return point[1]


class PlotAxis:
    """Places of values between 0 and 1, linear or logarithmic.

    Args:
        logarithmic: Whether to divide by decades; ``None``: where all are positive and
            the largest is fifty times the smallest.
    """

    def __init__(self, values: Iterable[float], logarithmic: bool | None = None):
        finite = [value for value in values if math.isfinite(value)]
        self.low, self.high = min(finite, default=0.0), max(finite, default=1.0)
        if logarithmic is None:
            logarithmic = self.low > 0 and self.high / self.low > _LOGARITHMIC
        self.logarithmic = logarithmic
        self._one = self.high - self.low < _LEAST_SPAN
        if self._one:
            pad = abs(self.low) * 0.1
            pad = pad if pad > _LEAST_SPAN else 0.5
            self.low, self.high = self.low - pad, self.high + pad

    def place(self, value: float) -> float:
        """The place of a value: 0 at the low end, 1 at the high one."""
        # Of halves: the distance between two numbers may be beyond all numbers.
        low, high = self._scale(self.low) / 2, self._scale(self.high) / 2
        return (self._scale(value) / 2 - low) / (high - low)

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def ticks(self, most: int, *, whole: bool = False) -> list[float]:
        """Round values between the ends: two at least, and about as many as asked for.

        Args:
            most: As many, or one more.
            whole: Whole numbers alone, as epochs are, if two fit, or the one value is.
        """
        if self.logarithmic:
            return self._decades(most)
        span = self.high - self.low
        if span == math.inf:
            return [self.low, self.high]
        size = 10.0 ** (math.floor(math.log10(span)) - 2)
        ticks: list[float] = []
        for step in (size * 10.0**n * f for n in range(4) for f in (1, 2, 2.5, 5)):
            if whole and step != round(step):
                continue
            first = math.ceil(self.low / step - 1e-9)
            count = math.floor(self.high / step + 1e-9) - first + 1
            if count <= most + 1:
                digits = 3 - math.floor(math.log10(step))
                ticks = [round((first + n) * step, digits) for n in range(count)]
                break
        few = len(ticks) < 2 and not (self._one and ticks)
        return self.ticks(most) if whole and few else ticks

    def _decades(self, most: int) -> list[float]:
        """Powers of ten; between few of them other round numbers, too."""
        first, last = (math.floor(self._scale(end)) for end in (self.low, self.high))
        for parts in ((1, 2, 5), (1, 3), (1,)):
            places = range(first, last + 1)
            values = [float(f"{p}e{n}") for n in places for p in parts]
            ticks = [v for v in values if self.low <= v <= self.high]
            if len(ticks) <= most + 1:
                return ticks
        return ticks[:: -(-len(ticks) // most)]


def number_text(value: float) -> str:
    """A number for an axis or a table: at most four digits that say something.

    Example:
        >>> [number_text(v) for v in (0.123456, 3.0, 74050.5, 12345678.0)]
        ['0.1235', '3', '74,050', '12.35M']
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    if value == round(value) or abs(value) >= 10_000:
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"
    return f"{value:.4g}"
