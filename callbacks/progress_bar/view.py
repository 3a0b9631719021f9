"""Where progress is drawn: a terminal, a notebook, or plain text."""

from __future__ import annotations

import html
import math
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from exburn.callbacks.progress_bar.layout import Layout, Line, ProgressRow
from exburn.core.printing import notebook_shell, page_width, print_text
from exburn.visualization import page


class ProgressView(Protocol):
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

    def announce(self, text: str) -> None:
        """Tells of what takes long, before it is begun."""
        ...

    def expect(self, names: Iterable[str]) -> None:
        """Keeps places for the values of a run."""
        ...

    def close(self) -> None:
        """Leaves the place tidy, also in the middle of a line."""
        ...


def choose_view(
    verbose: Any, console: Any = None, *, alone: bool = False
) -> ProgressView | None:
    """Returns the view for a `verbose` argument, None for silence.

    `"auto"` is 1 in a terminal or notebook and 2 elsewhere. 1 is a live bar where
    there can be one, else plain lines; 2 is one plain line for each epoch; `"table"` is
    a table of epochs, with a live bar below it where there can be one. `alone` is for a
    `TerminalProgress`.
    """
    if not verbose:
        return None
    table = verbose == "table"
    notebook = console is None and notebook_shell() is not None
    if console is not None:
        terminal = console.is_terminal and not console.is_dumb_terminal
    else:
        terminal = not notebook and _stdout_is_terminal()
    if verbose != 2 and notebook:
        return NotebookView(table=table)
    if verbose != 2 and terminal:
        return TerminalProgress(console, alone=alone, table=table)
    interval = 10.0 if verbose == 1 else float("inf")
    if console is not None:
        width = console.width if console.is_terminal else None
        return PlainView(console.file, interval, width, table=table)
    width = page_width() if notebook or terminal else None
    return PlainView(None, interval, width, table=table)


def _stdout_is_terminal() -> bool:
    if not (hasattr(sys.stdout, "isatty") and sys.stdout.isatty()):
        return False
    from rich import get_console

    return not get_console().is_dumb_terminal


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
        table: Whether epochs are rows of a table.
    """

    live = False

    def __init__(
        self,
        file: Any = None,
        interval: float = 10.0,
        width: int | None = None,
        *,
        table: bool = False,
    ):
        self.file = file
        self.interval = interval
        self.width = width
        # Whoever reads a file wants all digits of a number.
        number = exact_number if width is None and not table else None
        self._layout = Layout(
            width, table=table, separator=" - ", bars=False, number=number
        )

    def expect(self, names: Iterable[str]) -> None:
        self._layout.expect(names)

    def announce(self, text: str) -> None:
        self._print([text])

    def show(self, line: Line) -> None:
        row = self._layout.live(line)
        self._print([row.head + row.text])

    def finish(self, line: Line) -> None:
        self._print([row.head + row.text for row in self._layout.finish_line(line)])

    def _print(self, rows: list[str]) -> None:
        file = self.file or sys.stdout
        text = "\n".join(rows)
        if encoding := getattr(file, "encoding", None):  # a metric may be named "φ"
            text = text.encode(encoding, "replace").decode(encoding)
        print_text(text, file=file)

    def close(self) -> None:
        pass


class TerminalProgress:
    """A live bar that becomes a static line; other output appears above it.

    Args:
        console: A `rich.console.Console`; that of rich by default.
        alone: Whether nothing else is printed between two lines. Then those that come
            in quick succession, ten or a thousand a second, are printed together.
        table: Whether epochs are rows of a table.
    """

    live = True
    interval = 0.1

    def __init__(
        self, console: Any = None, *, alone: bool = False, table: bool = False
    ):
        from rich import get_console

        # The common console: what the user prints with rich appears above the bar.
        self.console = get_console() if console is None else console
        self._alone = alone
        options = self.console.options  # looked up in the environment each time
        self._ascii_only = options.ascii_only
        self._layout = Layout(options.max_width, table=table)
        self._live: Any = None
        self._finished: list[ProgressRow] = []  # not printed yet
        self._printed_at = -math.inf

    def expect(self, names: Iterable[str]) -> None:
        self._layout.expect(names)

    def announce(self, text: str) -> None:
        pass  # the live line says it

    def show(self, line: Line) -> None:
        self._print()
        self._layout.resize(self.console.options.max_width)
        text = self._draw_rows([self._layout.live(line)])
        if self._live is None:
            from rich.live import Live

            # Drawn by us, at our pace: rich's own thread would take the GIL.
            self._live = Live(text, console=self.console, auto_refresh=False)
            self._live.start(refresh=True)
        else:
            self._live.update(text, refresh=True)

    def finish(self, line: Line) -> None:
        rows = self._layout.finish_line(line)
        if self._live is not None:
            self._live.update(self._draw_rows(rows))
            self.close()
            return
        self._finished += rows
        late = time.perf_counter() - self._printed_at >= self.interval
        if late or not self._alone:
            self._print()

    def _print(self) -> None:
        rows, self._finished = self._finished, []
        if rows:
            # They fit already.
            self.console.print(self._draw_rows(rows, end="\n"), soft_wrap=True)
            self._printed_at = time.perf_counter()

    def close(self) -> None:
        self._print()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _draw_rows(self, rows: list[ProgressRow], end: str = "") -> Any:
        # Segments, since rich takes longer to lay out a Text than a short epoch does.
        from rich.segment import Segment, Segments

        segments: list[Any] = []
        for row in rows:
            if segments and not end:
                segments.append(Segment("\n"))
            segments += self._segments(row, end)
        return Segments(segments)

    def _segments(self, row: ProgressRow, end: str) -> list[Any]:
        from rich.segment import Segment
        from rich.style import Style

        if not row.bar or row.line is None:
            return [Segment(row.head + row.text + end)]
        done, rest = _bar(row.line, self._ascii_only, row.bar)
        color = "green" if row.line.step >= (row.line.total or 0) else "cyan"
        return [
            Segment(row.head),
            Segment(done, Style.parse(color)),
            Segment(rest, Style.parse("bright_black")),
            Segment("  " + row.text + end),
        ]


class NotebookView:
    """One output cell for a whole run, updated in place.

    It holds the latest epochs only, so that a run of a thousand epochs floods neither
    the page nor the saved notebook.

    Args:
        table: Whether epochs are rows of a table.
    """

    live = True
    interval = 0.1
    most_lines = 12

    def __init__(self, *, table: bool = False):
        self._layout = Layout(page_width(), table=table)
        self._finished: deque[Line] = deque(maxlen=self.most_lines)
        self._count = 0
        self._current: Line | None = None
        self._handle: Any = None
        self._drawn_at = 0.0

    def expect(self, names: Iterable[str]) -> None:
        self._layout.expect(names)

    def announce(self, text: str) -> None:
        pass  # the live line says it

    def show(self, line: Line) -> None:
        self._current = line
        self._draw()

    def finish(self, line: Line) -> None:
        self._finished.append(line)
        self._layout.learn(line)
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

    def _hidden_notes(self) -> list[str]:
        count = self._count - len(self._finished)
        return [f"… {count} earlier epochs"] if count else []

    def __repr__(self) -> str:
        layout, rows = self._layout, []
        layout.restart()  # all lines are drawn anew each time
        for line in self._finished:
            rows += layout.finish_line(line)
        if self._current is not None:
            rows.append(layout.live(self._current))
        return "\n".join([*self._hidden_notes(), *map(_row_text, rows)])

    def _repr_html_(self) -> str:
        layout = self._layout
        epochs = [line for line in self._finished if line.epoch]
        if not layout.table or not epochs:
            return _as_preformatted(repr(self))
        # The names of the values of all lines; those that none has need no column.
        there = {name for line in epochs for name, _ in line.metrics}
        names = [name for name in layout.names if name in there]
        rows = []
        for line in epochs:
            logs = {name: layout.text(value) for name, value in line.metrics}
            cells = [line.epoch, *(logs.get(n, "") for n in names), line.time]
            rows.append(page.TableRow(cells))
        count = len(names) + 2
        head, width = ["epoch", *names, "time"], 100 // count
        parts = [page.note(text) for text in self._hidden_notes()]
        parts.append(page.table(head, rows, [width] * count, range(count)))
        rest = [line for line in self._finished if not line.epoch]
        last = [row for line in rest for row in layout.finish_line(line)]
        last += [] if self._current is None else [layout.live(self._current)]
        if last:
            parts.append(_as_preformatted("\n".join(map(_row_text, last))))
        return page.fragment(*parts)


def _row_text(row: ProgressRow) -> str:
    bar = "" if row.line is None else "".join(_bar(row.line, False, row.bar))
    return row.head + (f"{bar}  " if bar else "") + row.text


def _as_preformatted(text: str) -> str:
    style = "white-space:pre;overflow-x:auto;line-height:1.35;margin:0"
    return f'<pre style="{style};font-family:monospace">{html.escape(text)}</pre>'


def exact_number(value: Any) -> str:
    """A number with four digits behind the point, or five in all.

    Example:
        >>> exact_number(0.25), exact_number(12345678.0)
        ('0.2500', '1.2346e+07')
    """
    if not isinstance(value, (int, float)):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.4f}"
    return f"{value:.4e}"  # NaN and infinity come out as themselves
