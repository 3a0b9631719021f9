"""A model's layers and calls as a picture."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from exburn.core.checks import check_count
from exburn.core.symbolic_shapes import public_shape
from exburn.errors import ArgumentError, NotBuiltError, require, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.module.graph import Graph, Node, Ref
from exburn.module.outline import match_range
from exburn.module.symbolic_tensor import Operation
from exburn.runtime.files.atomic import write_atomically
from exburn.visualization.diagram import DIRECTIONS, LINES, Box, Diagram, Frame

_FORMATS = "svg dot gv png pdf jpg jpeg webp tif tiff eps ps".split()


@api_boundary
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
    *,
    layer_range: Any = None,
) -> Diagram:
    """Draws a model into a file: its layers as boxes, its calls as arrows.

    SVG (``.svg``), which follows a page's light or dark theme, and Graphviz' source
    (``.dot``) need nothing else; other formats are drawn by matplotlib.

    Args:
        model: A model that is built.
        to_file: The file; its suffix says the format: ``.svg``, ``.png``, ``.pdf``,
            ``.jpg``, ``.dot`` … ``None`` for no file.
        show_shapes: Shapes of inputs and outputs.
        show_dtype: Dtype of each layer.
        show_layer_names: Names of the layers.
        rankdir: Direction: ``"TB"`` (down), ``"BT"``, ``"LR"`` (right) or ``"RL"``.
        expand_nested: Whether models inside are drawn with their layers, in a frame;
            else they are a box.
        dpi: Dots per inch, of pictures that have dots.
        show_layer_activations: Activation of each layer.
        show_trainable: Whether each layer is trained.
        splines: How arrows run: ``"ortho"`` (with right angles), ``"curved"`` or
            ``"line"``, and Graphviz' other names for these.
        layer_range: Beginnings of names (or regular expressions) of the first and the
            last layer that are drawn.

    Returns:
        The drawing, which shows itself in a notebook, and writes itself:
        ``to_svg()``.

    Raises:
        MissingDependencyError: matplotlib is not installed, and the format needs it.
        NotBuiltError: The model has no shapes yet.
        UnknownNameError: An unknown ``rankdir``, ``splines`` or format.
        ArgumentError: ``layer_range`` matches no layer, or the picture would be too
            large.

    Example:
        >>> import pathlib, tempfile
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)], name="small")
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.svg")
        >>> plot_model(model, path, show_shapes=True)
        <Diagram of small: 2 boxes, 1 arrow>
        >>> path.read_text().startswith("<svg")
        True
    """
    op = "plot_model"
    dpi = check_count(op, "dpi", dpi)
    kind = "" if to_file is None else _format(os.fspath(to_file))
    drawing = _Drawing(
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        expand_nested=expand_nested,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
    )
    diagram = drawing.diagram(model, rankdir, splines, layer_range)
    if to_file is None:
        return diagram
    if kind in ("dot", "gv"):
        data = _dot_source(diagram, dpi, splines).encode()
    elif kind == "svg":
        data = diagram.to_svg().encode()
    else:
        data = diagram.to_picture(kind, dpi)
    write_atomically(Path(to_file), lambda file: file.write(data), op=op)
    return diagram


def _format(path: str) -> str:
    kind = os.path.splitext(path)[1].lstrip(".").lower() or "png"
    if kind not in _FORMATS:
        raise unknown_name("format", kind, _FORMATS, op="plot_model")
    return kind


@api_boundary
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
    drawing = _Drawing(
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        expand_nested=expand_nested,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
    )
    diagram = drawing.diagram(model, rankdir, splines)
    return pydot.graph_from_dot_data(_dot_source(diagram, dpi, splines))[0]


@dataclasses.dataclass(frozen=True)
class _Drawing:
    """The boxes and arrows of a model, with what was asked for.

    Attributes:
        show_shapes, show_dtype, show_layer_names, expand_nested,
            show_layer_activations, show_trainable: As of ``plot_model``.
    """

    show_shapes: bool
    show_dtype: bool
    show_layer_names: bool
    expand_nested: bool
    show_layer_activations: bool
    show_trainable: bool

    def diagram(
        self, model: Any, rankdir: str, splines: str, layer_range: Any = None
    ) -> Diagram:
        """The drawing of a model, laid out."""
        op = "plot_model"
        if rankdir not in DIRECTIONS:
            raise unknown_name("rankdir", rankdir, DIRECTIONS, op=op)
        lines = LINES.get(str(splines).lower())
        if lines is None:
            raise unknown_name("splines", splines, LINES, op=op)
        _graph_of(model)
        boxes: dict[str, Box] = {}
        frames: dict[str, Frame] = {}
        arrows: list[tuple[str, str]] = []
        self._add(model, "", [], None, boxes, frames, arrows)
        if layer_range is not None:
            boxes, frames, arrows = _within(model, layer_range, boxes, frames, arrows)
        return Diagram(model.name, boxes, frames, arrows, rankdir, lines)

    def _add(
        self,
        model: Any,
        prefix: str,
        sources: list[str],
        frame: str | None,
        boxes: dict[str, Box],
        frames: dict[str, Frame],
        arrows: list[tuple[str, str]],
    ) -> None:
        """Adds what is in a model; ``sources`` are the boxes that feed a nested one."""
        graph = _graph_of(model)
        if not sources:
            for i, spec in enumerate(graph.inputs):
                lines = self._shapes(None, public_shape(spec.shape))
                lines += self._dtype(spec.dtype)
                name = graph.input_names[i] if self.show_layer_names else ""
                boxes[f"{prefix}input{i}"] = Box("Input", name, lines, "input", frame)
        for i, node in enumerate(graph.nodes):
            key = f"{prefix}n{i}"
            layer = _layer_of(model, node)
            feeds = self._feeds(model, i, prefix, sources)
            if self._opens(layer):
                frames[key] = Frame(f"{node.name} ({type(layer).__name__})", frame)
                self._add(layer, f"{key}_", feeds, key, boxes, frames, arrows)
                continue
            boxes[key] = self._box(graph, node, layer, frame)
            arrows += [(feed, key) for feed in feeds]

    def _opens(self, layer: Any) -> bool:
        return self.expand_nested and getattr(layer, "graph", None) is not None

    def _feeds(self, model: Any, i: int, prefix: str, sources: list[str]) -> list[str]:
        """The boxes that the arguments of node ``i`` come from, in their order."""
        refs = [v for v in _graph_of(model).nodes[i].leaves if isinstance(v, Ref)]
        return [self._maker(model, ref, prefix, sources) for ref in refs]

    def _maker(self, model: Any, ref: Ref, prefix: str, sources: list[str]) -> str:
        """The box that makes a value; inside of a nested model, if that is drawn."""
        if ref.node < 0:
            return sources[ref.index] if sources else f"{prefix}input{ref.index}"
        key = f"{prefix}n{ref.node}"
        layer = _layer_of(model, _graph_of(model).nodes[ref.node])
        if not self._opens(layer):
            return key
        inner = _graph_of(layer).outputs[ref.index]
        feeds = self._feeds(model, ref.node, prefix, sources)
        return self._maker(layer, inner, f"{key}_", feeds)

    def _box(self, graph: Graph, node: Node, layer: Any, frame: str | None) -> Box:
        target = node.target
        title = target.name if isinstance(target, Operation) else type(layer).__name__
        lines: tuple[tuple[str, str], ...] = ()
        activation = getattr(layer, "activation", None)
        if self.show_layer_activations and activation is not None:
            text = getattr(activation, "__name__", type(activation).__name__)
            lines += (("activation", text),)
        received = [_shape_of(graph, v) for v in node.leaves if isinstance(v, Ref)]
        lines += self._shapes(received, *node.shapes)
        lines += self._dtype(getattr(layer, "compute_dtype", None))
        weights = [] if layer is None else jax.tree.leaves(layer.weights)
        if self.show_trainable and layer is not None and weights:
            lines += (("trainable", "yes" if layer.trainable else "no"),)
        nested = getattr(layer, "graph", None) is not None
        kind = "frame" if nested else "weights" if weights else "plain"
        return Box(
            title, node.name if self.show_layer_names else "", lines, kind, frame
        )

    def _shapes(self, received: Any, *outputs: Any) -> tuple[tuple[str, str], ...]:
        if not self.show_shapes:
            return ()
        lines = () if received is None else (("input", ", ".join(map(str, received))),)
        return (*lines, ("output", ", ".join(map(str, outputs))))

    def _dtype(self, dtype: Any) -> tuple[tuple[str, str], ...]:
        if not self.show_dtype or dtype is None:
            return ()
        return (("dtype", str(dtype)),)


def _layer_of(model: Any, node: Node) -> Any:
    """The layer that a node calls; ``None`` if it is a function."""
    target = node.target
    return None if isinstance(target, Operation) else vars(model.nodes)[target]


def _shape_of(graph: Graph, ref: Ref) -> Any:
    if ref.node < 0:
        return public_shape(graph.inputs[ref.index].shape)
    return graph.nodes[ref.node].shapes[ref.index]


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


def _within(
    model: Any, layer_range: Any, boxes: dict, frames: dict, arrows: list
) -> tuple[dict, dict, list]:
    """The layers of the model itself from a first to a last one."""
    graph = _graph_of(model)
    names = [*graph.input_names, *(node.name for node in graph.nodes)]
    first, last = match_range("plot_model", layer_range, names)
    keys = [f"input{i}" for i in range(len(graph.input_names))]
    keys += [f"n{i}" for i in range(len(graph.nodes))]
    chosen = set(keys[first : last + 1])

    def stays(key: str) -> bool:
        return key.split("_")[0] in chosen

    return (
        {key: box for key, box in boxes.items() if stays(key)},
        {key: frame for key, frame in frames.items() if stays(key)},
        [(a, b) for a, b in arrows if stays(a) and stays(b)],
    )


# ------------------------------------------------------------------ Graphviz
def _dot_source(diagram: Diagram, dpi: int, splines: str) -> str:
    """A drawing in Graphviz' language, which lays it out itself."""
    font = 'fontname="Helvetica"'
    graph = f"rankdir={diagram.direction}, dpi={dpi}, splines={splines}, {font}"
    lines = [
        "digraph model {",
        f"  graph [{graph}];",
        f"  node [shape=plaintext, margin=0, {font}];",
        "  edge [arrowsize=0.7];",
        *_dot_frame(diagram, None),
        *(f"  {start} -> {end};" for start, end in diagram.arrows),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _dot_frame(diagram: Diagram, frame: Any) -> Iterator[str]:
    for key, box in diagram.boxes.items():
        if box.frame == frame:
            yield f"  {key} [label={_dot_label(box)}];"
    for key, inner in diagram.frames.items():
        if inner.frame == frame:
            yield f"  subgraph cluster_{key} {{"
            yield f"    label={_quote(inner.title)}; style=rounded;"
            yield from _dot_frame(diagram, key)
            yield "  }"


def _dot_label(box: Box) -> str:
    """A table: the kind of layer on top, what was asked for below."""
    rows = [f"<b>{html.escape(box.title)}</b>"]
    if box.name:
        rows[0] = f"{html.escape(box.name)} ({rows[0]})"
    rows += [f"{label}: <b>{html.escape(value)}</b>" for label, value in box.lines]
    cells = "".join(f"<tr><td>{row}</td></tr>" for row in rows)
    return f'<<table border="0" cellborder="1" cellspacing="0">{cells}</table>>'


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
