"""A model, or a layer, as HTML: what it shows of itself in a notebook."""

from __future__ import annotations

import itertools
import re
from typing import Any

from exburn.module.outline import (
    LayerRow,
    inner_layers,
    outline,
    totals,
    weights_line,
)
from exburn.module.traversal import iter_weights
from exburn.module.variable import scalars
from exburn.visualization import page

_MOST_ROWS = 2_000
_MANY_ROWS = 40  # from which on the blocks of a model without inner ones are folded
_LEAST_ROWS = 3  # of a block
_BLOCK = re.compile(r"_?[^\d]*\d+[a-z]?(?=_)")  # "conv2" of "conv2_block1_1_conv"


def layer_page(layer: Any) -> str:
    """A table of the layers inside, which folds those of blocks; or of the weights.

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


def _layers(rows: list[LayerRow]) -> str:
    connected = any(row.sources for row in rows if not row.depth)
    dtypes = len({row.dtype for row in rows if row.dtype}) > 1
    head, widths = ["Layer", "Output shape", "Params"], [38, 24, 14]
    if dtypes:
        head, widths = [*head, "dtype"], [*widths, 14]
    if connected:
        head, widths = [*head, "Connected to"], [*widths, 24]
    widths[0] += 100 - sum(widths)
    stack: list[list[page.TableRow]] = [[]]
    tops = []
    for row in rows:
        cells = [row.name, row.shape, f"{row.params:,}" if row.built else "unbuilt"]
        cells += [row.dtype] if dtypes else []
        cells += [", ".join(row.sources)] if connected else []
        frozen = " · frozen" if row.params and not row.trainable else ""
        del stack[row.depth + 1 :]
        line = page.TableRow(cells, f"{row.kind}{frozen}")
        stack[-1].append(line)
        stack.append(line.inside)
        if not row.depth:
            tops.append((row, line))
    lines = _blocks(tops, 0) if len(tops) > _MANY_ROWS else stack[0]
    return page.table(head, lines, widths, (2,))


def _blocks(
    lines: list[tuple[LayerRow, page.TableRow]], start: int
) -> list[page.TableRow]:
    """The rows of a long model, those of a block folded that its names begin with."""

    def block(pair: tuple[LayerRow, page.TableRow]) -> str:
        begin = _BLOCK.match(pair[0].name, start)
        return pair[0].name[: begin.end()] if begin else ""

    folded = []
    for name, group in itertools.groupby(lines, block):
        pairs = list(group)
        if not name or len(pairs) < _LEAST_ROWS or len(pairs) == len(lines):
            folded += [line for _, line in pairs]
            continue
        last, line = pairs[-1]
        params = sum(row.params for row, _ in pairs)
        cells = [name, last.shape, f"{params:,}", *[""] * (len(line.cells) - 3)]
        inside = _blocks(pairs, len(name))
        folded.append(page.TableRow(cells, f"{len(pairs)} layers", inside))
    return folded


def _weights(layer: Any) -> str:
    weights = list(iter_weights(layer, carried=False))
    if not weights:
        word = "no weights" if layer.built else "not built yet"
        return page.note(word)
    rows = [
        page.TableRow([path, tuple(w.shape), f"{scalars(w):,}", w.dtype], _word(learns))
        for path, w, learns in weights[:_MOST_ROWS]
    ]
    head = ("Weight", "Shape", "Params", "dtype")
    table = page.table(head, rows, (40, 26, 16, 18), (2,))
    total = weights_line("Total params", [w for _, w, _ in weights])
    return table + page.note(total)


def _word(learns: bool) -> str:
    return "" if learns else "not trained"
