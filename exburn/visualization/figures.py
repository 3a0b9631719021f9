"""Figures of matplotlib's, made without pyplot, and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exburn.core.printing import show_figures_as_png
from exburn.errors import require


def matplotlib(module: str, op: str) -> Any:
    """A module of matplotlib's, ``"ticker"``."""
    name = f"matplotlib.{module}" if module else "matplotlib"
    return require(name, op, "drawing needs matplotlib", extra="plot")


def new_figure(op: str, width: float, height: float) -> Any:
    """An empty figure, which a notebook shows.

    Args:
        width, height: In inches.
    """
    figure = matplotlib("figure", op).Figure((width, height), layout="constrained")
    show_figures_as_png()
    return figure


def new_axes(op: str, width: float = 6, height: float = 3.6) -> tuple[Any, Any]:
    """A figure of one panel, and its axes, with a light grid."""
    figure = new_figure(op, width, height)
    axes = figure.add_subplot()
    axes.grid(alpha=0.3)
    return figure, axes


def count_epochs(axes: Any, op: str) -> None:
    """Gives the horizontal axis whole numbers, as epochs are."""
    axes.xaxis.set_major_locator(matplotlib("ticker", op).MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.grid(alpha=0.3)


def mark_suggestion(axes: Any, x: float, y: float, label: str) -> None:
    """Marks a point of a curve as the one that is suggested."""
    axes.plot(x, y, "o", color="tab:red", label=label)


def draw_bars(
    axes: Any, names: Sequence[str], parts: Mapping[str, Sequence[float]]
) -> Any:
    """Draws a horizontal bar for each name, the first on top, of parts end to end.

    Args:
        parts: The lengths by the part's label.

    Returns:
        The bars of the last part.
    """
    places, starts = range(len(names)), [0.0] * len(names)
    bars = None
    for number, (label, lengths) in enumerate(parts.items()):
        color = ("tab:blue", "tab:orange")[number]
        bars = axes.barh(places, lengths, left=starts, color=color, label=label)
        starts = [start + size for start, size in zip(starts, lengths, strict=True)]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    return bars
