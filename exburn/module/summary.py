"""``model.summary()``: layers, shapes, parameters and totals as a table."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from exburn.core.printing import (
    Plain,
    amount_text,
    notebook_shell,
    page_text,
    size_text,
)
from exburn.core.symbolic_shapes import TEXT, public_shape
from exburn.errors import ArgumentError
from exburn.module.building import inspect_call
from exburn.module.graph import Graph, Node, Ref
from exburn.module.layer import Layer
from exburn.module.selection import frozen_paths
from exburn.module.symbolic_tensor import Lifted
from exburn.module.traversal import iter_weights, module_paths
from exburn.module.variable import scalars
from exburn.runtime.cost_model import count

_NARROWEST = 12  # below it, rich squeezes the columns as it likes


@dataclasses.dataclass
class _Row:
    name: str
    kind: str
    shape: str
    params: int
    dtype: str
    trainable: bool
    sources: str
    depth: int = 0
    built: bool = True


def summary(
    model: Any,
    *,
    line_length: int | None = None,
    positions: Any = None,
    print_fn: Callable[..., Any] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
) -> None:
    """Prints a model: in a terminal as a table, in a notebook as HTML.

    Before the model has shapes, they are ``?`` and layers are said to be unbuilt.

    Args:
        model: The model.
        line_length: Width in characters; the terminal's by default.
        positions: Relative widths of the columns, as fractions of the line that end at
            each column.
        print_fn: Called once with the whole text instead of printing.
        expand_nested: Whether the layers of nested models are listed too.
        show_trainable: Whether a column says which layers are trained.
        layer_range: Names (or regular expressions) of the first and last layer shown.

    Raises:
        ArgumentError: ``layer_range`` matches no layer.
    """
    traced = inspect_call(model) if model.built else None
    shapes = {} if traced is None else traced[1]
    rows = _rows(model, shapes, "", 0, expand_nested, set(frozen_paths(model)))
    rows = _within(rows, layer_range)
    width = line_length or _width(print_fn)
    table = _table(rows, show_trainable, line_length, width, positions)
    flops = None if traced is None else count(traced[0]).flops
    title = Text.assemble("Model: ", (model.name, "bold"), *_axes(model))
    page = Group(title, table, _totals(model, flops))
    _show(page, width, print_fn)


def _axes(model: Any) -> list[str]:
    """A line for the inputs and one for the outputs, where their axes have names."""
    lines = []
    for kind in ("input", "output"):
        named = getattr(model, f"{kind}_axes", None)
        if named is None or not any(n for axes in named for n in axes or ()):
            continue
        shapes = []
        for symbol, axes in zip(getattr(model, f"{kind}s"), named, strict=True):
            sizes = zip(symbol.shape, axes or [None] * len(symbol.shape), strict=True)
            parts = [
                str(size) if name is None else name + (f"={size}" if size else "")
                for size, name in sizes
            ]
            shapes.append(f"({', '.join(parts)})")
        lines.append(f"\n {kind.title() + 's:':9}{', '.join(shapes)}")
    return lines


# ------------------------------------------------------------------------- rows
def _rows(
    model: Any, shapes: dict, prefix: str, depth: int, nested: bool, frozen: set[str]
) -> list[_Row]:
    graph = getattr(model, "graph", None)
    linear = type(model).__name__ == "Sequential"
    entries = (
        _graph_entries(model, graph)
        if graph and not linear
        else [(layer.name, layer, "") for layer in model.layers]
    )
    paths = module_paths(model)
    rows = []
    for name, layer, sources in entries:
        path = prefix + paths.get(id(layer), name)
        if isinstance(layer, Layer):
            own = list(iter_weights(layer, carried=False))
            rows.append(
                _Row(
                    name,
                    type(layer).__name__,
                    _shape(shapes.get(path)) or _symbol_shape(layer),
                    sum(scalars(w) for _, w, _ in own),
                    _dtype(layer, [w for _, w, _ in own]),
                    path not in frozen,
                    sources,
                    depth,
                    layer.built,
                )
            )
            if nested and getattr(layer, "is_model", False):
                rows += _rows(layer, shapes, path + "/", depth + 1, nested, frozen)
        else:
            kind, shape = layer
            rows.append(_Row(name, kind, shape, 0, "", True, sources, depth))
    return rows


def _dtype(layer: Layer, weights: list[Any]) -> str:
    """The policy, and how quantized weights are stored; or what has no precision."""
    if layer.on_host:
        return "host"
    if layer.dtype == TEXT:
        return TEXT
    stored = [w.get_metadata().get("stored") for w in weights]
    names = dict.fromkeys([*filter(None, stored), layer.precision.name])
    return ", ".join(names)


def _graph_entries(model: Any, graph: Graph) -> list[tuple[str, Any, str]]:
    """(name, layer or the function's shape, where its inputs come from)."""
    inputs = [
        (layer.name, layer, "")
        for layer in model.layers
        if getattr(layer, "is_input", False)
    ]
    names = list(graph.input_names)

    def name_of(node: Node) -> str:
        layer = isinstance(node.target, str) and model.nodes[node.target]
        return layer.name if layer and not layer._auto_name else node.name

    def source(ref: Ref) -> str:
        return names[ref.index] if ref.node < 0 else name_of(graph.nodes[ref.node])

    entries: dict[str, tuple[str, Any, list[str]]] = {}
    for node in graph.nodes:
        refs = [leaf for leaf in node.leaves if isinstance(leaf, Ref)]
        sources = [source(ref) for ref in refs]
        if isinstance(node.target, str):
            layer = model.nodes[node.target]
            entry = entries.setdefault(node.name, (name_of(node), layer, []))
        else:
            function = isinstance(node.target, Lifted)
            kind = "function" if function else type(node.target).__name__
            row = kind, ", ".join(map(str, node.shapes))
            entry = entries.setdefault(node.name, (node.name, row, []))
        entry[2].extend(s for s in sources if s not in entry[2])
    return inputs + [(n, layer, ", ".join(s)) for n, layer, s in entries.values()]


def _shape(specs: Any) -> str:
    leaves = jax.tree.leaves(specs)
    return ", ".join(str(public_shape(tuple(s.shape))) for s in leaves)


def _symbol_shape(layer: Any) -> str:
    calls = layer._meta.value.calls
    if not calls:
        return "?"
    return ", ".join(str(s.shape) for s in jax.tree.leaves(calls[0].outputs))


def _within(rows: list[_Row], layer_range: Any) -> list[_Row]:
    if layer_range is None:
        return rows
    if len(layer_range) != 2:
        raise ArgumentError("summary", "layer_range names a first and a last layer")
    first, last = (
        next((i for i, row in enumerate(rows) if re.fullmatch(name, row.name)), None)
        for name in layer_range
    )
    if first is None or last is None:
        raise ArgumentError(
            "summary",
            f"layer_range {tuple(layer_range)!r} matches no layer",
            {"layers": ", ".join(row.name for row in rows)},
        )
    return rows[min(first, last) : max(first, last) + 1]


# ------------------------------------------------------------------------ table
def _table(rows, show_trainable, line_length, width, positions) -> Table:
    connected = any(row.sources for row in rows)
    titles = ["Layer (type)", "Output shape", "Param #", "dtype"]
    titles += ["Connected to"] if connected else []
    titles += ["Trainable"] if show_trainable else []
    lines = []
    for row in rows:
        indent = "  " * row.depth + ("└ " if row.depth else "")
        frozen = "" if row.trainable or not row.params else " [frozen]"
        cells = [f"{indent}{row.name} ({row.kind}){frozen}", row.shape]
        cells += [f"{row.params:,}" if row.built else "0 (unbuilt)", row.dtype]
        cells += [row.sources or "-"] if connected else []
        cells += ["yes" if row.trainable else "no"] if show_trainable else []
        lines.append(cells)
    table = Table(width=line_length)
    if positions is None or line_length is None:
        widths = _fitting([titles, *lines], width, connected)
    else:
        widths = _widths(positions, line_length, len(titles))
    for title, size in zip(titles, widths, strict=True):
        justify = "right" if title == "Param #" else "left"
        table.add_column(title, justify=justify, width=size, overflow="fold")
    for cells in lines:
        table.add_row(
            *(Text(_broken(c, size)) for c, size in zip(cells, widths, strict=True))
        )
    return table


def _fitting(lines: list[list[str]], width: int, connected: bool) -> list[int | None]:
    """Widths that fit the page: names and sources give way, shapes and numbers stay."""
    natural = [
        max(cell_len(cell) for cell in column) for column in zip(*lines, strict=True)
    ]
    free = width - 3 * len(natural) - 1 - sum(natural)
    if free >= 0:
        return [None] * len(natural)
    widths: list[int | None] = [None] * len(natural)
    flexible = sorted([0, 4] if connected else [0], key=lambda i: natural[i])
    rest = free + sum(natural[i] for i in flexible)
    for left, i in zip(range(len(flexible), 0, -1), flexible, strict=True):
        size = min(natural[i], rest // left)
        rest -= size
        widths[i] = size
        if size < _NARROWEST:
            return [None] * len(natural)
    return widths


def _broken(text: str, width: int | None) -> str:
    """The text in lines no wider than ``width``, broken at spaces, ``_`` and ``/``."""
    if width is None or cell_len(text) <= width:
        return text
    lines = [""]
    for piece in re.findall(r"\s*[^\s_/]*[_/]*", text):
        if cell_len(lines[-1] + piece) > width and lines[-1].strip():
            lines.append("")
            piece = piece.lstrip()
        lines[-1] += piece
    return "\n".join(lines)


def _widths(positions, line_length, columns) -> list[int | None]:
    edges = [p * line_length if p <= 1 else p for p in positions][:columns]
    starts = [0, *edges]
    widths = [max(4, int(b - a) - 3) for a, b in zip(starts, edges, strict=False)]
    return [*widths, *[None] * (columns - len(widths))]


def _totals(model: Any, flops: float | None) -> Text:
    groups = {"Trainable": [], "Frozen": [], "Other": []}
    for _, weight, learns in iter_weights(model, carried=False):
        quantized = "stored" in weight.get_metadata()
        fixed = quantized or isinstance(weight, nnx.Param)
        kind = "Trainable" if learns else "Frozen" if fixed else "Other"
        groups[kind].append(weight)
    every = [w for group in groups.values() for w in group]
    lines = [_line("Total params", every)]
    lines.append(_line("Trainable params", groups["Trainable"]))
    if groups["Frozen"]:
        lines.append(_line("Frozen params", groups["Frozen"]))
    lines.append(_line("Non-trainable state", groups["Other"]))
    optimizer = _optimizer_leaves(model)
    if optimizer is not None:
        lines.append(_line("Optimizer state", optimizer))
    if flops is not None:
        lines.append(f"FLOPs per sample: {amount_text(flops)} (forward)")
    return Text("\n".join(" " + line for line in lines))


def _optimizer_leaves(model: Any) -> list[Any] | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built:
        return None
    params = {
        path: jax.ShapeDtypeStruct(w.shape, w.dtype)
        for path, w, learns in iter_weights(model)
        if learns
    }
    return jax.tree.leaves(jax.eval_shape(optimizer.init, params))


def _line(label: str, arrays: list[Any]) -> str:
    number = sum(map(scalars, arrays))
    nbytes = sum(int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for a in arrays)
    return f"{label}: {number:,} ({size_text(nbytes)})"


# ------------------------------------------------------------------------- show
def _width(print_fn: Any) -> int:
    """Width of a page: the terminal's, where it goes to one."""
    return 100 if print_fn is not None or notebook_shell() else Console().width


def _show(page: Group, width: int, print_fn: Any) -> None:
    if print_fn is not None:
        text = page_text(page, width)
        try:
            print_fn(text, line_break=False)
        except TypeError:
            print_fn(text)
        return
    if notebook_shell():
        from IPython.display import display  # type: ignore[import-not-found]

        console = Console(
            force_jupyter=False, file=io.StringIO(), record=True, width=width
        )
        console.print(Plain(page))
        style = (
            "white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace"
        )
        html = console.export_html(
            inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
        )
        display({"text/html": html, "text/plain": page_text(page, width)}, raw=True)
        return
    Console(width=width).print(Plain(page))
