"""``model.summary()``: layers, shapes, parameters and totals as a table."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from exburn.core.checks import check_count
from exburn.core.printing import (
    Plain,
    notebook_shell,
    one_line,
    page_text,
    shorten,
)
from exburn.core.short_names import ShortNames
from exburn.errors import ArgumentError
from exburn.module.outline import LayerRow, match_range, outline, totals

_LEAST = 4  # characters of the narrowest column


def summary(
    model: Any,
    *,
    line_length: int | None = None,
    positions: Any = None,
    print_fn: Callable[..., Any] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
) -> None:
    """Prints a model, one row for each layer: in a notebook as HTML, else as text.

    Before the model has shapes, they are ``?`` and layers are said to be unbuilt.
    Where a line is too short for all columns, a dtype that all layers share goes below
    the table, then names are shortened, and the connections are left out last.

    Args:
        model: The model.
        line_length: Width in characters; the terminal's by default.
        positions: Where each column ends, as a share of the line or in characters.
        print_fn: Called once with the whole text instead of printing.
        expand_nested: Whether the layers of nested models are listed too.
        show_trainable: Whether a column says which layers are trained.
        layer_range: Beginnings of names (or regular expressions) of the first and the
            last layer shown.

    Raises:
        ArgumentError: ``layer_range`` matches no layer, ``positions`` are not those of
            the columns, or ``line_length`` is too short for a table.
    """
    if line_length is not None:
        line_length = check_count("summary", "line_length", line_length)
    rows, flops = outline(
        model, lambda layer: expand_nested and getattr(layer, "is_model", False)
    )
    rows = _within(rows, layer_range)
    width = line_length or _width(print_fn)
    if positions is None:
        table, notes = _table(rows, show_trainable, line_length, width)
    else:
        table, notes = _place_columns(rows, show_trainable, width, positions)
    head = [Text.assemble("Model: ", (one_line(model.name), "bold")), *_axes(model)]
    foot = [Text(" " + line) for line in [*notes, *totals(model, flops)]]
    for line in (*head, *foot):
        line.no_wrap, line.overflow = True, "ellipsis"
    _show(Group(*head, table, *foot), width, print_fn)


def _axes(model: Any) -> list[Text]:
    """A line for the inputs and one for the outputs, where their axes have names."""
    lines = []
    for kind in ("input", "output"):
        named = getattr(model, f"{kind}_axes", None)
        if named is None or not any(n for axes in named for n in axes or ()):
            continue
        shapes = []
        for symbol, axes in zip(getattr(model, f"{kind}s"), named, strict=True):
            sizes = zip(symbol.shape, axes or [None] * len(symbol.shape), strict=True)
            parts = [
                str(size) if name is None else name + (f"={size}" if size else "")
                for size, name in sizes
            ]
            shapes.append(f"({', '.join(parts)})")
        text = f" {kind.title() + 's:':9}{', '.join(shapes)}"
        lines.append(Text(one_line(text, strip=False)))
    return lines


def _within(rows: list[LayerRow], layer_range: Any) -> list[LayerRow]:
    """The rows from a first to a last layer of the model, with what these hold."""
    if layer_range is None:
        return rows
    tops = [i for i, row in enumerate(rows) if not row.depth]
    first, last = match_range("summary", layer_range, [rows[i].name for i in tops])
    after = tops[last + 1] if last + 1 < len(tops) else len(rows)
    return rows[tops[first] : after]


# ------------------------------------------------------------------------ table
_SOURCES, _DTYPE = "Connected to", "dtype"


def _table(
    rows: list[LayerRow], show_trainable: bool, line_length: int | None, width: int
) -> tuple[Table, list[str]]:
    """The rows in columns that fit the width, and notes of columns that did not."""
    columns = _columns(rows, show_trainable)
    columns, widths, notes = _fitting(columns, width)
    if line_length is not None:  # the table is as wide as was asked for
        if _total(widths) > line_length:
            raise ArgumentError(
                "summary",
                f"line_length must be at least {_total(widths)} here, "
                f"received {line_length}",
            )
        widths[0] += line_length - _total(widths)
    return _draw(columns, widths), notes


def _place_columns(
    rows: list[LayerRow], show_trainable: bool, width: int, positions: Any
) -> tuple[Table, list[str]]:
    """The rows in columns that end where the caller says."""
    columns = _columns(rows, show_trainable)
    try:
        ends = [float(end) for end in positions]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "summary", f"positions must be numbers, received {positions!r}"
        ) from error
    shares = bool(ends) and ends[-1] <= 1
    if show_trainable and len(ends) in (len(columns) - 1, len(columns) - 2):
        # As in Keras, whose positions never tell of this column.
        last = 1.0 if shares else float(width)
        ends = [0.9 * end for end in ends] + [last]
    notes = []
    if len(ends) == len(columns) - 1:  # the columns of Keras
        dtypes = next(c for c in columns if c.title == _DTYPE)
        columns = [c for c in columns if c is not dtypes]
        notes = [dtypes.note()]
    if len(ends) != len(columns):
        raise ArgumentError(
            "summary",
            f"positions must tell where each of {len(columns)} columns ends, "
            f"received {len(ends)}",
            {"columns": ", ".join(column.title for column in columns)},
        )
    if shares:
        ends = [end * width for end in ends]
    edges = [int(end) for end in ends]
    # A column has a border and two blanks beside its text, and the last two borders.
    widths = [b - a - 3 for a, b in zip([0, *edges], edges, strict=False)]
    widths[-1] -= 1
    if min(widths) < _LEAST:
        raise ArgumentError(
            "summary",
            f"positions must leave each column {_LEAST + 4} characters",
            {"columns end at": ", ".join(map(str, edges))},
            hint="Let positions rise, or pass a larger line_length.",
        )
    return _draw(columns, widths), notes


@dataclasses.dataclass
class _Column:
    """A title, and the texts below it.

    Attributes:
        title: What stands above.
        cells: One for each row.
        least: The width to which the column may shrink while it is easy to read.
        shorten: Cuts a cell, the first argument is the row's number.
    """

    title: str
    cells: list[str]
    least: int
    shorten: Callable[[int, int], str]

    @property
    def natural(self) -> int:
        return max(map(cell_len, [self.title, *self.cells]))

    def common(self) -> tuple[str, list[int]]:
        """The text that most rows have, and the rows that have another."""
        counts = Counter(cell for cell in self.cells if cell)
        most = counts.most_common(1)[0][0] if counts else ""
        return most, [i for i, c in enumerate(self.cells) if c and c != most]

    def note(self) -> str:
        return f"{self.title}: {self.common()[0]}"


def _columns(rows: list[LayerRow], show_trainable: bool) -> list[_Column]:
    def plain(cells: list[str]) -> Callable[[int, int], str]:
        return lambda i, width: shorten(cells[i], width, tail=0)

    names = [one_line(row.name) for row in rows]
    short = ShortNames(names)
    labels = [_label(row, name) for row, name in zip(rows, names, strict=True)]
    shapes = [one_line(row.shape) for row in rows]
    params = [f"{row.params:,}" if row.built else "0 (unbuilt)" for row in rows]
    dtypes = [row.dtype for row in rows]
    columns = [
        _Column("Layer (type)", labels, 24, partial(_short_label, rows, names, short)),
        _Column("Output shape", shapes, 22, plain(shapes)),
        _Column("Param #", params, 12, plain(params)),
        _Column(_DTYPE, dtypes, 10, plain(dtypes)),
    ]
    if any(row.sources for row in rows):
        sources = [[one_line(name) for name in row.sources] for row in rows]
        cells = [", ".join(names) or "-" for names in sources]
        columns.append(
            _Column(_SOURCES, cells, 14, partial(_short_list, sources, short))
        )
    if show_trainable:
        cells = ["yes" if row.trainable else "no" for row in rows]
        columns.append(_Column("Trainable", cells, 9, plain(cells)))
    return columns


def _label(row: LayerRow, name: str) -> str:
    return f"{_indent(row)}{name} ({row.kind}){_frozen(row)}"


def _indent(row: LayerRow) -> str:
    return "  " * row.depth + ("└ " if row.depth else "")


def _frozen(row: LayerRow) -> str:
    return "" if row.trainable or not row.params else " [frozen]"


def _short_label(
    rows: list[LayerRow], names: list[str], short: ShortNames, i: int, width: int
) -> str:
    """A name and its type, of which the type gives way first."""
    row, name = rows[i], names[i]
    text = _label(row, name)
    if cell_len(text) <= width:
        return text
    before, after = _indent(row), _frozen(row)
    room = width - cell_len(before + after)
    if room < 6:  # deep inside, or all but no room
        return shorten(text, width, tail=0)
    kind = f" ({row.kind})"
    size = min(cell_len(name), max(room - cell_len(kind), -(-room * 3 // 5)))
    left = room - size - 3  # a blank and parentheses
    if left < 4:
        kind, size = "", min(cell_len(name), room)
    elif left < cell_len(row.kind):
        kind = f" ({shorten(row.kind, left, tail=0)})"
    return f"{before}{short.cut(name, size)}{kind}{after}"


def _short_list(sources: list[list[str]], short: ShortNames, i: int, width: int) -> str:
    """As many names as there is room for, and how many more there are."""
    names = sources[i] or ["-"]
    text = ", ".join(names)
    if cell_len(text) <= width:
        return text
    for many in range(len(names), 0, -1):
        more = f", +{len(names) - many}" if many < len(names) else ""
        room = width - cell_len(more) - 2 * (many - 1)
        if room >= 8 * many or many == 1:
            sizes = [cell_len(name) for name in names[:many]]
            while sum(sizes) > room:
                sizes[sizes.index(max(sizes))] -= 1
            parts = zip(names, sizes, strict=False)
            cut = [short.cut(name, size) for name, size in parts]
            return shorten(", ".join(cut) + more, width, tail=0)
    return text


def _fitting(
    columns: list[_Column], width: int
) -> tuple[list[_Column], list[int], list[str]]:
    """Columns and their widths on a page; notes of what is left out.

    A dtype that is one for all goes first. Then names give way, until they would be
    hard to read: then the connections go, and the other dtypes.
    """
    dtypes = next(column for column in columns if column.title == _DTYPE)
    usual, others = dtypes.common()
    orders = [[], [_SOURCES], [_SOURCES, _DTYPE]]
    if len(others) <= 3:
        orders = [[], [_DTYPE], [_DTYPE, _SOURCES]]
    stay, least = columns, []
    for number, left_out in enumerate(orders):
        stay = [column for column in columns if column.title not in left_out]
        natural = [column.natural for column in stay]
        # A column that says one thing is not worth a shortened name.
        alone = number == 0 and _DTYPE in orders[1]
        least = natural if alone else [min(c.natural, c.least) for c in stay]
        if _total(least) <= width:
            break
    else:
        least = [min(size, _LEAST) for size in least]
    widths = [column.natural for column in stay]
    while _total(widths) > width:
        shrinking = [i for i, size in enumerate(widths) if size > least[i]]
        if not shrinking:  # a terminal of a few characters: it has the last word
            break
        widths[max(shrinking, key=lambda i: widths[i] / (1.6 if i == 0 else 1))] -= 1
    return stay, widths, _notes(columns, stay, usual, others)


def _notes(
    columns: list[_Column], stay: list[_Column], usual: str, others: list[int]
) -> list[str]:
    """Notes on the columns that are left out, as far as these are short."""
    titles = [column.title for column in columns if column not in stay]
    notes = []
    if _DTYPE in titles and len(others) <= 3:
        titles.remove(_DTYPE)
        names, dtypes = columns[0].cells, columns[3].cells
        but = [f"{dtypes[i]} of {names[i].strip().split(' (')[0]}" for i in others]
        notes.append(f"dtype: {', '.join([usual or '-', *but])}")
    if titles:
        notes.append(f"Left out, since the line is short: {', '.join(titles)}")
    return notes


def _total(widths: list[int]) -> int:
    """The width of a table, with borders and blanks."""
    return sum(widths) + 3 * len(widths) + 1


def _draw(columns: list[_Column], widths: list[int]) -> Table:
    table = Table()
    for column, size in zip(columns, widths, strict=True):
        justify = "right" if column.title == "Param #" else "left"
        title = shorten(column.title, size, tail=0)
        table.add_column(title, justify=justify, width=size, no_wrap=True)
    for i in range(len(columns[0].cells)):
        cells = (c.shorten(i, size) for c, size in zip(columns, widths, strict=True))
        table.add_row(*map(Text, cells))
    return table


# ------------------------------------------------------------------------- show
def _width(print_fn: Any) -> int:
    """Width of a page: the terminal's, where it goes to one."""
    return 100 if print_fn is not None or notebook_shell() else Console().width


def _show(page: Group, width: int, print_fn: Any) -> None:
    if print_fn is not None:
        print_fn(page_text(page, width))
        return
    if notebook_shell():
        from IPython.display import display  # type: ignore[import-not-found]

        console = Console(
            force_jupyter=False, file=io.StringIO(), record=True, width=width
        )
        console.print(Plain(page))
        style = (
            "white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace"
        )
        html = console.export_html(
            inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
        )
        display({"text/html": html, "text/plain": page_text(page, width)}, raw=True)
        return
    Console(width=width).print(Plain(page))
