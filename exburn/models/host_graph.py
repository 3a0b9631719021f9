"""The part of a functional model that runs on the host, in front of the program.

Programs of JAX have no strings, so lookups are NumPy. A graph with such layers is cut
behind the last of them: what they need runs on the host, on the data before they are
sent, and what is left is the program. Its inputs are a dict: what the host made, by the
name of the call that made it, and the model's inputs that the program reads itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core.symbolic_shapes import describe, is_text, spec_of
from exburn.data import as_values
from exburn.errors import DataError, GraphError
from exburn.module.graph import Graph, Node, Ref
from exburn.module.graph_inputs import of_rank
from exburn.module.symbolic_tensor import Operation
from exburn.module.traversal import iter_modules, iter_weights


@dataclasses.dataclass(frozen=True)
class _Source:
    """Output ``index`` of step ``step``; step -1 is the model's inputs."""

    step: int
    index: int


@dataclasses.dataclass(frozen=True, eq=False)
class _Step:
    """One call on the host.

    Attributes:
        target: The path to the layer: its key, behind those of the models that it is
            in; or an operation.
        leaves, treedef: The arguments, with ``_Source`` where something is taken.
    """

    target: tuple[str, ...] | Operation
    leaves: tuple[Any, ...]
    treedef: Any
    name: str
    specs: tuple[jax.ShapeDtypeStruct, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class HostGraph:
    """What runs on the host, and the program's graph.

    Attributes:
        steps: The calls on the host, in their order.
        sources: For each input of the program where it comes from.
    """

    graph: Graph
    steps: tuple[_Step, ...]
    sources: tuple[_Source, ...]
    program: Graph

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the program's inputs."""
        return self.program.input_names

    @property
    def lookups(self) -> tuple[str, ...]:
        """Names of the calls on the host."""
        return tuple(step.name for step in self.steps)

    @property
    def specs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Specs of the program's inputs by name."""
        return dict(zip(self.names, self.program.inputs, strict=True))

    @property
    def host_inputs(self) -> frozenset[int]:
        """Numbers of the model's inputs that something on the host reads."""
        leaves = (leaf for step in self.steps for leaf in step.leaves)
        return frozenset(
            leaf.index for leaf in leaves if isinstance(leaf, _Source) and leaf.step < 0
        )

    def runs_in_program(self, nodes: Any, layer: Any) -> bool:
        """Whether a layer is called in the program, not only on the host."""
        called = (node.target for node in self.program.nodes)
        return any(nodes[key] is layer for key in called if isinstance(key, str))

    def reads(self, nodes: Any, layer: Any) -> bool:
        """Tells whether the part that runs on the host depends on a layer."""
        called = (_target(nodes, step.target) for step in self.steps)
        return any(
            part is layer
            for target in called
            if isinstance(target, nnx.Module)
            for _, part in iter_modules(target)
        )

    def is_encoded(self, inputs: Any) -> bool:
        """Whether these are inputs of the program, which ``encode`` made."""
        return isinstance(inputs, Mapping) and {*inputs} == {*self.names}

    def encode(self, nodes: Any, inputs: Any) -> dict[str, Any]:
        """The program's inputs for inputs of the model."""
        graph = self.graph
        values = graph.order_inputs(as_values(inputs, len(graph.inputs)))
        for i in self.host_inputs:
            spec, name = graph.inputs[i], graph.input_names[i]
            values[i] = _on_host(values[i], spec, name, graph.axes[i])
        results: list[list[Any]] = []

        def fetch(leaf: Any) -> Any:
            if not isinstance(leaf, _Source):
                return leaf
            return (values if leaf.step < 0 else results[leaf.step])[leaf.index]

        for step in self.steps:
            args, kwargs = jax.tree.unflatten(step.treedef, map(fetch, step.leaves))
            results.append(_run(_target(nodes, step.target), args, kwargs))
        return dict(zip(self.names, map(fetch, self.sources), strict=True))


def split_off(graph: Graph, nodes: Any) -> HostGraph | None:
    """What of a graph runs on the host; ``None`` if all of it is a program."""
    whole = {i for i, node in enumerate(graph.nodes) if _is_on_host(node, nodes)}
    inner = {
        i: within
        for i, node in enumerate(graph.nodes)
        if i not in whole and (within := _inner(node, nodes)) is not None
    }
    if not whole and not inner:
        return None
    needed = _host_calls(graph, whole, inner)
    for i in sorted(needed - whole):
        _require_no_weights(graph.nodes[i], nodes, graph, whole)
    return _Cut(graph, needed, inner).result()


class _Cut:
    """A graph, cut: the calls on the host are collected, then the others."""

    def __init__(self, graph: Graph, needed: set[int], inner: dict[int, HostGraph]):
        self.graph, self.needed, self.inner = graph, needed, inner
        self.steps: list[_Step] = []
        self.place: dict[int, int] = {}  # of nodes on the host: the step
        self.sources: list[_Source] = []
        self.names: list[str] = []

    def result(self) -> HostGraph:
        graph = self.graph
        inlined: dict[int, list[_Source | None]] = {}  # of nodes with an inner part
        for i, node in enumerate(graph.nodes):
            if i in self.needed:
                self.place[i] = len(self.steps)
                self.steps.append(self._step(node))
            elif i in self.inner:
                inlined[i] = self._inline(node, self.inner[i])
        numbers: dict[int, int] = {}
        program: list[Node] = []
        for i, node in enumerate(graph.nodes):
            if i in self.needed:
                continue
            numbers[i] = len(program)
            if i in self.inner:
                node = self._call_of_inner(node, self.inner[i], inlined[i], numbers)
            else:
                leaves = tuple(self._ref(leaf, numbers) for leaf in node.leaves)
                node = dataclasses.replace(node, leaves=leaves)
            program.append(node)
        outputs = tuple(self._ref(ref, numbers) for ref in graph.outputs)
        specs = [self._spec(source) for source in self.sources]
        for name, spec in zip(self.names, specs, strict=True):
            if is_text(spec):
                raise GraphError(
                    "Model",
                    f"{name!r} holds strings, which an output cannot be",
                    hint="Return their numbers, and look the strings up afterwards: "
                    "StringLookup(invert=True)(model.predict(x)).",
                )
        inputs = [v.index if v.step < 0 else None for v in self.sources]
        return HostGraph(
            graph,
            tuple(self.steps),
            tuple(self.sources),
            dataclasses.replace(
                graph,
                inputs=tuple(specs),
                input_names=tuple(self.names),
                input_tree=jax.tree.structure(dict.fromkeys(self.names, 0)),
                nodes=tuple(program),
                outputs=outputs,
                axes=tuple(None if i is None else graph.axes[i] for i in inputs),
                optional=tuple(i is not None and graph.optional[i] for i in inputs),
                order=(),  # of the model's layers, which the whole graph tells
            ),
        )

    def _step(self, node: Node) -> _Step:
        target = node.target if isinstance(node.target, Operation) else (node.target,)
        leaves = tuple(map(self._source_of, node.leaves))
        return _Step(target, leaves, node.treedef, node.name, _specs(node))

    def _source_of(self, leaf: Any) -> Any:
        """Where something on the host comes from."""
        if not isinstance(leaf, Ref):
            return leaf
        at = -1 if leaf.node < 0 else self.place[leaf.node]
        return _Source(at, leaf.index)

    def _inline(self, node: Node, inner: HostGraph) -> list[_Source | None]:
        """Makes a nested model's calls on the host part of these.

        Returns:
            For each input of its program where it comes from; ``None`` if that is an
            input of its own.
        """
        start, sources = len(self.steps), _inner_inputs(node, inner)

        def move(leaf: Any) -> Any:
            if not isinstance(leaf, _Source):
                return leaf
            if leaf.step < 0:
                return self._source_of(sources[leaf.index])
            return _Source(start + leaf.step, leaf.index)

        for step in inner.steps:
            target = step.target
            if not isinstance(target, Operation):
                assert isinstance(node.target, str)
                target = (node.target, *target)
            self.steps.append(
                dataclasses.replace(
                    step,
                    target=target,
                    leaves=tuple(map(move, step.leaves)),
                    name=f"{node.name}/{step.name}",
                )
            )
        return [None if v.step < 0 else move(v) for v in inner.sources]

    def _call_of_inner(
        self,
        node: Node,
        inner: HostGraph,
        sources: list[_Source | None],
        numbers: Mapping[int, int],
    ) -> Node:
        """The call of a nested model on the inputs of its program."""
        inner_inputs = _inner_inputs(node, inner)
        inputs = zip(inner.names, inner.sources, sources, strict=True)
        values = {
            name: self._ref(inner_inputs[own.index], numbers)
            if source is None
            else self._input_for(source)
            for name, own, source in inputs
        }
        args, kwargs = jax.tree.unflatten(node.treedef, node.leaves)
        rest, kwargs = jax.tree.map(
            lambda leaf: self._ref(leaf, numbers), (args[1:], kwargs)
        )
        leaves, treedef = jax.tree.flatten(((values, *rest), kwargs))
        return dataclasses.replace(node, leaves=tuple(leaves), treedef=treedef)

    def _ref(self, leaf: Any, numbers: Mapping[int, int]) -> Any:
        """Where a call of the program takes what a call of the graph took."""
        if not isinstance(leaf, Ref):
            return leaf
        if leaf.node >= 0 and leaf.node not in self.needed:
            return Ref(numbers[leaf.node], leaf.index)
        return self._input_for(self._source_of(leaf))

    def _input_for(self, source: _Source) -> Ref:
        """The input of the program that brings this."""
        if source not in self.sources:
            self.sources.append(source)
            self.names.append(self._name(source))
        return Ref(-1, self.sources.index(source))

    def _name(self, source: _Source) -> str:
        if source.step < 0:
            return self.graph.input_names[source.index]
        step, base = self.steps[source.step], self.steps[source.step].name
        base = f"{base}_{source.index}" if len(step.specs) > 1 else base
        name, i = base, 0
        while name in self.names or name in self.graph.input_names:
            i += 1
            name = f"{base}_{i}"
        return name

    def _spec(self, source: _Source) -> jax.ShapeDtypeStruct:
        if source.step < 0:
            return self.graph.inputs[source.index]
        return self.steps[source.step].specs[source.index]


def _specs(node: Node) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(map(spec_of, node.shapes, node.dtypes))


def _is_on_host(node: Node, nodes: Any) -> bool:
    """Whether a call works on strings, or in NumPy, whatever else is in the graph."""
    if any(map(is_text, _specs(node))):
        return True
    layer = None if isinstance(node.target, Operation) else nodes[node.target]
    return getattr(layer, "on_host", False)


def _inner(node: Node, nodes: Any) -> HostGraph | None:
    """What of a nested model runs on the host."""
    layer = None if isinstance(node.target, Operation) else nodes[node.target]
    return getattr(layer, "host_graph", None)


def _inner_inputs(node: Node, inner: HostGraph) -> list[Any]:
    """What a nested model is called on, in the order of its inputs."""
    args, _ = jax.tree.unflatten(node.treedef, node.leaves)
    return inner.graph.order_inputs(args[0])


def _host_calls(
    graph: Graph, whole: Iterable[int], inner: Mapping[int, HostGraph]
) -> set[int]:
    """The calls on the host: those that must be there, and what they need."""
    needed = set(whole)
    for i in reversed(range(len(graph.nodes))):
        leaves: Iterable[Any] = ()
        if i in needed:
            leaves = graph.nodes[i].leaves
        elif i in inner:
            sources = _inner_inputs(graph.nodes[i], inner[i])
            leaves = [sources[k] for k in inner[i].host_inputs]
        needed |= {v.node for v in leaves if isinstance(v, Ref) and v.node >= 0}
    return needed


def _require_no_weights(node: Node, nodes: Any, graph: Graph, whole: set[int]) -> None:
    """Raises if a call would have to train in front of the program."""
    if isinstance(node.target, Operation):
        return
    if not any(True for _ in iter_weights(nodes[node.target])):
        return
    after = next(graph.nodes[i].name for i in sorted(whole))
    raise GraphError(
        "Model",
        f"the layer {node.name!r} has weights, and so is part of the program, but a "
        f"layer that works on the host, such as {after!r}, needs what it computes",
        hint="Call lookups on inputs, before any layer with weights.",
    )


def _target(nodes: Any, target: tuple[str, ...] | Operation) -> Any:
    if isinstance(target, Operation):
        return target
    *models, key = target
    for name in models:
        nodes = nodes[name].nodes
    return nodes[key]


def _run(target: Callable, args: tuple, kwargs: dict) -> list[Any]:
    """What a call on the host gives, as NumPy arrays."""
    if getattr(target, "on_host", False):
        return [*map(np.asarray, jax.tree.leaves(target(*args, **kwargs)))]
    arrays = [v for v in jax.tree.leaves((args, kwargs)) if isinstance(v, np.ndarray)]
    texts = [v for v in arrays if is_text(v)]
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        if not texts:
            return [*map(np.asarray, jax.tree.leaves(target(*args, **kwargs)))]
        return [*_move(target, texts, args, kwargs)]


def _move(
    target: Callable, texts: list[np.ndarray], args: tuple, kwargs: dict
) -> Iterator[np.ndarray]:
    """Moves strings as the call would move their places, which are numbers."""
    flat = np.concatenate([v.reshape(-1) for v in texts])
    starts = np.cumsum([0, *(v.size for v in texts)])
    numbered = {
        id(v): np.arange(start, start + v.size, dtype=np.int32).reshape(v.shape)
        for v, start in zip(texts, starts[:-1], strict=True)
    }
    args, kwargs = jax.tree.map(lambda v: numbered.get(id(v), v), (args, kwargs))
    for places in jax.tree.leaves(target(*args, **kwargs)):
        yield flat[np.asarray(places)]


def _on_host(value: Any, spec: Any, name: str, axes: Any) -> np.ndarray:
    """One of the model's inputs as a NumPy array of its rank."""
    if value is None:
        raise DataError(
            "model", f"the input {name!r} is None, but a lookup needs its values"
        )
    array = np.asarray(value)
    if is_text(spec) and not is_text(array):
        raise DataError(
            "model",
            f"the input {name!r} must hold strings, received {describe(array)}",
            hint=f"Convert it: x.astype(str), or make the input Input(…, "
            f"dtype={array.dtype.name!r}).",
        )
    return of_rank(array, spec, name, axes, False)
