"""A model, or a layer, as HTML: what it shows of itself in a notebook."""

from __future__ import annotations

from typing import Any

from exburn.module.outline import (
    Row,
    inner_layers,
    outline,
    totals,
    weights_line,
)
from exburn.module.traversal import iter_weights
from exburn.module.variable import scalars
from exburn.visualization import page

_MOST_ROWS = 2_000


def layer_page(layer: Any) -> str:
    """A table of the layers inside, which folds those of blocks; or of the weights.

    Args:
        layer: A layer or a model, built or not.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> shown = layer_page(model)
        >>> "Total params: 15" in shown, "<script" in shown
        (True, False)
    """
    head = page.title(layer.name, type(layer).__name__)
    if not inner_layers(layer):
        return page.fragment(head, _weights(layer))
    rows, flops = outline(layer, lambda inner: bool(inner_layers(inner)))
    shown = rows[:_MOST_ROWS]
    parts = [head, _layers(shown)]
    if len(rows) > len(shown):
        parts.append(page.note(f"{len(rows) - len(shown):,} more: summary()"))
    parts += [page.note(" · ".join(totals(layer, flops)))]
    return page.fragment(*parts)


def _layers(rows: list[Row]) -> str:
    connected = any(row.sources for row in rows if not row.depth)
    dtypes = len({row.dtype for row in rows if row.dtype}) > 1
    head, widths = ["Layer", "Output shape", "Params"], [38, 24, 14]
    if dtypes:
        head, widths = [*head, "dtype"], [*widths, 14]
    if connected:
        head, widths = [*head, "Connected to"], [*widths, 24]
    widths[0] += 100 - sum(widths)
    stack: list[list[page.Row]] = [[]]
    for row in rows:
        cells = [row.name, row.shape, f"{row.params:,}" if row.built else "unbuilt"]
        cells += [row.dtype] if dtypes else []
        cells += [", ".join(row.sources)] if connected else []
        frozen = " · frozen" if row.params and not row.trainable else ""
        del stack[row.depth + 1 :]
        line = page.Row(cells, f"{row.kind}{frozen}")
        stack[-1].append(line)
        stack.append(line.inside)
    return page.table(head, stack[0], widths, (2,))


def _weights(layer: Any) -> str:
    weights = list(iter_weights(layer, carried=False))
    if not weights:
        word = "no weights" if layer.built else "not built yet"
        return page.note(word)
    rows = [
        page.Row([path, tuple(w.shape), f"{scalars(w):,}", w.dtype], _word(learns))
        for path, w, learns in weights[:_MOST_ROWS]
    ]
    head = ("Weight", "Shape", "Params", "dtype")
    table = page.table(head, rows, (40, 26, 16, 18), (2,))
    total = weights_line("Total params", [w for _, w, _ in weights])
    return table + page.note(total)


def _word(learns: bool) -> str:
    return "" if learns else "not trained"
