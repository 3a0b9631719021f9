"""A functional model's calls as plain data: names and indices, nothing on layers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from flax import nnx

from exburn.core.registry import snake_case
from exburn.core.symbolic_shapes import describe
from exburn.data.trees import in_order
from exburn.errors import DataError, GraphError
from exburn.module.graph_inputs import fit_input
from exburn.module.meta import is_layer
from exburn.module.symbolic_tensor import Call, Operation, Symbol, is_whole


@dataclasses.dataclass(frozen=True)
class Ref:
    """Output ``index`` of node ``node``; node -1 is the model's inputs."""

    node: int
    index: int


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """One call: the layer's key or an operation, and its arguments as references."""

    target: str | Operation
    leaves: tuple[Any, ...]
    treedef: Any
    name: str
    shapes: tuple[tuple, ...]
    dtypes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """What a functional model computes.

    Attributes:
        inputs: The input symbols' specs, flat.
        outputs: Where the outputs come from, flat.
        output_names: A name for each, used in logs.
        axes: The names of each input's axes, where the user gave some.
        optional: Which inputs may be ``None``.
        order: The entries of layers, inputs and operations in Keras' order: the
            furthest from the outputs first. A layer's entry is its name, an input's its
            number, and an operation's ``-1 - number`` of the first node that calls it.
    """

    inputs: tuple[jax.ShapeDtypeStruct, ...]
    input_names: tuple[str, ...]
    input_tree: Any
    nodes: tuple[Node, ...]
    outputs: tuple[Ref, ...]
    output_tree: Any
    output_names: tuple[str, ...]
    axes: tuple[tuple[str, ...] | None, ...]
    optional: tuple[bool, ...]
    order: tuple[str | int, ...]

    def run(self, layers: Mapping[str, Any], inputs: Any) -> Any:
        """Computes the outputs with the given layers."""
        produced: list[list[Any]] = []
        values = self.match_inputs(inputs)

        def fetch(leaf):
            if isinstance(leaf, nnx.Variable):
                return leaf.get_value()
            if not isinstance(leaf, Ref):
                return leaf
            return (
                values[leaf.index] if leaf.node < 0 else produced[leaf.node][leaf.index]
            )

        for node in self.nodes:
            args, kwargs = jax.tree.unflatten(
                node.treedef, [fetch(leaf) for leaf in node.leaves]
            )
            target = node.target
            callee = target if isinstance(target, Operation) else layers[target]
            outputs = callee(*args, **kwargs)
            produced.append(jax.tree.leaves(outputs))
        return jax.tree.unflatten(self.output_tree, [fetch(r) for r in self.outputs])

    @functools.cached_property
    def entries(self) -> list[str | int]:
        """For each node the entry in ``order`` of what it calls."""
        return _entries(self.nodes)

    def _wrong_inputs(self, inputs: Any, count: int) -> DataError:
        needed = len(self.inputs)
        text = (
            f"{needed} input{'s are' if needed > 1 else ' is'} needed, received {count}"
        )
        details = {"inputs": ", ".join(self.input_names)}
        if isinstance(inputs, Mapping):
            missing = [name for name in self.input_names if name not in inputs]
            text = f"the input {missing[0]!r} is missing" if missing else text
            details["received"] = ", ".join(map(repr, inputs))
        hint = "Pass one array for each input: a list in this order, or a dict by name."
        return DataError("model", text, details, hint=hint)

    def match_inputs(self, inputs: Any, learnt: bool = False) -> list[Any]:
        """The given inputs in the graph's order, cast to its dtypes.

        Args:
            learnt: Whether the sizes are only those of the first data: then the layers
                say which ones they take.
        """
        return [
            value if value is None else fit_input(value, spec, name, axes, learnt)
            for value, spec, name, axes in zip(
                self.order_inputs(inputs),
                self.inputs,
                self.input_names,
                self.axes,
                strict=True,
            )
        ]

    def order_inputs(self, inputs: Any) -> list[Any]:
        """The given inputs in the graph's order, as they are."""
        named = isinstance(inputs, Mapping)
        if named and any(self.optional):
            names = zip(self.input_names, self.optional, strict=True)
            inputs = {name: None for name, free in names if free} | dict(inputs)
        values = in_order(inputs, self.input_names)
        if values is inputs:
            values, tree = jax.tree.flatten(inputs, is_leaf=lambda v: v is None)
            by_place = not named or tree == self.input_tree
            if not by_place or len(values) != len(self.inputs):
                raise self._wrong_inputs(inputs, len(values))
        for value, name, free in zip(
            values, self.input_names, self.optional, strict=True
        ):
            if value is None and not free:
                raise DataError(
                    "model",
                    f"the input {name!r} is None",
                    hint="Pass an array, or make it Input(…, optional=True).",
                )
        return values


def trace(inputs: Any, outputs: Any, op: str = "Model") -> tuple[Graph, dict[str, Any]]:
    """The graph between symbols, and the layers in it by name, in
    ``Graph.order``.
    """
    whole = is_layer  # which is a tree as well
    input_symbols, input_tree = jax.tree.flatten(inputs, is_leaf=whole)
    output_symbols, output_tree = jax.tree.flatten(outputs, is_leaf=whole)
    for what, symbols in (("inputs", input_symbols), ("outputs", output_symbols)):
        if not symbols:
            raise GraphError(
                op,
                f"{what} must hold symbols, but are empty",
                {"received": inputs if what == "inputs" else outputs},
                hint="Start from exburn.Input(shape) and call layers on it.",
            )
        for s in symbols:
            if not isinstance(s, Symbol):
                raise GraphError(
                    op,
                    f"{what} must be symbols, received {describe(s)}",
                    hint="Start from exburn.Input(shape) and call layers on it.",
                )
    if len({id(s) for s in input_symbols}) != len(input_symbols):
        names = [str(s.name) for s in input_symbols]
        raise GraphError(
            op,
            "an input is listed twice",
            {"inputs": ", ".join(names)},
            hint="List each input once; the model may use it often.",
        )
    source = {id(s): Ref(-1, i) for i, s in enumerate(input_symbols)}
    calls = _collect(output_symbols, source, op)
    index = {id(call): i for i, call in enumerate(calls)}
    layers = [c.callee for c in calls if is_layer(c.callee)]
    keys = assign_names([*_input_layers(input_symbols), *layers])

    def ref(symbol: Symbol) -> Ref:
        return source.get(id(symbol)) or Ref(index[id(symbol.call)], symbol.index)

    op_names: Counter[str] = Counter()
    op_keys: dict[int, str] = {}
    nodes: list[Node] = []
    for call in calls:
        leaves, treedef = jax.tree.flatten((call.args, call.kwargs), is_leaf=is_whole)
        refs = tuple(ref(v) if isinstance(v, Symbol) else v for v in leaves)
        if is_layer(call.callee):
            target = name = keys[id(call.callee)]
        else:
            target, base = call.callee, call.callee.name
            if id(target) not in op_keys:
                count = op_names[base]
                op_keys[id(target)] = f"{base}_{count}" if count else base
                op_names[base] += 1
            name = op_keys[id(target)]
        outputs_of = jax.tree.leaves(call.outputs)
        shapes = tuple(s.shape for s in outputs_of)
        dtypes = tuple(s.dtype for s in outputs_of)
        nodes.append(Node(target, refs, treedef, name, shapes, dtypes))
    ends = tuple(ref(s) for s in output_symbols)
    order = _by_depth(nodes, ends, len(input_symbols))
    makers = [s.call and s.call.callee for s in input_symbols]
    graph = Graph(
        tuple(s.spec for s in input_symbols),
        _input_names(inputs, input_symbols),
        input_tree,
        tuple(nodes),
        ends,
        output_tree,
        _output_names(outputs, output_symbols, nodes, ref),
        tuple(getattr(maker, "axes", None) for maker in makers),
        tuple(bool(getattr(maker, "optional", False)) for maker in makers),
        tuple(order),
    )
    by_name = {keys[id(layer)]: layer for layer in layers}
    return graph, {name: by_name[name] for name in order if isinstance(name, str)}


def _entries(nodes: Sequence[Node]) -> list[str | int]:
    first: dict[int, int] = {}  # of each operation, the node that calls it first
    for number, node in enumerate(nodes):
        first.setdefault(id(node.target), number)
    return [
        node.target if isinstance(node.target, str) else -1 - first[id(node.target)]
        for node in nodes
    ]


def _by_depth(
    nodes: list[Node], outputs: tuple[Ref, ...], inputs: int
) -> list[str | int]:
    """The layers' names and the numbers of inputs and operations, in ``Graph.order``.

    This is the order of ``model.layers`` in Keras, in which its files hold weights.
    """
    order: list[int] = []  # of nodes, parents first; input i is node -1 - i
    rank: dict[Any, int] = {}  # of targets, as they are met from the outputs
    done: set[int] = set()
    entries = _entries(nodes)

    def number(ref: Ref) -> int:
        return ref.node if ref.node >= 0 else -1 - ref.index

    def target(node: int) -> str | int:
        return entries[node] if node >= 0 else -1 - node

    def parents(node: int) -> list[int]:
        leaves = nodes[node].leaves if node >= 0 else ()
        return [number(leaf) for leaf in leaves if isinstance(leaf, Ref)]

    # Depth first without recursion: a model may be thousands of layers deep.
    for output in outputs:
        stack = [(number(output), False)]
        while stack:
            node, finished = stack.pop()
            if node in done:
                continue
            if finished:
                done.add(node)
                order.append(node)
                continue
            rank.setdefault(target(node), len(rank))
            stack.append((node, True))
            stack.extend((parent, False) for parent in reversed(parents(node)))
    node_depth: dict[int, int] = {}
    depth: dict[Any, int] = {}
    for node in reversed(order):
        deep = max(node_depth.get(node, 0), depth.get(target(node), 0))
        depth[target(node)] = node_depth[node] = deep
        for parent in parents(node):
            node_depth[parent] = max(deep + 1, node_depth.get(parent, 0))
    for unused in range(inputs):
        depth.setdefault(unused, 0)
    return sorted(depth, key=lambda t: (-depth[t], rank.get(t, -1)))


def _input_layers(symbols: list[Symbol]) -> list[Any]:
    """The layers of ``Input``; a symbol from inside another model has none."""
    callees = [s.call.callee for s in symbols if s.call is not None]
    return [callee for callee in callees if getattr(callee, "is_input", False)]


def _collect(outputs: list[Symbol], source: Mapping[int, Ref], op: str) -> list[Call]:
    """The calls that the outputs need, in the order they were made."""
    calls: dict[int, Call] = {}
    stack = list(outputs)
    while stack:
        symbol = stack.pop()
        if id(symbol) in source:
            continue
        call = symbol.call
        if call is None or getattr(call.callee, "is_input", False):
            raise GraphError(
                op,
                "the graph is disconnected: an output depends on "
                f"{symbol.name or 'a symbol'!r}, which is not among the inputs",
                {"symbol": symbol},
                hint="Add it to inputs=, or build the outputs from the inputs.",
            )
        if id(call) not in calls:
            calls[id(call)] = call
            leaves = jax.tree.leaves((call.args, call.kwargs))
            stack += [v for v in leaves if isinstance(v, Symbol)]
    return sorted(calls.values(), key=lambda call: call.order)


def assign_names(layers: Iterable[Any]) -> dict[int, str]:
    """Unique names in one model: ``id(layer) -> name``.

    A layer keeps the name it was given. One without gets its class name in snake case,
    numbered within this model: so equal models have equal names, and equal weights.
    """
    unique = list({id(layer): layer for layer in layers}.values())
    names: dict[int, str] = {}
    taken: dict[str, Any] = {}
    for layer in unique:
        if layer._auto_name:
            continue
        if layer.name in taken:
            raise GraphError(
                "Model",
                f"two layers are named {layer.name!r}",
                {"layers": f"{taken[layer.name]!r}, {layer!r}"},
                hint="Names are unique within a model: rename one of them.",
            )
        taken[layer.name] = layer
        names[id(layer)] = layer.name
    for layer in unique:
        if id(layer) in names:
            continue
        name = layer._name
        if name is None or name in taken:
            base = snake_case(type(layer).__name__.lstrip("_"))
            name, i = base, 0
            while name in taken:
                i += 1
                name = f"{base}_{i}"
        if layer._name is None:
            layer._name = name
        taken[name] = layer
        names[id(layer)] = name
    return names


@contextlib.contextmanager
def named_by(keys: Mapping[str, Any]) -> Iterator[None]:
    """Within the block, layers that were renamed have the names that a model knows.

    Paths of weights, and so files, go by the name a layer had when the model was made.
    """
    renamed = [
        (layer, key, layer._name)
        for key, layer in keys.items()
        if is_layer(layer) and not layer._auto_name and layer._name != key
    ]
    try:
        for layer, key, _ in renamed:
            layer._name = key
        yield
    finally:
        for layer, _, name in renamed:
            layer._name = name


def _input_names(tree: Any, symbols: list[Symbol]) -> tuple[str, ...]:
    if isinstance(tree, Mapping) and len(tree) == len(symbols):
        return tuple(sorted(tree))
    return _unique(s.name or "input" for s in symbols)


def _output_names(tree: Any, symbols, nodes, ref) -> tuple[str, ...]:
    if isinstance(tree, Mapping) and len(tree) == len(symbols):
        return tuple(sorted(tree))
    places = [(symbol, ref(symbol).node) for symbol in symbols]
    return tuple(
        nodes[node].name if node >= 0 else symbol.name or "input"
        for symbol, node in places
    )


def _unique(bases: Iterable[str]) -> tuple[str, ...]:
    """The names, with a number behind each that came before."""
    names: list[str] = []
    for base in bases:
        name, i = base, 0
        while name in names:
            i += 1
            name = f"{base}_{i}"
        names.append(name)
    return tuple(names)
