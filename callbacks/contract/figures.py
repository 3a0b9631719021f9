"""Logged values as a part of a page: a chart for each name, and a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exburn.callbacks.contract.direction import rises
from exburn.visualization import page
from exburn.visualization.curves import Curve, Panel, Point, number_text

_MOST_PANELS = 24
_MOST_ROWS = 200


def draw_logs(
    curves: Mapping[str, Sequence[Point]], metrics: Iterable[Any] = ()
) -> str:
    """Charts of training and validation together, and a table of last and best values.

    Args:
        curves: For each logged name its points: epochs, counted from 1, and values.
        metrics: Those of the model, which know whether more is better.

    Example:
        >>> shown = draw_logs({"loss": [(1, 0.9), (2, 0.5)], "val_loss": [(1, 1.0)]})
        >>> shown.count("<svg"), shown.count("<polyline"), "validation" in shown
        (1, 2, True)
    """
    metrics = list(metrics)
    best = {name: best_point(name, points, metrics) for name, points in curves.items()}
    panels, rows = [], []
    for name in dict.fromkeys(name.removeprefix("val_") for name in curves):
        names = {"training": name, "validation": f"val_{name}"}
        there = {label: log for label, log in names.items() if curves.get(log)}
        drawn = tuple(
            Curve(label, curves[log], best[log])
            for label, log in there.items()
            if any(math.isfinite(y) for _, y in curves[log])
        )
        if drawn and not _is_constant_rate(name, curves):
            panels.append(Panel(page.cut(name, 60), drawn))
        rows += [
            page.TableRow(_cells(log, curves[log], best[log])) for log in there.values()
        ]
    head = ("", "last", "best", "in epoch")
    parts = [page.charts(panels[:_MOST_PANELS])] if panels else []
    if rows:
        parts.append(page.table(head, rows[:_MOST_ROWS], (40, 20, 20, 20), (1, 2, 3)))
    if left := [panel.title for panel in panels[_MOST_PANELS:]]:
        parts.append(page.note(f"Not drawn: {', '.join(left)}"))
    return "".join(parts)


def best_point(
    name: str, points: Sequence[Point], metrics: Iterable[Any] = ()
) -> Point | None:
    """The best of the points; ``None`` if nothing tells whether more is better.

    Example:
        >>> best_point("val_loss", [(1, 0.9), (2, 0.5), (3, float("nan"))])
        (2, 0.5)
    """
    more = rises(name, metrics)
    there = [point for point in points if math.isfinite(point[1])]
    if more is None or not there:
        return None
    return (max if more else min)(there, key=lambda point: point[1])


def _is_constant_rate(name: str, curves: Mapping[str, Sequence[Point]]) -> bool:
    return name == "learning_rate" and len({y for _, y in curves[name]}) == 1


def _cells(name: str, points: Sequence[Point], best: Point | None) -> list[str]:
    last = number_text(points[-1][1])
    if best is None:
        return [name, last, "–", "–"]
    return [name, last, number_text(best[1]), number_text(best[0])]
