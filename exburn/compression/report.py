"""The table of the ways to a smaller model, and of what came of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from exburn.compression.recipes import Recipe
from exburn.core.printing import Plain, amount_text, page_text, size_text


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One way, and what it comes to.

    Attributes:
        recipe: The way; ``None`` is the given model.
        bytes: What its file takes; ``None`` if it cannot be made.
        ratio: How many times smaller that is than the given model's.
        flops: Operations for a row, forward.
        speed: Rows a second of ``predict``, for one of the given model; ``None`` if it
            was not timed.
        score: Of the metric, on the rows held out; ``None`` if it was not tried.
        lost: Points that are lost: see ``Model.compress``.
        seconds: What it took to make.
        note: Why it cannot be made; empty if it can.

    Example:
        >>> Attempt(None, bytes=40_000, ratio=1.0, score=0.97).name
        'the given model'
    """

    recipe: Recipe | None
    bytes: int | None = None
    ratio: float | None = None
    flops: float | None = None
    speed: float | None = None
    score: float | None = None
    lost: float | None = None
    seconds: float | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """The way in words."""
        return "the given model" if self.recipe is None else self.recipe.name


@dataclasses.dataclass(frozen=True)
class CompressionReport:
    """The ways to a smaller model: sizes, operations, speed, scores; a table in print.

    Attributes:
        attempts: The given model, and the ways in the order in which they are tried.
        target: How many times smaller the file is to be; ``None``: as small as can be.
        within: Points that may be lost.
        metric: What is scored; empty before anything is.
        chosen: The way whose model was returned: the smallest that stays within.
            ``None`` if none does, or before anything is tried.

    Example:
        >>> tried = Attempt(None, bytes=40_000, ratio=1.0)
        >>> CompressionReport((tried,), target=4.0, within=0.5, chosen=tried).reached
        False
    """

    attempts: tuple[Attempt, ...]
    target: float | None
    within: float
    metric: str = ""
    chosen: Attempt | None = None

    @property
    def reached(self) -> bool:
        """Whether the target was reached within the points."""
        ratio = self.chosen.ratio if self.chosen is not None else None
        return ratio is not None and ratio >= (self.target or 0)

    def __getitem__(self, name: str) -> Attempt:
        """The attempt of a name, such as ``"int8"``."""
        return {one.name: one for one in self.attempts}[name]

    def __rich__(self) -> Plain:
        return Plain(Group(*self._page()))

    def _page(self) -> Iterator[Table | Text]:
        timed = any(one.speed is not None for one in self.attempts)
        table = Table(title=self._title(), title_justify="left")
        table.add_column("Way", overflow="fold")
        heads = ["File", "Smaller", "FLOPs a row", *(["Speed"] if timed else [])]
        if self.metric:
            heads += [self.metric, "Points lost", "Seconds"]
        for name in heads:
            table.add_column(name, justify="right")
        table.add_column("", overflow="fold")
        for one in self.attempts:
            cells = [
                _text(one.bytes, size_text),
                _text(one.ratio, "{:.2f} ×".format),
                _text(one.flops, amount_text),
            ]
            if timed:
                cells.append(_text(one.speed, "{:.2f} ×".format))
            if self.metric:
                cells += [
                    _text(one.score, "{:.4f}".format),
                    _text(one.lost, "{:.2f}".format),
                    _text(one.seconds, "{:.1f}".format),
                ]
            table.add_row(one.name, *cells, self._note(one))
        yield table
        for note in dict.fromkeys(one.note for one in self.attempts if one.note):
            names = "; ".join(one.name for one in self.attempts if one.note == note)
            yield Text(f" Not possible: {names}: {note}")
        if self.metric and not self.reached:
            yield Text(" Nothing reached the target within the points.")

    def _title(self) -> str:
        size = (
            "As small as can be"
            if self.target is None
            else f"To {self.target:g} × smaller,"
        )
        return f"{size} within {self.within:g} points"

    def _note(self, one: Attempt) -> str:
        if one is self.chosen:
            return "returned"
        if one.recipe is None:
            return ""
        if one.lost is None:
            return "not possible" if one.note else "not tried"
        return "within" if one.lost <= self.within else "loses too much"

    def __str__(self) -> str:
        return page_text(self, 120)

    __repr__ = __str__


def _text(value, write) -> str:
    return "" if value is None else write(value)
