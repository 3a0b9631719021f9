"""Text for people: pages of rich's tables, sizes, and where a page is shown.

Names in it come from files, and files from strangers: whatever is printed goes through
`errors.printable`, and names are no markup of rich's.
"""

from __future__ import annotations

import io
import shutil
import sys
from typing import Any

from exburn.errors import printable

_BLANKS = str.maketrans("\n\r\t", "   ")
_MOST_LINE = 10_000  # characters of a line that is printed


def print_text(text: Any, file: Any = None) -> None:
    """Prints a text whose names a terminal shows, and does not obey.

    Example:
        >>> print_text("loss\\x1b[2J: 0.5")
        loss\\x1b[2J: 0.5
    """
    lines = str(text).split("\n")
    cut = (f"{x[:_MOST_LINE]}…" if len(x) > _MOST_LINE else x for x in lines)
    print(printable("\n".join(cut)), file=file, flush=True)


class Plain:
    """A renderable of rich's without what acts on a terminal, or is markup in names.

    Example:
        >>> page_text(Plain("loss\\x1b[2J [/red]"), 30)
        'loss\\\\x1b[2J [/red]\\n'
    """

    def __init__(self, content: Any):
        self.content = content

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.segment import Segment

        options = options.update(markup=False, highlight=False)
        for text, style, control in console.render(self.content, options):
            yield Segment(printable(text), style, control)

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        from rich.measure import Measurement

        return Measurement.get(console, options, self.content)


def page_text(content: Any, width: int) -> str:
    """What rich prints of a table or another renderable, without colours.

    Example:
        >>> page_text("12 layers", 20)
        '12 layers\\n'
    """
    from rich.console import Console

    page = io.StringIO()
    # Without `force_jupyter`, rich would show it in a notebook instead.
    console = Console(
        file=page,
        width=width,
        color_system=None,
        force_jupyter=False,
        markup=False,
        emoji=False,
    )
    console.print(Plain(content))
    return page.getvalue()


def one_line(text: str, *, strip: bool = True) -> str:
    """A text without line breaks, tabs, and what acts on a terminal.

    Example:
        >>> one_line("loss\\n\\x1b[2J of a row")
        'loss \\\\x1b[2J of a row'
    """
    text = printable(text.translate(_BLANKS))
    return text.strip() if strip else text


def shorten(text: str, width: int, *, tail: float = 0.5) -> str:
    """A text of at most so many columns of a terminal, "…" for what is left out.

    Args:
        width: Columns; a Chinese character takes two.
        tail: How much of what stays is from the end: 0 cuts the end off, 1 the
            beginning.
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    after = int((width - 1) * tail)
    before = width - 1 - after
    head = set_cell_size(text, before).rstrip() if before else ""
    end = set_cell_size(text[::-1], after).rstrip()[::-1] if after else ""
    return f"{head}…{end}"


def size_text(number: float) -> str:
    """Bytes for people.

    Example:
        >>> size_text(1536)
        '1.50 KB'
    """
    return _scale(number, 1024, (" B", " KB", " MB", " GB", " TB"))


def amount_text(number: float) -> str:
    """A count for people.

    Example:
        >>> amount_text(2_500_000)
        '2.50 M'
    """
    return _scale(number, 1000, ("", " K", " M", " G", " T"))


def time_text(seconds: float) -> str:
    """A time for people.

    Example:
        >>> time_text(0.0123), time_text(90)
        ('12.30 ms', '90.00 s')
    """
    unit, name = next(
        (u for u in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= u[0]),
        (1e-9, "ns"),
    )
    return f"{seconds / unit:.2f} {name}"


def _scale(number: float, base: int, units: tuple[str, ...]) -> str:
    """The number in the first unit in which it is below the base, or in the last."""
    if number < base:
        return f"{number:.0f}{units[0]}"
    for unit in units[1:-1]:
        number /= base
        if number < base:
            return f"{number:.2f}{unit}"
    return f"{number / base:.2f}{units[-1]}"


def page_width() -> int:
    """Columns of the terminal that is the standard output; `COLUMNS` or 80 elsewhere.

    A notebook has 88: its window may be narrow, and so may the page that shows the
    saved file.

    Example:
        >>> page_width() > 0
        True
    """
    if notebook_shell() is not None:
        return 88  # the standard output of its kernel is not what the user sees
    return shutil.get_terminal_size((80, 24)).columns


def notebook_shell() -> Any:
    """IPython's shell if this process is the kernel of a notebook, else ``None``."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


def show_figures_as_png() -> None:
    """Teaches a notebook to draw figures that were made without pyplot."""
    shell = notebook_shell()
    if shell is not None:
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(shell, {"png"})
