"""Text for people: pages of rich's tables, sizes, and where a page is shown."""

from __future__ import annotations

import io
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
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024
    return f"{number:.2f} TB"


def amount_text(number: float) -> str:
    """A count for people.

    Example:
        >>> amount_text(2_500_000)
        '2.50 M'
    """
    for unit in ("", " K", " M", " G"):
        if number < 1000:
            return f"{number:.0f}" if not unit else f"{number:.2f}{unit}"
        number /= 1000
    return f"{number:.2f} T"


def notebook_shell() -> Any:
    """IPython's shell if this process is the kernel of a notebook, else ``None``."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
