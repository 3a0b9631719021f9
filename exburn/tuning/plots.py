"""Drawings of a sweep: curves of its lanes, parallel coordinates, importance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.errors import unknown_name
from exburn.tuning.importance import encode, varied_paths
from exburn.tuning.records import LaneRecord, ranking
from exburn.visualization.figures import count_epochs, draw_bars, matplotlib

__all__ = ["draw_curves", "draw_importance", "draw_parallel"]

_OP = "SweepResult.plot"
_COLORS = "viridis_r"  # 0 is light, 1 is dark
_LABELS = 8  # the most names on an axis of parallel coordinates


def draw_curves(
    axes: Any,
    records: Sequence[LaneRecord],
    metric: str,
    mode: str,
    color: str | None = None,
) -> None:
    """Draws a line for each lane, its metric over the epochs, the best on top.

    Args:
        color: A path whose value colours the lines; by default a lane's rank does.
    """
    names = dict.fromkeys(name for r in records for name in r.history)
    if metric not in names:
        raise unknown_name("metric", metric, names, op=_OP)
    order = ranking([record.score for record in records], mode)
    shades = _shades_by_rank(order) if color is None else _shades_of(records, color)
    colors = _colormap()(shades)
    lines, drawn, ends = [], [], []
    for at in order[::-1]:
        values = np.asarray(records[at].history.get(metric, []), float)
        epochs = _epochs_of(records[at], len(values))
        lines.append(np.stack([epochs, values], 1))
        drawn.append(colors[at])
        ends.append(values[np.isfinite(values)])
    collection = matplotlib("collections", _OP).LineCollection(
        lines, colors=drawn, linewidths=0.9, alpha=0.3 + 0.6 / math.sqrt(len(lines))
    )
    axes.add_collection(collection)
    best = lines[-1]
    axes.plot(best[:, 0], best[:, 1], color="C3", linewidth=1.8, label="best")
    for line, end in zip(lines, drawn, strict=True):
        if len(line) == 1:  # a line of one point would not be seen
            axes.plot(*line[0], ".", color=end, markersize=3)
    if len(seen := np.concatenate(ends)):
        low, high = _bounds(seen)
        margin = 0.04 * (high - low) or 0.5
        axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(
        0.5, max((line[-1, 0] for line in lines if len(line)), default=1) + 0.5
    )
    axes.set(ylabel=metric, title=f"{len(records)} lanes")
    count_epochs(axes, _OP)
    if color is not None:
        scale = matplotlib("cm", _OP).ScalarMappable(cmap=_colormap())
        bar = axes.figure.colorbar(scale, ax=axes, label=color)
        marks = _axis_of(*encode(records, color))[1]
        bar.set_ticks([mark for mark, _ in marks], labels=[text for _, text in marks])
    axes.legend(loc="best")


def draw_parallel(
    axes: Any, records: Sequence[LaneRecord], monitor: str, mode: str
) -> None:
    """Draws an axis for each path that varies and one for the score, a line a lane."""
    scores = np.array([record.score for record in records])
    order = ranking(scores, mode)
    colors = _colormap()(_shades_by_rank(order))
    colors[~np.isfinite(scores)] = (0.8, 0.8, 0.8, 1.0)
    paths = varied_paths(records)
    columns = [_axis_of(*encode(records, path)) for path in paths]
    if len(finite := scores[np.isfinite(scores)]):
        scores = np.where(
            np.isfinite(scores), np.clip(scores, *_bounds(finite)), np.nan
        )
    columns.append(_axis_of(scores, []))
    heights = np.stack([column for column, _ in columns], 1)  # [lanes, axes]
    # Lines of the same values would lie on each other: a little apart they do not.
    jitter = np.random.default_rng(0).uniform(-0.012, 0.012, heights.shape)
    jitter[:, -1] = 0
    places = np.arange(heights.shape[1])
    lines = [np.stack([places, heights[i] + jitter[i]], 1) for i in order[::-1]]
    collection = matplotlib("collections", _OP).LineCollection(
        [line[~np.isnan(line[:, 1])] for line in lines],
        colors=colors[order[::-1]],
        linewidths=0.9,
        alpha=0.35 + 0.5 / math.sqrt(len(lines)),
    )
    axes.add_collection(collection)
    for place, (_, ticks) in enumerate(columns):
        axes.axvline(place, color="0.3", linewidth=0.8)
        for height, text in ticks:
            axes.text(
                place + 0.03,
                height,
                text,
                fontsize=7,
                va="center",
                bbox={
                    "facecolor": "white",
                    "edgecolor": "none",
                    "alpha": 0.7,
                    "pad": 0.5,
                },
            )
    axes.set_xlim(-0.2, len(columns) - 0.7)
    axes.set_ylim(-0.06, 1.06)
    axes.set_yticks([])
    axes.set_xticks(places, [*paths, monitor], rotation=12, fontsize=8)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title("values of each lane, the best dark")


def draw_importance(axes: Any, shares: Mapping[str, float]) -> None:
    """Draws a bar for the share of each path, the largest on top."""
    bars = draw_bars(axes, [*shares], {"share": [*shares.values()]})
    axes.bar_label(bars, fmt="{:.0%}", padding=2, fontsize=8)
    axes.set(xlim=(0, 1.1), xlabel="share in the differences", title="importance")
    axes.tick_params(axis="y", labelsize=8)


def _epochs_of(record: LaneRecord, count: int) -> np.ndarray:
    """The epochs that values belong to; fewer values are of validated epochs."""
    if count in (0, record.epochs):
        return np.arange(1, count + 1, dtype=float)
    return record.epochs - (count - 1 - np.arange(count)) * (record.epochs // count)


def _shades_by_rank(order: np.ndarray) -> np.ndarray:
    """[lanes] From 0, the worst, to 1, the best."""
    shades = np.empty(len(order))
    shades[order] = np.linspace(1, 0, len(order))
    return shades


def _shades_of(records: Sequence[LaneRecord], path: str) -> np.ndarray:
    paths = dict.fromkeys(name for record in records for name in record.trial)
    if path not in paths:
        raise unknown_name("path", path, paths, op=_OP)
    heights = _axis_of(*encode(records, path))[0]
    return np.where(np.isnan(heights), 0.0, heights)


def _axis_of(
    column: np.ndarray, names: list[str]
) -> tuple[np.ndarray, list[tuple[float, str]]]:
    """[lanes] Heights from 0 to 1, and the marks of the axis."""
    there = column[np.isfinite(column)]
    if not len(there):
        return np.full(len(column), math.nan), []
    low, high = float(there.min()), float(there.max())
    log = not names and low > 0 and high / low >= 30
    scale = np.log if log else np.asarray
    bottom, span = float(scale(low)), float(scale(high) - scale(low)) or 1.0

    def height(value: Any) -> Any:
        return (
            (scale(value) - bottom) / span if high > low else np.full_like(value, 0.5)
        )

    distinct = np.unique(there)
    if names:
        marks = [(float(i), names[int(i)]) for i in distinct]
    elif len(distinct) <= _LABELS:
        marks = [(float(value), f"{value:.3g}") for value in distinct]
    else:
        space = np.geomspace if log else np.linspace
        marks = [(float(value), f"{value:.3g}") for value in space(low, high, 5)]
    if len(marks) > 2 * _LABELS:
        marks = marks[:: -(-len(marks) // _LABELS)]
    return height(column), [(float(height(np.asarray(v))), text) for v, text in marks]


def _bounds(values: np.ndarray) -> tuple[float, float]:
    """The range to be seen: without diverging lanes, which squash all others."""
    q1, q3 = np.quantile(values, [0.25, 0.75])
    reach = 3 * (q3 - q1) or np.inf  # Tukey's outer fences
    return max(values.min(), q1 - reach), min(values.max(), q3 + reach)


def _colormap() -> Any:
    return matplotlib("", _OP).colormaps[_COLORS]
