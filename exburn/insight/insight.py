"""`Insight`: what a method such as ``model.explain`` returns, with its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from exburn.core.printing import Plain, page_text
from exburn.errors import ExBurnError
from exburn.errors.boundary import guard_methods
from exburn.saving.json_text import damage_error, parse_json
from exburn.saving.shards import TensorFile, write_tensors
from exburn.visualization import page

_FORMAT = "exburn-insight-1"
_WIDTH = 100  # characters of a printed one


@guard_methods
class Insight:
    """What was learnt of a model: a table, a drawing, a text and a file.

    A subclass writes ``text``, ``table``, ``plot``, ``to_content`` and
    ``from_content``.

    Attributes:
        kind: What it is, as its file says: ``"explanation"``.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> shares = model.explain(np.ones((1, 2)), method="saliency")
        >>> isinstance(shares, Insight), shares.kind
        (True, 'explanation')
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        guard_methods(cls)

    # ------------------------------------------------------------------ a subclass's
    def text(self) -> str:
        """What it means and what it assumes, in a few sentences."""
        raise NotImplementedError

    def table(self) -> Table:
        """Its numbers, as a table that a terminal shows."""
        raise NotImplementedError

    def plot(self) -> Any:
        """Draws it.

        Returns:
            The ``matplotlib.figure.Figure``.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        raise NotImplementedError

    def to_content(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays by name, of which ``from_content`` makes it again."""
        raise NotImplementedError

    @classmethod
    def from_content(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        """The object whose content that is.

        Args:
            settings, arrays: As of ``to_content``; of a file, and so checked here.

        Raises:
            ExBurnError, KeyError, TypeError, ValueError: They are of nothing that was
                written; ``load`` names the file.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ of all
    def save(self, path: Any) -> Path:
        """Writes a safetensors file with digests, whole or not at all.

        Returns:
            The file.

        Raises:
            SaveError: The system refuses.
        """
        settings, arrays = self.to_content()
        metadata = {"kind": self.kind, "settings": json.dumps(settings)}
        return write_tensors(path, arrays, metadata, format=_FORMAT, op="save")

    @classmethod
    def load(cls, path: Any) -> Self:
        """Reads what ``save`` wrote; nothing in the file is executed.

        Raises:
            ModelFormatError: It is damaged, or something else.
            ArgumentError: There is no such file.
            LoadError: The system refuses to read it.
        """
        op = f"{cls.__name__}.load"
        with TensorFile(path, op=op) as file:
            kind = file.metadata.get("kind")
            if file.format != _FORMAT or kind != cls.kind or not file.sealed:
                there = f"{file.format or 'no format of ExBurn'}, {kind or 'no kind'}"
                reason = f"the file holds no {cls.kind}"
                raise damage_error(op, path, reason, received=there)
            arrays = {name: file.read_one(name) for name in file.entries}
            text = file.metadata.get("settings", "").encode()
        settings = parse_json(text, op, path, "its description")
        return cls._of_file(op, path, settings, arrays)

    @classmethod
    def _of_file(cls, op: str, path: Any, settings: Any, arrays: Any) -> Self:
        """The object of a file's content; raises ``ModelFormatError``."""
        try:
            if not isinstance(settings, dict):
                raise TypeError("its description is no JSON object")
            return cls.from_content(settings, arrays)
        except (ExBurnError, KeyError, TypeError, ValueError) as error:
            reason = f"what the file says is no {cls.kind}"
            raise damage_error(op, path, reason, cause=error) from error

    def __rich__(self) -> Plain:
        return Plain(Group(self.table(), Text(self.text())))

    def __str__(self) -> str:
        return page_text(self, _WIDTH)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        table = self.table()
        cells = [[page.text(cell) for cell in column.cells] for column in table.columns]
        rows = list(zip(*cells, strict=True))
        right = ["n" if c.justify == "right" else "" for c in table.columns]
        head = [str(column.header) for column in table.columns]
        title = page.title(table.title or self.kind)
        return page.fragment(
            title, page.plain_table(rows, right, head), page.note(self.text())
        )


def read_kind(path: Any, op: str) -> str | None:
    """The kind that a file says it is; ``None`` for a file of something else.

    Raises:
        ArgumentError, LoadError, ModelFormatError: As of ``Insight.load``.
    """
    with TensorFile(path, op=op) as file:
        return file.metadata.get("kind") if file.format == _FORMAT else None
