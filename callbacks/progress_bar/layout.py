"""Rows of the progress: one for each epoch, whose values stand below one another."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from exburn.core.printing import one_line, shorten
from exburn.core.short_names import ShortNames

BARS = (20, 16, 12, 8)  # cells of a bar, the first that fits
_TIME = 5  # cells of a time
_RATE = 16  # cells that are kept free for the speed
_NUMBER = 6  # cells of a number
_NARROW = 9  # cells of a column, where there are more than fit into one row
_INDENT = 4
_UNLIMITED = 1 << 20


def cells(text: str) -> int:
    """The columns that a text takes: a Chinese character has two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


@dataclass(frozen=True)
class Line:
    """The progress of one epoch, of `evaluate`, or of `predict`.

    Attributes:
        label: What runs: `"Epoch 3/10"`, `"Evaluate"`, `"Predict"`.
        width: Width for the label, so that the bars of a run stand in one column.
        step: Batches done.
        total: Batches to do, None if unknown.
        count: How far that is, as text.
        time: How long it took so far.
        metrics: Names and values of the logs.
        fields: Texts about what goes on, the most important first: `"ETA 3s"`.
        epoch: The epoch in a column of its own: `"3/10"`; empty for other lines.
        compiled: How long programs were compiled since the last line.
        speed: Samples or steps in a second.
    """

    label: str
    width: int
    step: int
    total: int | None
    count: str
    time: str
    metrics: tuple[tuple[str, Any], ...] = ()
    fields: tuple[str, ...] = ()
    epoch: str = ""
    compiled: str = ""
    speed: str = ""

    @property
    def head(self) -> str:
        """The label, as wide as those of the other lines of the run."""
        return one_line(self.label).ljust(self.width)


@dataclass(frozen=True)
class ProgressRow:
    """A row to draw: a head, a bar of so many cells for a line, and a text."""

    head: str
    text: str
    bar: int = 0
    line: Line | None = None


class Layout:
    """Lays out the lines of a run, each in one row that fits the width.

    Where a row would be too long, the bar gets shorter, then the speed is left out, and
    the bar. If that is not enough, the epochs become a table: their names stand above
    the values, once, and in as many rows as they need.

    Args:
        width: Columns; `None` for files, whose lines have no end.
        table: Whether it is a table at any width.
        separator: What stands between two fields.
        bars: Whether there are bars.
        number: Writes a value.

    Attributes:
        table: Whether it is a table by now.
    """

    def __init__(
        self,
        width: int | None,
        *,
        table: bool = False,
        separator: str = " · ",
        bars: bool = True,
        number: Callable[[Any], str] | None = None,
    ):
        self.width = _UNLIMITED if width is None else width
        self.table = table
        self._separator, self._bars = separator, bars
        self._number = number or number_cell
        self._names: dict[str, int] = {}  # of values, and the cells that they take
        self._labels: dict[str, str] = {}
        self._fitted: tuple[Any, tuple[int, bool] | None] | None = None
        self._header: Any = None  # the columns whose names are written above
        self._kept: tuple[Any, _Columns] | None = None

    def resize(self, width: int) -> None:
        """Takes another width, as when a terminal's window changes."""
        self.width = width

    def restart(self) -> None:
        """Begins anew: the next table needs a header."""
        self._header = None

    def expect(self, names: Iterable[str]) -> None:
        """Keeps places for values that the lines will have."""
        for name in names:
            self._names.setdefault(name, _NUMBER)

    def learn(self, line: Line) -> None:
        """Takes in names and widths, and whether a table is needed."""
        for name, value in line.metrics:
            least = self._names.get(name, _NUMBER)
            self._names[name] = max(least, cells(self.text(value)))
        if line.epoch and not self.table:
            self.table = self._fit(line) is None

    @property
    def names(self) -> list[str]:
        """The names of all values, in their order."""
        return list(self._names)

    def text(self, value: Any) -> str:
        """A value as it is written."""
        return one_line(self._number(value))

    def live(self, line: Line) -> ProgressRow:
        """The row of a line that will change: as much as there is room for."""
        return self._row(line, live=True)

    def finish_line(self, line: Line) -> list[ProgressRow]:
        """The rows of a line that stays, with all of its values."""
        self.learn(line)
        if line.epoch and self.table:
            rows = self._table_rows(line)
            # Only in a terminal of a few columns anything is cut here.
            return [ProgressRow("", shorten(row, self.width, tail=0)) for row in rows]
        if self._fit(line) is not None:
            return [self._row(line)]
        return self._broken(line)

    # ---------------------------------------------------------------- one row
    def _fit(self, line: Line, live: bool = False) -> tuple[int, bool] | None:
        """The bar's cells, and whether the count stands beside it; None if too long."""
        sizes = dict(self._names) if line.epoch else {}
        if not (live and sizes):  # a live line has the shape of those that stay
            for name, value in line.metrics:
                if name not in sizes:
                    sizes[name] = cells(self.text(value))
        room = self.width - cells(self._head(line))
        bars = self._bars and bool(line.total)
        key = room, len(line.count), bars, *sizes.items()
        if self._fitted is None or self._fitted[0] != key:
            self._fitted = key, self._find_shape(line.count, sizes, room, bars)
        return self._fitted[1]

    def _find_shape(
        self, count: str, sizes: dict[str, int], room: int, has_bar: bool
    ) -> tuple[int, bool] | None:
        values = [f"{self._label(name)}{'0' * size}" for name, size in sizes.items()]
        for spare, bars, counted in (
            (_RATE, BARS, True),
            (0, BARS[-2:], True),
            (_RATE, (0,), True),
            (0, (0,), True),
            (0, (0,), False),
        ):
            parts = [count] if counted else []
            parts += ["0" * _TIME, *values, *(["0" * spare] if spare else [])]
            size = cells(self._separator.join(parts))
            for bar in bars if has_bar else (0,):
                if (bar + 2 if bar else 0) + size <= room:
                    return bar, counted
        return None

    def _head(self, line: Line) -> str:
        return line.head + ("  " if self._bars else self._separator)

    def _row(self, line: Line, live: bool = False) -> ProgressRow:
        shape = self._fit(line, live)
        head = self._head(line)
        if live and (shape is None or not line.epoch):
            shape = (BARS[-1] if self._bars and line.total else 0, True)
        assert shape is not None
        bar, counted = shape
        bar = bar if line.total else 0
        room = self.width - cells(head) - (bar + 2 if bar else 0)
        if room < cells(line.count) + _TIME + 3 and live:  # a few columns
            return ProgressRow("", shorten(f"{head}{line.count}", self.width, tail=0))
        parts = [line.count] if counted else []
        if line.time:
            parts.append(line.time.rjust(_TIME) if line.epoch else line.time)
        values = self._values(line)
        fields = [f for f in (*line.fields, line.compiled, line.speed) if f]
        if live:  # what goes on is shown before what was reached
            first = line.fields[: self._fits([*parts, *line.fields[:1]], room)]
            while values and not self._fits([*parts, *values, *first], room):
                values.pop()
        while fields and not self._fits([*parts, *values, *fields], room):
            fields.pop()
        text = self._separator.join([*parts, *values, *fields])
        return ProgressRow(head, text.rstrip(), bar, line)

    def _fits(self, parts: Sequence[str], room: int) -> bool:
        return cells(self._separator.join(parts).rstrip()) <= room

    def _values(self, line: Line) -> list[str]:
        """Each name with its value; blanks for those that this line has not."""
        logs = dict(line.metrics)
        if not line.epoch:
            return [self._label(name) + self.text(v) for name, v in line.metrics]
        texts = []
        for name, size in self._names.items():
            label = self._label(name)
            if name in logs:
                texts.append(label + _pad(self.text(logs[name]), size))
            else:
                texts.append(" " * (cells(label) + size))
        while texts and not texts[-1].strip():
            texts.pop()
        new = [name for name in logs if name not in self._names]
        return texts + [self._label(name) + self.text(logs[name]) for name in new]

    def _label(self, name: str) -> str:
        label = self._labels.get(name)
        if label is None:
            label = self._labels[name] = f"{one_line(name)}: "
        return label

    def _broken(self, line: Line) -> list[ProgressRow]:
        """Rows of a line that stands alone, broken between its fields."""
        head, rows = self._head(line), [""]
        room = self.width - cells(head)
        fields = [line.count, line.time, *self._values(line)]
        fields += [*line.fields, line.compiled, line.speed]
        for field in filter(None, fields):
            longer = f"{rows[-1]}{self._separator}{field}" if rows[-1] else field
            if cells(longer) <= room or not rows[-1]:
                rows[-1] = longer
            else:
                rows.append(shorten(field, self.width - _INDENT))
                room = self.width - _INDENT
        return [
            ProgressRow(head, rows[0]),
            *(ProgressRow(" " * _INDENT, row) for row in rows[1:]),
        ]

    # ------------------------------------------------------------------ table
    def _table_rows(self, line: Line) -> list[str]:
        first = max(cells("epoch"), line.width - cells("Epoch "), cells(line.epoch))
        columns = self._columns(self.width - first - 2 - _TIME)
        logs = {name: self.text(value) for name, value in line.metrics}
        rows = []
        if self._header != (first, columns):
            self._header = first, columns
            rows += _grid("epoch", first, columns.titles, columns, "time")
        row, *further = _grid(line.epoch, first, logs, columns, line.time)
        if line.compiled and cells(f"{row}  {line.compiled}") <= self.width:
            row += f"  {line.compiled}"
        return [*rows, row, *further]

    def _columns(self, room: int) -> _Columns:
        """The columns of a table; what takes time to find out is kept."""
        key = room, tuple(self._names.items())
        if self._kept is None or self._kept[0] != key:
            self._kept = key, self._make_columns(room)
        return self._kept[1]

    def _make_columns(self, room: int) -> _Columns:
        shown = {name: one_line(name) for name in self._names}
        short = ShortNames(list(shown.values()))
        most = max(map(cells, shown.values()), default=0)
        least = max(self._names.values(), default=_NUMBER)
        # The longest names that let all stand in one row, unless they say too little.
        floor = max(least, min(most, _NARROW))
        sizes = range(max(min(most, room - 2), floor), floor - 1, -1)
        # Rising, so that the last that fits is found by halving.
        rising = sizes[::-1]
        fitting = bisect.bisect_right(
            rising, room, key=lambda size: self._needs(short, size)
        )
        if fitting:
            size = rising[fitting - 1]
            titles = {name: short.cut(text, size) for name, text in shown.items()}
            widths = {n: max(cells(titles[n]), self._names[n]) for n in shown}
            return _Columns(titles, widths, [list(shown)])
        fewest = len(_groups(list(shown), room, floor))
        size = next(n for n in sizes if len(_groups(list(shown), room, n)) == fewest)
        short = ShortNames(
            [shown[name] for name in shown if not _is_beside(name, shown)]
        )
        titles = {
            name: "val" if _is_beside(name, shown) else short.cut(text, size)
            for name, text in shown.items()
        }
        groups = _groups(list(shown), room, size)
        return _Columns(titles, dict.fromkeys(shown, size), groups)

    def _needs(self, short: ShortNames, size: int) -> int:
        """The cells of one row of values whose names are cut to a size."""
        return sum(
            2 + max(cells(short.cut(one_line(name), size)), least)
            for name, least in self._names.items()
        )


@dataclass
class _Columns:
    """Columns of a table: titles, widths in cells, and the names of each row."""

    titles: dict[str, str]
    widths: dict[str, int]
    groups: list[list[str]]


def _is_beside(name: str, names: Iterable[str]) -> bool:
    """Tells whether it is the validation's value of another one."""
    return name.startswith("val_") and name.removeprefix("val_") in names


def _groups(names: list[str], room: int, size: int) -> list[list[str]]:
    """The names in rows of columns of one size.

    The values of the validation have rows of their own, below those of training.
    """
    most = max(room // (size + 2), 1)
    there = set(names)
    own = [name for name in names if f"val_{name}" in there]
    paired = {*own, *(f"val_{name}" for name in own)}
    others = [name for name in names if name not in paired]
    groups = []
    for group in _even(own, most):
        groups += [group, [f"val_{name}" for name in group]]
    return groups + _even(others, most)


def _even(names: list[str], most: int) -> list[list[str]]:
    """The names in as few groups as need be, about equally many in each."""
    each = -(-len(names) // max(-(-len(names) // most), 1)) or 1
    return [names[i : i + each] for i in range(0, len(names), each)]


def _grid(
    start: str, first: int, texts: dict[str, str], columns: _Columns, end: str
) -> list[str]:
    """A row for each group, in columns; the first has what starts and ends a line."""
    rows = []
    for number, group in enumerate(columns.groups or [[]]):
        parts = [_pad("" if number else start, first, right=True)]
        for name in group:
            text, width = texts.get(name, ""), columns.widths[name]
            parts.append(_pad(text, width, right=True))
        if not number:
            parts.append(_pad(end, _TIME, right=True))
        rows.append("  ".join(parts).rstrip())
    return rows


def _pad(text: str, width: int, right: bool = False) -> str:
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def number_cell(value: Any) -> str:
    """A number in six cells, so that the next one stands below it.

    Example:
        >>> [number_cell(v) for v in (0.25, 12.3456, -0.5, 1e-4, 12345678.0)]
        ['0.2500', '12.346', '-0.500', '1.0e-4', '1.23e7']
    """
    if not isinstance(value, int | float):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(float(value))
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        for digits in range(4, -1, -1):
            if len(text := f"{value:.{digits}f}") <= _NUMBER:
                return text
    text = ""
    for digits in (2, 1, 0):
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
        if len(text) <= _NUMBER:
            break
    return text
