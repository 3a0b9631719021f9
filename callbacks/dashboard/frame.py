"""A dashboard as lines of text that fill a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from exburn.callbacks.dashboard.state import (
    DashboardState,
    duration_text,
    rate_text,
    value_text,
)
from exburn.core.printing import shorten
from exburn.visualization.braille import draw_braille
from exburn.visualization.curves import Panel, PlotAxis, number_text

_COLORS = ("cyan", "yellow", "green")
_LEAST_WIDTH, _LEAST_HEIGHT = 34, 6  # of a panel
_SCALE = 9  # cells for the numbers at the left of a panel
_BOXES = {False: "╭─╮│╰╯━─·…", True: "+-+|++=-|."}

TABS = ("curves", "epochs", "output")

Line = list[Segment]


def draw_frame(
    state: DashboardState,
    width: int,
    height: int,
    *,
    tab: str | None = None,
    plain: bool = False,
) -> list[Line]:
    """The lines of a dashboard, each exactly as wide as asked for.

    Args:
        state: What is shown.
        width, height: In cells.
        tab: One of ``TABS``, which a line names; by default the curves, without it.
        plain: ASCII alone.
    """
    width, height = max(width, 20), max(height, 4)
    head = _head(state, width, plain)[:height]
    if tab is not None and len(head) < height:
        head.append(_tabs(tab, width))
    room = height - len(head)
    if tab in ("epochs", "output"):
        rows = _epochs(state, width) if tab == "epochs" else _output(state, width)
        fixed = 1 if tab == "epochs" else 0  # the names of the columns
        latest = rows[fixed:][-max(room - fixed, 1) :]
        shown = [*rows[:fixed], *latest][:room]
        return [*head, *shown, *(_line(width) for _ in range(room - len(shown)))]
    panels = state.panels()
    count = min(len(state.messages), max(room // 8, 1)) if room > 8 else 0
    said = [_line(width, (m, "bright_black")) for m in list(state.messages)[-count:]]
    said = said if count else []
    body = _grid(panels, width, room - len(said), plain, state)
    return [*head, *body, *said]


def _style(name: str) -> Style:
    return Style.parse(name) if name else Style.null()


def _line(width: int, *parts: tuple[str, str]) -> Line:
    """Parts (text, style) in a line that is cut or filled to the width."""
    line, left = [], width
    for text, style in parts:
        text = _clean(text)
        if cell_len(text) > left:
            text = set_cell_size(text, left)
        if text:
            line.append(Segment(text, _style(style)))
            left -= cell_len(text)
    if left:
        line.append(Segment(" " * left))
    return line


def _clean(text: str) -> str:
    """Text without what would move the cursor."""
    text = text.expandtabs(4)
    return text if text.isprintable() else "".join(c for c in text if c.isprintable())


def _head(state: DashboardState, width: int, plain: bool) -> list[Line]:
    dot = f" {_BOXES[plain][8]} "
    color = {"failed": "bold red", "interrupted": "bold yellow"}.get(
        state.phase, "bold green" if state.ended is not None else "cyan"
    )
    right = f"{state.phase}{dot}{duration_text(state.elapsed_time)} "
    title = f" {_clean(state.title)}"
    room = max(width - cell_len(right), 0)
    title = set_cell_size(_shorten(title, room - 1, plain), room)
    lines = [_line(width, (title, "bold"), (right, color))]
    lines.append(_progress(state, width, plain))
    facts = []
    if (rate := state.rate) is not None:
        facts.append(f"{rate_text(rate)} {state.unit}/s")
    if state.data_wait is not None and state.data_wait >= 0.05:
        facts.append(f"data wait {state.data_wait:.0%}")
    facts += state.gauges
    device = [state.device] if state.device else []
    lines += _wrap([*device, *facts], width, dot)
    names = [name for name in state.logs if not name.startswith("val_")]
    values = []
    for name in names:
        text = f"{name} {value_text(state.logs[name])}"
        if f"val_{name}" in state.logs:
            text += f" (val {value_text(state.logs[f'val_{name}'])})"
        values.append(text)
    lines += _wrap(values, width, dot, "")[:2]
    return lines


def _tabs(chosen: str, width: int) -> Line:
    """The names of the tabs, with the keys for them."""
    parts = [
        (f" {number} {name} ", "reverse" if name == chosen else "bright_black")
        for number, name in enumerate(TABS, 1)
    ]
    return _line(width, (" ", ""), *parts, ("  Tab: next", "bright_black"))


def _epochs(state: DashboardState, width: int) -> list[Line]:
    """A table of what the epochs logged; the names are its first line."""
    names, rows = state.table()
    widths = [max(cell_len(_clean(name)), 9) + 2 for name in names]
    while sum(widths) + 7 > width and len(widths) > 1:
        widths.pop()
    lines = [("epoch", *names), *((f"{epoch:g}", *row) for epoch, row in rows)]
    return [
        _line(
            width,
            *(
                (" " * max(room - cell_len(_clean(text)), 0) + text, style)
                for text, room in zip(line, (7, *widths), strict=False)
            ),
        )
        for style, line in zip(["bold"] + [""] * len(rows), lines, strict=True)
    ]


def _output(state: DashboardState, width: int) -> list[Line]:
    """The lines that were printed."""
    return [_line(width, (" " + message, "")) for message in state.messages]


def _wrap(
    texts: Sequence[str], width: int, dot: str, style: str = "bright_black"
) -> list[Line]:
    """Texts side by side, in as many lines as they need."""
    lines: list[str] = []
    for text in texts:
        if lines and cell_len(lines[-1] + dot + text) < width:
            lines[-1] += dot + text
        else:
            lines.append(" " + text)
    return [_line(width, (line, style)) for line in lines]


def _progress(state: DashboardState, width: int, plain: bool) -> Line:
    done_mark, left_mark = _BOXES[plain][6], _BOXES[plain][7]
    number = state.epoch + (state.ended is None and state.phase != "starting")
    number = min(number, state.epochs or number)
    left = f" Epoch {number}" + (f"/{state.epochs}" if state.epochs else "") + " "
    right = ""
    if state.step:
        total = f"/{state.steps}" if state.steps else " steps"
        right += f" {state.step}{total}"
    if (eta := state.eta) is not None:
        right += f" ETA {duration_text(eta)}"
    right = f"{right} " if right else " "
    room = width - len(left) - len(right)
    if not state.epochs or room < 4:
        return _line(width, (left, "bold"), (right, ""))
    done = min(int(room * state.share + 1e-9), room)
    color = "green" if state.share >= 1 else "cyan"
    bar = (done_mark * done, color), (left_mark * (room - done), "bright_black")
    return _line(width, (left, "bold"), *bar, (right, ""))


def _grid(
    panels: list[Panel], width: int, height: int, plain: bool, state: DashboardState
) -> list[Line]:
    """Panels in rows that fill the room."""
    if height < _LEAST_HEIGHT or not panels:
        return [_line(width) for _ in range(max(height, 0))]
    # Wide enough for the longest title, in a box.
    longest = max(cell_len(_title(panel)) for panel in panels) + 4
    most_columns = max(width // max(_LEAST_WIDTH, longest), 1)
    most_rows = max(height // _LEAST_HEIGHT, 1)
    # As few rows as the panels need: wide curves say more than high ones.
    columns = min(most_columns, len(panels), 3)
    rows = min(-(-len(panels) // columns), most_rows)
    while rows < most_rows and height // rows > 18 and columns > 1:
        columns -= 1
        rows = min(-(-len(panels) // columns), most_rows)
    shown = panels[: rows * columns]
    lines: list[Line] = []
    for row in range(rows):
        tall = height * (row + 1) // rows - height * row // rows
        part = shown[row * columns : (row + 1) * columns]
        drawn = []
        for column in range(len(part)):
            wide = width * (column + 1) // len(part) - width * column // len(part)
            drawn.append(_panel(part[column], wide, tall, plain))
        lines += [
            [segment for one in drawn for segment in one[number]]
            for number in range(tall)
        ]
    return lines


def _panel(panel: Panel, width: int, height: int, plain: bool) -> list[Line]:
    """A box with curves in it, and numbers at its edges."""
    box = _BOXES[plain]
    inner, tall = max(width - 3 - _SCALE, 1), height - 2
    points = [curve.points for curve in panel.curves]
    x = PlotAxis((px for one in points for px, _ in one), logarithmic=False)
    y = PlotAxis(py for one in points for _, py in one)
    cells = draw_braille(points, inner, tall, x=x, y=y, plain=plain)
    title = f" {_shorten(_title(panel), width - 5, plain)} "
    values = [
        (f"{curve.name} {value_text(float(curve.points[-1][1]))} ".lstrip(), number)
        for number, curve in enumerate(panel.curves)
        if curve.points
    ]
    legend = [(text, _COLORS[number % 3]) for text, number in values]
    room = sum(cell_len(text) for text, _ in legend)
    # What does not fit beside the title stands in the line below the curves.
    beside = cell_len(title) + room < width - 4
    parts = [(box[0] + box[1], "bright_black"), (title, "bold")]
    parts += legend if beside else []
    used = sum(cell_len(text) for text, _ in parts)
    parts.append((box[1] * max(width - used - 1, 0) + box[2], "bright_black"))
    lines = [_line(width, *parts)]
    ticks = {0: y.high, tall - 1: y.low}
    if tall >= 7 and not y.logarithmic:
        ticks[(tall - 1) // 2] = (y.high + y.low) / 2
    for number, row in enumerate(cells):
        text = number_text(ticks[number]) if number in ticks else ""
        scale = text[: _SCALE - 1].rjust(_SCALE - 1) + " "
        line = [
            Segment(box[3], _style("bright_black")),
            Segment(scale, _style("bright_black")),
            *_segments(row),
            Segment(" " + box[3], _style("bright_black")),
        ]
        lines.append(line)
    low, high = f" {number_text(x.low)} ", f" {number_text(x.high)} "
    gap = max(inner - len(low) - len(high) - 6, 0)
    below = [] if beside or room >= gap else [(" ", ""), *legend]
    rule = box[1] * (gap - sum(cell_len(text) for text, _ in below))
    start, end = f"{box[4]}{box[1] * _SCALE}{low}", f"{rule} epoch{high}"
    used = cell_len(start + end) + sum(cell_len(text) for text, _ in below)
    end += box[1] * max(width - used - 1, 0) + box[5]
    style = "bright_black"
    return [*lines, _line(width, (start, style), *below, (end, style))]


def _title(panel: Panel) -> str:
    """The title of a panel."""
    y = PlotAxis(py for curve in panel.curves for _, py in curve.points)
    return panel.title + (" (log)" if y.logarithmic else "")


def _shorten(text: str, most: int, plain: bool) -> str:
    """A text that fits, with a dot where something of it is left out."""
    return shorten(_clean(text), most).replace("…", _BOXES[plain][9])


def _segments(row: list[tuple[str, int]]) -> list[Segment]:
    """The runs of a row in the colours of their curves."""
    return [
        Segment(text, _style(_COLORS[owner % 3] if owner >= 0 else ""))
        for text, owner in row
    ]


def to_text(lines: list[Line], console: Any) -> list[str]:
    """The lines with the escapes for colours that a terminal understands."""
    from rich.segment import Segments

    parts = [segment for line in lines for segment in (*line, Segment.line())]
    with console.capture() as captured:
        console.print(Segments(parts), end="", soft_wrap=True)
    return captured.get().split("\n")[: len(lines)]
