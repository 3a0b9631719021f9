"""Records that are mappings, too, and print as tables of figures."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Figures", "amount_text", "size_text"]


class Figures(Mapping):
    """A record that is also a mapping, and prints as a table."""

    def __getitem__(self, key: str) -> Any:
        if key not in {field.name for field in dataclasses.fields(self)}:  # type: ignore[arg-type]
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(dataclasses.fields(self))  # type: ignore[arg-type]

    def _lines(self) -> tuple[str, dict[str, str]]:
        raise NotImplementedError

    def __rich__(self) -> Table:
        title, lines = self._lines()
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for label, value in lines.items():
            table.add_row(label, Text(value))
        return table

    def __str__(self) -> str:
        page = io.StringIO()
        Console(force_jupyter=False, file=page, width=100, color_system=None).print(
            self
        )
        return page.getvalue()

    __repr__ = __str__


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
