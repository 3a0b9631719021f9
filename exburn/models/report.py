"""Records that are mappings, too, and print as tables of figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from exburn.core.printing import Plain, page_text


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

    def __rich__(self) -> Plain:
        title, lines = self._lines()
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for label, value in lines.items():
            table.add_row(label, Text(value))
        return Plain(table)

    def __str__(self) -> str:
        return page_text(self, 100)

    __repr__ = __str__
