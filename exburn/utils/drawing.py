"""A model's layers and calls as a picture, drawn by Graphviz."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from exburn.core.symbolic_shapes import public_shape
from exburn.errors import (
    ArgumentError,
    ExBurnError,
    MissingDependencyError,
    NotBuiltError,
    require,
    unknown_name,
)
from exburn.models import Model
from exburn.module.graph import Graph, Ref
from exburn.module.symbolic_tensor import Operation
from exburn.runtime.files.atomic import write_atomically
from exburn.utils.progress import in_notebook

_DIRECTIONS = ("TB", "BT", "LR", "RL")


def plot_model(
    model: Any,
    to_file: Any = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> Any:
    """Draws a model into a file, and shows it in a notebook.

    Args:
        model: A model that is built.
        to_file: The file; its suffix says the format (``.png``, ``.svg``, ``.pdf``;
            ``.dot`` is written without Graphviz).
        show_shapes: Shapes of inputs and outputs.
        show_dtype: Dtype of each layer.
        show_layer_names: Names of the layers.
        rankdir: Direction: ``"TB"`` (down), ``"BT"``, ``"LR"`` (right) or ``"RL"``.
        expand_nested: Whether models inside are drawn with their layers.
        dpi: Dots per inch.
        show_layer_activations: Activation of each layer.
        show_trainable: Whether each layer is trained.
        splines: How arrows run: ``"ortho"``, ``"curved"`` …

    Raises:
        MissingDependencyError: Graphviz is not installed.
        NotBuiltError: The model has no shapes yet.
        UnknownNameError: An unknown ``rankdir``.

    Example:
        >>> import pathlib, tempfile
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.dot")
        >>> _ = plot_model(model, path, show_shapes=True)
        >>> path.read_text().startswith("digraph")
        True
    """
    source = dot_source(
        model,
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        rankdir=rankdir,
        expand_nested=expand_nested,
        dpi=dpi,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
        splines=splines,
    )
    path = os.fspath(to_file)
    kind = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    if kind == "dot":
        write_atomically(
            Path(path), lambda file: file.write(source.encode()), op="plot_model"
        )
        return None
    program = shutil.which("dot")
    if program is None:
        raise MissingDependencyError(
            "plot_model",
            "the program `dot` of Graphviz is needed",
            hint="Install it (apt install graphviz, brew install graphviz), "
            "or write the source: plot_model(model, 'model.dot').",
        )
    run = subprocess.run(
        [program, f"-T{kind}"], input=source.encode(), capture_output=True, check=False
    )
    if run.returncode:
        raise ExBurnError(
            "plot_model", "dot failed", {"said": run.stderr.decode(errors="replace")}
        )
    write_atomically(Path(path), lambda file: file.write(run.stdout), op="plot_model")
    if not in_notebook() or kind not in ("png", "svg", "jpg", "jpeg"):
        return None
    from IPython.core.display import SVG
    from IPython.core.display import Image as Picture

    return SVG(path) if kind == "svg" else Picture(filename=path)


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> Any:
    """A model as a ``pydot.Dot``.

    Args:
        model: A model that is built.
        show_shapes: Shapes of inputs and outputs.
        show_dtype: Dtype of each layer.
        show_layer_names: Names of the layers.
        rankdir: Direction: ``"TB"`` (down), ``"BT"``, ``"LR"`` (right) or ``"RL"``.
        expand_nested: Whether models inside are drawn with their layers.
        dpi: Dots per inch.
        subgraph: Must be false: ``expand_nested`` draws models inside.
        show_layer_activations: Activation of each layer.
        show_trainable: Whether each layer is trained.
        splines: How arrows run: ``"ortho"``, ``"curved"`` …

    Raises:
        MissingDependencyError: pydot is not installed.
        NotBuiltError: The model has no shapes yet.

    Example:
        >>> import pytest
        >>> _ = pytest.importorskip("pydot")
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> model_to_dot(model).get_type()
        'digraph'
    """
    if subgraph:
        raise ArgumentError(
            "model_to_dot", "subgraph is not offered", hint="Use expand_nested=True."
        )
    reason = "pydot is needed; plot_model(model, 'model.dot') works without it"
    pydot = require("pydot", "model_to_dot", reason)
    source = dot_source(
        model,
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        rankdir=rankdir,
        expand_nested=expand_nested,
        dpi=dpi,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
        splines=splines,
    )
    return pydot.graph_from_dot_data(source)[0]


def dot_source(model: Any, *, rankdir: str, dpi: int, splines: str, **options) -> str:
    """The model in Graphviz' language."""
    if rankdir not in _DIRECTIONS:
        raise unknown_name("rankdir", rankdir, _DIRECTIONS, op="plot_model")
    _graph_of(model)
    font = 'fontname="Helvetica"'
    lines = [
        "digraph model {",
        f"  graph [rankdir={rankdir}, dpi={dpi}, splines={splines}, {font}];",
        f"  node [shape=plaintext, margin=0, {font}];",
        "  edge [arrowsize=0.7];",
        *_Drawing(options).model(model, "", []),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _graph_of(model: Any) -> Graph:
    graph = getattr(model, "graph", None)
    if not isinstance(model, Model) or graph is None:
        raise NotBuiltError(
            "plot_model",
            "a functional or sequential model with known shapes is needed",
            {"received": type(model).__name__},
            hint="Begin a Sequential with Input(shape); a subclass has no graph.",
        )
    return graph


class _Drawing:
    """The lines of a model, nested ones included."""

    def __init__(self, options: dict[str, bool]):
        self.options = options

    def model(self, model: Any, prefix: str, sources: list[str]) -> Iterator[str]:
        """Boxes and arrows; ``sources`` are the boxes that feed a nested model."""
        graph = _graph_of(model)
        if not sources:
            for i, spec in enumerate(graph.inputs):
                name, shape = graph.input_names[i], public_shape(spec.shape)
                label = self.label("Input", name, None, shape, spec.dtype)
                yield f"  {prefix}input{i} [label={label}];"
        for i, node in enumerate(graph.nodes):
            target, layer = node.target, None
            if isinstance(target, Operation):
                kind = target.name
            else:
                layer = vars(model.nodes)[target]
                kind = type(layer).__name__
            feeds = self.feeds(model, i, prefix, sources)
            if self.shows_nested(layer):
                yield f"  subgraph cluster_{prefix}n{i} {{"
                yield f"    label={_quote(node.name)}; style=rounded;"
                yield from self.model(layer, f"{prefix}n{i}_", feeds)
                yield "  }"
                continue
            shapes = node.shapes[0] if len(node.shapes) == 1 else node.shapes
            label = self.label(kind, node.name, layer, shapes)
            yield f"  {prefix}n{i} [label={label}];"
            for feed in dict.fromkeys(feeds):
                yield f"  {feed} -> {prefix}n{i};"

    def shows_nested(self, layer: Any) -> bool:
        inner = getattr(layer, "graph", None) is not None
        return bool(self.options["expand_nested"]) and inner

    def feeds(self, model: Any, i: int, prefix: str, sources: list[str]) -> list[str]:
        """The boxes that the arguments of node ``i`` come from, in their order."""
        refs = [v for v in _graph_of(model).nodes[i].leaves if isinstance(v, Ref)]
        return [self.box(model, ref, prefix, sources) for ref in refs]

    def box(self, model: Any, ref: Ref, prefix: str, sources: list[str]) -> str:
        """The box that makes a value; inside of a nested model, if that is drawn."""
        if ref.node < 0:
            return sources[ref.index] if sources else f"{prefix}input{ref.index}"
        node = _graph_of(model).nodes[ref.node]
        here = f"{prefix}n{ref.node}"
        if isinstance(node.target, Operation):
            return here
        layer = vars(model.nodes)[node.target]
        if not self.shows_nested(layer):
            return here
        inner = _graph_of(layer).outputs[ref.index]
        return self.box(
            layer, inner, f"{here}_", self.feeds(model, ref.node, prefix, sources)
        )

    def label(self, kind, name, layer, shapes, dtype=None) -> str:
        """A table: the kind of layer on top, what was asked for below."""
        rows = [f"<b>{html.escape(kind)}</b>"]
        if self.options["show_layer_names"]:
            rows[0] = f"{html.escape(name)} ({rows[0]})"
        activation = getattr(layer, "activation", None)
        if self.options["show_layer_activations"] and activation is not None:
            text = getattr(activation, "__name__", type(activation).__name__)
            rows.append(f"Activation: <b>{html.escape(text)}</b>")
        if self.options["show_shapes"]:
            rows.append(f"Output shape: <b>{html.escape(str(shapes))}</b>")
        if self.options["show_dtype"]:
            dtype = getattr(layer, "compute_dtype", dtype)
            if dtype is not None:
                rows.append(f"Dtype: <b>{html.escape(str(dtype))}</b>")
        if self.options["show_trainable"] and layer is not None:
            if jax.tree.leaves(layer.weights):
                rows.append(f"Trainable: <b>{layer.trainable}</b>")
        cells = "".join(f"<tr><td>{row}</td></tr>" for row in rows)
        return f'<<table border="0" cellborder="1" cellspacing="0">{cells}</table>>'


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
