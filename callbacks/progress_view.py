"""Where progress is drawn: a terminal, a notebook, or plain text."""

from __future__ import annotations

import html
import math
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from exburn.core.printing import notebook_shell, page_width, print_text
from exburn.errors import printable

_SEPARATOR = " · "
_INDENT = " " * 4
_BARS = (20, 16, 12, 8)  # cells of a bar, the first that fits


def _cells(text: str) -> int:
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
        fields: Texts to show beside the bar: how far it is, and how fast.
        metrics: Those of the logs, which go onto rows of their own where all together
            are too long.
    """

    label: str
    width: int
    step: int
    total: int | None
    fields: tuple[str, ...]
    metrics: tuple[str, ...] = ()

    def rows(self, first: int, width: int, separator: str) -> list[str]:
        """Breaks fields and metrics into as few rows as they need.

        Where that takes no more of them, the metrics begin a row, so that those of all
        epochs stand below one another.

        Args:
            first: Columns of the first row.
            width: Columns of those below it, with their indentation.
            separator: What stands between two fields.
        """
        inner = width - len(_INDENT)
        rows = _fill((*self.fields, *self.metrics), first, inner, separator)
        apart = _fill(self.fields, first, inner, separator)
        apart += _fill(self.metrics, inner, inner, separator)
        rows = apart if len(apart) <= len(rows) else rows
        return [rows[0], *(_INDENT + row for row in rows[1:])]


def _fill(fields: tuple[str, ...], first: int, width: int, separator: str) -> list[str]:
    """Fills rows with fields, none of which is cut."""
    rows: list[str] = []
    room = first
    for field in map(printable, fields):
        longer = f"{rows[-1]}{separator}{field}" if rows else ""
        if rows and _cells(longer) <= room:
            rows[-1] = longer
        else:
            room = width if rows else first
            rows.append(field)
    return rows


class View(Protocol):
    """What the progress bar needs from a place to draw on.

    Attributes:
        live: Whether a line can change after it was drawn.
        interval: Seconds that must pass between two calls of `show`.
    """

    live: bool
    interval: float

    def show(self, line: Line) -> None:
        """Draws a line that will change."""
        ...

    def finish(self, line: Line) -> None:
        """Draws a line that stays."""
        ...

    def close(self) -> None:
        """Leaves the place tidy, also in the middle of a line."""
        ...


def choose_view(
    verbose: Any, console: Any = None, *, alone: bool = False
) -> View | None:
    """Returns the view for a `verbose` argument, None for silence.

    `"auto"` is 1 in a terminal or notebook and 2 elsewhere. 1 is a live bar where
    there can be one, else plain lines; 2 is one plain line for each epoch. `alone` is
    for a `TerminalView`.
    """
    if not verbose:
        return None
    notebook = console is None and notebook_shell() is not None
    if console is not None:
        terminal = console.is_terminal and not console.is_dumb_terminal
    else:
        terminal = not notebook and _stdout_is_terminal()
    if verbose in ("auto", 1) and notebook:
        return NotebookView()
    if verbose in ("auto", 1) and terminal:
        return TerminalView(console, alone=alone)
    interval = 10.0 if verbose == 1 else float("inf")
    if console is not None:
        width = console.width if console.is_terminal else None
        return PlainView(console.file, interval, width)
    return PlainView(None, interval, page_width() if notebook or terminal else None)


def _stdout_is_terminal() -> bool:
    if not (hasattr(sys.stdout, "isatty") and sys.stdout.isatty()):
        return False
    from rich import get_console

    return not get_console().is_dumb_terminal


def _head(line: Line) -> str:
    """The label and the space behind it, before the bar or the fields."""
    return line.label.ljust(line.width) + "  "


def _with_bar(line: Line, width: int) -> tuple[int, list[str]]:
    """The cells of a line's bar, 0 if it has none, and the rows beside and below it.

    The bar gets shorter before anything goes onto a second row.
    """
    room = width - _cells(_head(line))
    if not line.total:
        return 0, line.rows(room, width, _SEPARATOR)
    rows = line.rows(room - 2 - _BARS[-1], width, _SEPARATOR)
    free = room - 2 - _cells(rows[0])
    return next((bar for bar in _BARS if bar <= free), _BARS[-1]), rows


def _bar(line: Line, ascii_only: bool, width: int) -> tuple[str, str]:
    """Returns the done and the remaining part of a bar."""
    if not line.total or not width:
        return "", ""
    full, half, rest = ("#", "#", ".") if ascii_only else ("━", "╸", "─")
    halves = min(2 * width, 2 * width * line.step // line.total)
    done = full * (halves // 2) + half * (halves % 2)
    return done, rest * (width - len(done))


class PlainView:
    """Plain lines of text, for files, pipes and `verbose=2`.

    Args:
        file: Where they go; the standard output by default.
        interval: Seconds between two lines within an epoch.
        width: Columns that a line has; None for files and pipes, in which an epoch is
            one line, for whoever searches them.
    """

    live = False

    def __init__(
        self, file: Any = None, interval: float = 10.0, width: int | None = None
    ):
        self.file = file
        self.interval = interval
        self.width = width

    def show(self, line: Line) -> None:
        self.finish(line)

    def finish(self, line: Line) -> None:
        head, file = f"{line.label} - ", self.file or sys.stdout
        width = self.width or sys.maxsize
        text = head + "\n".join(line.rows(width - _cells(head), width, " - "))
        if encoding := getattr(file, "encoding", None):  # a metric may be named "φ"
            text = text.encode(encoding, "replace").decode(encoding)
        print_text(text, file=file)

    def close(self) -> None:
        """Nothing is left open."""


class TerminalView:
    """A live bar that becomes a static line; other output appears above it.

    Args:
        console: A `rich.console.Console`; that of rich by default.
        alone: Whether nothing else is printed between two lines. Then those that come
            in quick succession, ten or a thousand a second, are printed together.
    """

    live = True
    interval = 0.1

    def __init__(self, console: Any = None, *, alone: bool = False):
        from rich import get_console

        # The common console: what the user prints with rich appears above the bar.
        self.console = get_console() if console is None else console
        self._alone = alone
        self._live: Any = None
        self._finished: list[Line] = []  # not printed yet
        self._printed_at = -math.inf

    def show(self, line: Line) -> None:
        self._print()
        text = self._draw_lines([line])
        if self._live is None:
            from rich.live import Live

            # Drawn by us, at our pace: rich's own thread would take the GIL.
            self._live = Live(text, console=self.console, auto_refresh=False)
            self._live.start(refresh=True)
        else:
            self._live.update(text, refresh=True)

    def finish(self, line: Line) -> None:
        if self._live is not None:
            self._live.update(self._draw_lines([line]))
            self.close()
            return
        self._finished.append(line)
        late = time.perf_counter() - self._printed_at >= self.interval
        if late or not self._alone:
            self._print()

    def _print(self) -> None:
        lines, self._finished = self._finished, []
        if lines:
            # They fit already.
            self.console.print(self._draw_lines(lines, end="\n"), soft_wrap=True)
            self._printed_at = time.perf_counter()

    def close(self) -> None:
        self._print()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _draw_lines(self, lines: list[Line], end: str = "") -> Any:
        # Segments, since rich takes longer to lay out a Text than a short epoch does.
        from rich.segment import Segments

        options = self.console.options
        drawn = (self._segments(line, options, end) for line in lines)
        return Segments([segment for segments in drawn for segment in segments])

    def _segments(self, line: Line, options: Any, end: str) -> list[Any]:
        from rich.segment import Segment
        from rich.style import Style

        width, rows = _with_bar(line, options.max_width)
        text = "\n".join(rows) + end
        if not width:
            return [Segment(_head(line) + text)]
        done, rest = _bar(line, options.ascii_only, width)
        color = "green" if line.step >= (line.total or 0) else "cyan"
        return [
            Segment(_head(line)),
            Segment(done, Style.parse(color)),
            Segment(rest, Style.parse("bright_black")),
            Segment("  " + text),
        ]


class NotebookView:
    """One output cell for a whole run, updated in place.

    It holds the latest epochs only, so that a run of a thousand epochs floods neither
    the page nor the saved notebook.
    """

    live = True
    interval = 0.1
    kept = 12

    def __init__(self):
        self._finished: deque[Line] = deque(maxlen=self.kept)
        self._count = 0
        self._current: Line | None = None
        self._handle: Any = None
        self._drawn_at = 0.0

    def show(self, line: Line) -> None:
        self._current = line
        self._draw()

    def finish(self, line: Line) -> None:
        self._finished.append(line)
        self._count += 1
        self._current = None
        if time.perf_counter() - self._drawn_at >= self.interval:
            self._draw()

    def close(self) -> None:
        if self._count or self._current is not None:
            self._draw()

    def _draw(self) -> None:
        if self._handle is None:
            from IPython.display import display

            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)
        self._drawn_at = time.perf_counter()

    def __repr__(self) -> str:
        hidden = self._count - len(self._finished)
        lines = [f"… {hidden} earlier epochs"] if hidden else []
        for line in (*self._finished, self._current):
            if line is not None:
                width, rows = _with_bar(line, page_width())
                bar = "".join(_bar(line, False, width))
                rows[0] = _head(line) + (f"{bar}  " if bar else "") + rows[0]
                lines += rows
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        style = "white-space:pre-wrap;line-height:1.35;margin:0"
        return f'<pre style="{style}">{html.escape(repr(self))}</pre>'
