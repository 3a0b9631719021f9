"""Text for people: pages of rich's tables, sizes, and where a page is shown."""

from __future__ import annotations

import io
import shutil
import sys
from typing import Any


def page_text(content: Any, width: int) -> str:
    """What rich prints of a table or another renderable, without colours.

    Example:
        >>> page_text("12 layers", 20)
        '12 layers\\n'
    """
    from rich.console import Console

    page = io.StringIO()
    # Without `force_jupyter`, rich would show it in a notebook instead.
    Console(file=page, width=width, color_system=None, force_jupyter=False).print(
        content
    )
    return page.getvalue()


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
