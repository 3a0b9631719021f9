"""``model.summary()``: layers, shapes, parameters and totals as a table."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from exburn.building import inspect_call
from exburn.errors import ArgumentError, NotBuiltError
from exburn.flops import count
from exburn.graph import Graph, Ref
from exburn.layer import Layer
from exburn.symbol import public_shape
from exburn.traversal import iter_weights, module_paths

__all__ = ["summary"]


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

    Args:
        model: A built model.
        line_length: Width in characters; the terminal's by default.
        positions: Relative widths of the columns, as fractions of the line that end at
            each column.
        print_fn: Called once with the whole text instead of printing.
        expand_nested: Whether the layers of nested models are listed too.
        show_trainable: Whether a column says which layers are trained.
        layer_range: Names (or regular expressions) of the first and last layer shown.

    Raises:
        NotBuiltError: The model has no shapes yet.
    """
    if not model.built:
        raise NotBuiltError(
            "summary",
            "the model has no weights before it is built",
            hint="Give it an Input(shape), call model.build(shape), or fit it.",
        )
    traced = inspect_call(model)
    shapes = {} if traced is None else traced[1]
    rows = _rows(model, shapes, "", 0, expand_nested)
    rows = _within(rows, layer_range)
    table = _table(model, rows, show_trainable, line_length, positions)
    flops = None if traced is None else count(traced[0]).flops
    title = Text.assemble("Model: ", (model.name, "bold"))
    page = Group(title, table, _totals(model, flops))
    _show(page, line_length, print_fn)


# ------------------------------------------------------------------------- rows
def _rows(
    model: Any, shapes: dict, prefix: str, depth: int, nested: bool
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
            own = list(iter_weights(layer))
            rows.append(
                _Row(
                    name,
                    type(layer).__name__,
                    _shape(shapes.get(path)) or _symbol_shape(layer),
                    sum(int(np.prod(w.shape)) for _, w, _ in own),
                    layer.precision.name,
                    bool(layer.trainable),
                    sources,
                    depth,
                )
            )
            if nested and getattr(layer, "is_model", False):
                rows += _rows(layer, shapes, path + "/", depth + 1, nested)
        else:
            rows.append(_Row(name, "function", layer, 0, "", True, sources, depth))
    return rows


def _graph_entries(model: Any, graph: Graph) -> list[tuple[str, Any, str]]:
    """(name, layer or the function's shape, where its inputs come from)."""
    inputs = [
        (layer.name, layer, "")
        for layer in model.layers
        if getattr(layer, "is_input", False)
    ]
    names = list(graph.input_names)

    def source(ref: Ref) -> str:
        return names[ref.index] if ref.node < 0 else graph.nodes[ref.node].name

    entries: dict[str, tuple[str, Any, list[str]]] = {}
    for node in graph.nodes:
        refs = [leaf for leaf in node.leaves if isinstance(leaf, Ref)]
        sources = [source(ref) for ref in refs]
        if isinstance(node.target, str):
            layer = model.nodes[node.target]
            entry = entries.setdefault(node.name, (node.name, layer, []))
        else:
            entry = entries.setdefault(
                node.name, (node.name, ", ".join(map(str, node.shapes)), [])
            )
        entry[2].extend(s for s in sources if s not in entry[2])
    return inputs + [(n, layer, ", ".join(s)) for n, layer, s in entries.values()]


def _shape(specs: Any) -> str:
    leaves = jax.tree.leaves(specs)
    return ", ".join(str(public_shape(tuple(s.shape))) for s in leaves)


def _symbol_shape(layer: Any) -> str:
    calls = layer._book.value.calls
    if not calls:
        return "?"
    return ", ".join(str(s.shape) for s in jax.tree.leaves(calls[0].outputs))


def _within(rows: list[_Row], layer_range: Any) -> list[_Row]:
    if layer_range is None:
        return rows
    import re

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
def _table(model, rows, show_trainable, line_length, positions) -> Table:
    connected = any(row.sources for row in rows)
    titles = ["Layer (type)", "Output shape", "Param #", "dtype"]
    titles += ["Connected to"] if connected else []
    titles += ["Trainable"] if show_trainable else []
    table = Table(width=line_length)
    widths = _widths(positions, line_length, len(titles))
    for title, width in zip(titles, widths, strict=True):
        justify = "right" if title == "Param #" else "left"
        table.add_column(title, justify=justify, width=width, overflow="fold")
    for row in rows:
        indent = "  " * row.depth + ("└ " if row.depth else "")
        frozen = "" if row.trainable or not row.params else " [frozen]"
        cells = [
            Text(f"{indent}{row.name} ({row.kind}){frozen}"),
            Text(row.shape),
            Text(f"{row.params:,}"),
            Text(row.dtype),
        ]
        cells += [Text(row.sources or "-")] if connected else []
        cells += [Text("yes" if row.trainable else "no")] if show_trainable else []
        table.add_row(*cells)
    return table


def _widths(positions, line_length, columns) -> list[int | None]:
    if positions is None or line_length is None:
        return [None] * columns
    edges = [p * line_length if p <= 1 else p for p in positions][:columns]
    starts = [0, *edges]
    widths = [max(4, int(b - a) - 3) for a, b in zip(starts, edges, strict=False)]
    return [*widths, *[None] * (columns - len(widths))]


def _totals(model: Any, flops: float | None) -> Text:
    groups = {"Trainable": [], "Frozen": [], "Other": []}
    for _, weight, learns in iter_weights(model):
        kind = "Trainable" if learns else "Frozen" if weight.trainable else "Other"
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
        lines.append(f"FLOPs per sample: {_amount(flops)} (forward)")
    return Text("\n".join(" " + line for line in lines))


def _optimizer_leaves(model: Any) -> list[Any] | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None
    params = {
        path: jax.ShapeDtypeStruct(w.shape, w.dtype)
        for path, w, learns in iter_weights(model)
        if learns
    }
    return jax.tree.leaves(jax.eval_shape(optimizer.init, params))


def _line(label: str, arrays: list[Any]) -> str:
    scalars = sum(int(np.prod(a.shape)) for a in arrays)
    nbytes = sum(int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for a in arrays)
    return f"{label}: {scalars:,} ({_bytes(nbytes)})"


def _bytes(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1024 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024
    raise AssertionError


def _amount(number: float) -> str:
    for unit in ("", " K", " M", " G", " T"):
        if number < 1000 or unit == " T":
            return f"{number:.0f}" if not unit else f"{number:.2f}{unit}"
        number /= 1000
    raise AssertionError


# ------------------------------------------------------------------------- show
def _show(page: Group, width: int | None, print_fn: Any) -> None:
    if print_fn is not None:
        text = _text(page, width or 100)
        try:
            print_fn(text, line_break=False)
        except TypeError:
            print_fn(text)
        return
    if _in_notebook():
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        console = Console(
            force_jupyter=False, file=io.StringIO(), record=True, width=width or 100
        )
        console.print(page)
        style = (
            "white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace"
        )
        display(
            HTML(
                console.export_html(
                    inline_styles=True,
                    code_format=(f'<pre style="{style}">{{code}}</pre>'),
                )
            )
        )
        return
    Console(width=width).print(page)


def _text(page: Group, width: int) -> str:
    console = Console(
        force_jupyter=False, file=io.StringIO(), width=width, color_system=None
    )
    console.print(page)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
