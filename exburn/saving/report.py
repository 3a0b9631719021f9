"""What became of each weight when a file was loaded."""

from __future__ import annotations

import dataclasses
from typing import Any

from exburn.core.printing import Plain
from exburn.errors import printable
from exburn.errors.boundary import guard_methods

_SHOWN = 20  # rows of a kind in the table


@guard_methods
@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What ``load_weights`` did. It prints itself as a table.

    Attributes:
        source: The file.
        loaded: Paths of the weights that were given a value.
        missing: Paths of weights of the model that the file does not have.
        unexpected: Names in the file that the model does not have.
        mismatched: ``{path: (shape in the model, shape in the file)}``.

    Example:
        >>> report = LoadReport("w.npz", ["dense/kernel"], ["dense/bias"], [], {})
        >>> report.complete, len(report.loaded)
        (False, 1)
        >>> print(str(report).splitlines()[0])
        w.npz: 1 loaded, 1 missing, 0 unexpected, 0 of another shape
    """

    source: str
    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    mismatched: dict[str, tuple[tuple, tuple]]

    @property
    def complete(self) -> bool:
        """Whether the model and the file had the same weights, in the same shapes."""
        return not (self.missing or self.unexpected or self.mismatched)

    def _title(self) -> str:
        counts = {
            "loaded": self.loaded,
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of another shape": self.mismatched,
        }
        parts = [f"{len(names)} {what}" for what, names in counts.items()]
        return f"{self.source}: {', '.join(parts)}"

    def _rows(self) -> list[tuple[str, str, str]]:
        shapes = [
            (path, "other shape", f"model {model}, file {file}")
            for path, (model, file) in self.mismatched.items()
        ]
        kinds = [
            shapes,
            [(path, "missing", "not in the file") for path in self.missing],
            [(name, "unexpected", "not in the model") for name in self.unexpected],
            [(path, "loaded", "") for path in self.loaded],
        ]
        rows = []
        for kind in kinds:
            rows += kind[:_SHOWN]
            if len(kind) > _SHOWN:
                rows.append((f"… {len(kind) - _SHOWN} more", kind[0][1], ""))
        return rows

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self._title(), title_justify="left")
        for heading in ("weight", "outcome", "shapes"):
            table.add_column(heading)
        for row in self._rows():
            table.add_row(*map(Text, row))  # a name is no markup
        return Plain(table)

    def __str__(self) -> str:
        width = max((len(name) for name, _, _ in self._rows()), default=0)
        lines = [
            f"  {name:<{width}}  {outcome:<11}  {shapes}".rstrip()
            for name, outcome, shapes in self._rows()
        ]
        return printable("\n".join([self._title(), *lines]))
