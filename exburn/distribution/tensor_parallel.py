"""Ready layouts for tensor parallelism: which weight is divided along which axis.

A dense layer that is divided by columns computes a part of its features on each device,
and one that reads them divided by rows adds up what the devices have computed: a pair
of layers costs one sum over the devices forward, and one backward. Attention is such a
pair by its heads.

Source: Shoeybi et al., *Megatron-LM: Training Multi-Billion Parameter Language Models
Using Model Parallelism*, 2019, https://arxiv.org/abs/1909.08053
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

from exburn.errors import LayoutError
from exburn.errors.boundary import api_boundary
from exburn.layers import (
    Dense,
    EinsumDense,
    Embedding,
    MixtureOfExperts,
    ReversibleEmbedding,
)
from exburn.layers.contract.projected_attention import ProjectedAttention
from exburn.module.building import require_built
from exburn.module.traversal import children, iter_modules, iter_weights
from exburn.runtime.sharding.layouts import LayoutMap
from exburn.runtime.sharding.mesh import DeviceMesh

# Nodes of a graph through which features pass one by one.
_POINTWISE_LAYERS = frozenset(
    "Activation ActivityRegularization Add AlphaDropout Average Dropout ELU "
    "GaussianDropout GaussianNoise Identity LeakyReLU Maximum Minimum Multiply ReLU "
    "SpatialDropout1D SpatialDropout2D SpatialDropout3D Subtract".split()
)
_POINTWISE_OPERATIONS = frozenset(
    "add celu elu exp gelu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu "
    "maximum minimum mish mul multiply relu relu6 sigmoid silu softplus softsign sqrt "
    "square sub subtract swish tanh".split()
)
# Activations that compute with all features of a layer.
_MIXING = frozenset("glu log_softmax softmax sparsemax sparse_sigmoid".split())

Shape = tuple[int, ...]


@api_boundary
def tensor_parallel(
    model: Any, axis: str = "model", device_mesh: DeviceMesh | None = None
) -> LayoutMap:
    """Layouts that divide a model's dense, attention and embedding layers.

    ================================  ================================================
    two dense layers in a row         the first by columns, the second by rows
    gated pairs, ``gate * up, down``  both first ones by columns, the second by rows
    attention                         query, key and value by heads, the output by rows
    attention with grouped queries    likewise; key and value whole, if their heads are
                                      too few
    embedding                         by vocabulary, or by columns where that does not
                                      divide evenly; its reverse likewise
    a dense layer with as many units  by columns
    as an embedding has rows
    mixtures of experts               by experts
    ================================  ================================================

    All else is whole on every device, and ``model.sharding_summary()`` says why: where
    sizes do not divide evenly, where no layer reads a dense one by rows, or where the
    attributes of a layer do not tell which reads which. A layout never changes what is
    computed.

    Args:
        model: A model with weights.
        axis: The axis of the mesh that divides features.
        device_mesh: The mesh. That of ``compile`` if ``None``, where what does not
            divide evenly along it is left whole.

    Returns:
        A ``LayoutMap`` whose rules are paths of weights. Rules can be added, deleted,
        and replaced: ``del layout[path]; layout[path] = …``.

    Raises:
        NotBuiltError: The model has no weights yet.
        LayoutError: The mesh has no such axis, or nothing can be divided.

    Example:
        >>> import exburn
        >>> up = exburn.layers.Dense(8, "relu", name="up")
        >>> down = exburn.layers.Dense(4, name="down")
        >>> model = exburn.Sequential([exburn.Input((4,)), up, down])
        >>> layout = tensor_parallel(model)
        >>> for path in layout:
        ...     print(path, layout[path].axes)
        up/kernel (None, 'model')
        up/bias ('model',)
        down/kernel ('model', None)
        >>> model.compile("adam", "mse", mesh={"data": 1, "model": 1}, layout=layout)

    Source: Shoeybi et al., *Megatron-LM: Training Multi-Billion Parameter Language
    Models Using Model Parallelism*, 2019, https://arxiv.org/abs/1909.08053
    """
    require_built(model, "tensor_parallel")
    plan = _Planner(model)
    plan.run()
    if not plan.teams:
        raise LayoutError(
            "tensor_parallel",
            "the model has no layers that can be divided",
            {path: reason for path, reason in list(plan.whole.items())[:5]},
            hint='Pass rules of your own, or compile(mesh="fsdp").',
        )
    return TensorParallelMap(plan.teams, plan.whole, axis, device_mesh)


@dataclasses.dataclass(frozen=True)
class Team:
    """Weights that are divided together, or are whole together.

    Attributes:
        options: The axis along which each weight is divided, by its path: the best
            choice first.
        shapes: Their shapes.
        reasons: A few words for each of the options, for the summary.
    """

    options: tuple[dict[str, int], ...]
    shapes: dict[str, Shape]
    reasons: tuple[str, ...]

    def choose(self, parts: int) -> int | None:
        """The first option whose axes so many devices divide evenly."""
        for number, option in enumerate(self.options):
            if all(self.shapes[p][i] % parts == 0 for p, i in option.items()):
                return number
        return None

    def why_whole(self, parts: int) -> str:
        """The size that so many devices cannot divide."""
        sizes = [self.shapes[p][i] for p, i in self.options[0].items()]
        size = next(size for size in sizes if size % parts)
        return f"{self.reasons[0]}: {parts} devices cannot divide {size} evenly"


class TensorParallelMap(LayoutMap):
    """The rules of ``tensor_parallel``, which know along what sizes they divide.

    Args:
        teams: Weights that are divided together.
        whole: Why others are whole, by the path of their layer.
        axis: The axis of the mesh.
        device_mesh: The mesh, if it is known.
    """

    def __init__(
        self,
        teams: list[Team],
        whole: dict[str, str],
        axis: str,
        device_mesh: DeviceMesh | None = None,
    ):
        super().__init__(device_mesh)
        self._teams, self._axis = teams, axis
        self._why: dict[str, str] = dict(whole)
        self._planned: dict[str, tuple] = {}
        if device_mesh is not None and axis not in device_mesh.axis_names:
            raise LayoutError(
                "tensor_parallel",
                f"the mesh has no axis {axis!r}",
                {"axes of the mesh": ", ".join(device_mesh.axis_names)},
                hint="Pass axis=… to tensor_parallel.",
            )
        parts = 1 if device_mesh is None else device_mesh.size(axis)
        for team in teams:
            number = team.choose(parts)
            option = {} if number is None else team.options[number]
            for path, shape in team.shapes.items():
                self._why[path] = (
                    team.why_whole(parts) if number is None else team.reasons[number]
                )
                if path in option:
                    axes: list = [None] * len(shape)
                    axes[option[path]] = axis
                    self._planned[path] = tuple(axes)
                    self[path] = tuple(axes)

    def with_mesh(self, mesh: DeviceMesh) -> LayoutMap:
        """The rules for a mesh: what it cannot divide evenly is left whole.

        Rules that were added or deleted by hand stay so.
        """
        new = TensorParallelMap(self._teams, {}, self._axis, mesh)
        new._why = self._why | new._why
        for path in [*new]:
            if path in self._planned and not self._is_planned(path):
                del new[path]
        for rule, layout in self._rules.items():
            if not self._is_planned(rule):
                new[rule] = layout.axes
        return new

    def check_use(self, paths: Iterable[str], results: Iterable[str] = ()) -> None:
        """Raises if a rule that was added by hand matches nothing.

        Those that were planned may have lost theirs, as by ``model.quantize``.
        """
        own = LayoutMap()
        for rule, layout in self._rules.items():
            if not self._is_planned(rule):
                own[rule] = layout.axes
        own.check_use(paths, results)

    def reason_of(self, path: str) -> str | None:
        """Why a weight is divided, or is whole."""
        rule = self.rule_of(path)
        if rule is not None and not self._is_planned(rule):
            return rule
        parent = path
        while parent and parent not in self._why:
            parent = parent.rpartition("/")[0]
        return self._why.get(parent)

    def _is_planned(self, rule: str) -> bool:
        """Whether a rule is there, and as it was planned."""
        layout = self._rules.get(rule)
        return layout is not None and self._planned.get(rule) == layout.axes


class _Planner:
    """The walk through a model that finds what is divided together."""

    def __init__(self, model: Any):
        self.model = model
        self.teams: list[Team] = []
        self.whole: dict[str, str] = {}
        self._shapes = {p: tuple(w.shape) for p, w, _ in iter_weights(model)}
        self._paths = {id(m): path for path, m in reversed([*iter_modules(model)])}
        self._done: set[int] = set()

    def run(self) -> None:
        modules = [module for _, module in iter_modules(self.model)]
        for module in modules:
            if isinstance(module, ProjectedAttention):
                self._divide_attention(module)
            elif isinstance(module, Embedding):
                self._divide_embedding(module)
            elif isinstance(module, MixtureOfExperts):
                self._divide_experts(module)
        rows = {m.input_dim for m in modules if isinstance(m, Embedding)}
        graphs = {id(m) for m in modules if getattr(m, "graph", None) is not None}
        for module in modules:
            if id(module) in graphs:
                self._divide_graph(module)
        for module in modules:
            if id(module) not in graphs | self._done:
                self._divide_attributes(module)
        for module in modules:
            if _is_product(module) and id(module) not in self._done:
                self._divide_alone(module, rows)
        for module in modules:
            if id(module) not in self._done:
                self._note_unknown(module)

    # ------------------------------------------------------------------ layers
    def _divide_attention(self, layer: ProjectedAttention) -> None:
        into = [layer.query, layer.key, layer.value, layer.gate]
        query, key, value, gate = [p and self._by_columns(p) for p in into]
        out = self._by_rows(layer.attention_output)
        self._done |= {id(p) for p in (*into, layer.attention_output) if p is not None}
        heads, key_heads, _, _ = layer._heads
        whole = query | key | value | (gate or {}) | out
        if not (query and key and value and out):
            self.whole[self._paths[id(layer)]] = "attention whose weights are packed"
            return
        self._note_bias(layer.attention_output)
        options, reasons = [whole], [f"by {heads} heads"]
        if key_heads != heads:
            options.append(query | (gate or {}) | out)
            reasons = [
                f"by {heads} heads of queries, {key_heads} of keys and values",
                f"by {heads} heads of queries; {key_heads} of keys and values are few",
            ]
        self._add(options, reasons)

    def _divide_embedding(self, layer: Embedding) -> None:
        path = self._paths[id(layer)]
        table, back = f"{path}/embeddings", f"{path}/reverse_embeddings"
        self._done.add(id(layer))
        if table not in self._shapes:
            self.whole[path] = "a table in few bits"
            return
        rows, columns = {table: 0}, {table: 1}
        if back in self._shapes:
            rows, columns = rows | {back: 1}, columns | {back: 0}
        adapter = getattr(layer, "_low_rank", None)
        if adapter is not None:  # [rows, rank] and [rank, columns]
            rows |= {f"{path}/{adapter.place}lora_a": 0}
            columns |= {f"{path}/{adapter.place}lora_b": 1}
        options, reasons = [rows, columns], ["by vocabulary", "by columns"]
        if isinstance(layer, ReversibleEmbedding):
            reasons = [f"{reason}, and back" for reason in reasons]
        self._add(options, reasons)

    def _divide_experts(self, layer: MixtureOfExperts) -> None:
        path = self._paths[id(layer)]
        self._done.add(id(layer))
        self.whole[f"{path}/router"] = "each device routes its tokens"
        names = [f"{path}/{name}" for name in ("gate", "up", "down")]
        if not all(name in self._shapes for name in names):
            self.whole[path] = "experts in few bits"
            return
        terms = [  # of adapters, for each expert, too
            weight
            for weight in self._shapes
            if weight.startswith(f"{path}/") and weight.endswith(("lora_a", "lora_b"))
        ]
        whole = dict.fromkeys([*names, *terms], 0)
        self._add([whole], [f"by {layer.experts} experts"])

    def _divide_alone(self, layer: Any, rows: set[int]) -> None:
        path, units = self._paths[id(layer)], math.prod(_sizes(layer)[1])
        self._done.add(id(layer))
        columns = self._by_columns(layer)
        if columns and units in rows:
            self._add([columns], ["by columns, as many as an embedding has rows"])
        else:
            why = "no layer reads its outputs by rows" if columns else "packed weights"
            self.whole.setdefault(path, why)

    def _note_unknown(self, module: Any) -> None:
        path = self._paths[id(module)]
        own = [f"{path}/{name}" if path else name for name, _ in children(module)]
        if any(len(self._shapes.get(weight, ())) > 1 for weight in own):
            self.whole[path] = f"no rule for {type(module).__name__}"

    # ------------------------------------------------------------------ pairs
    def _divide_graph(self, model: Any) -> None:
        """Pairs of a functional model: what reads what is known."""
        layers = {key: m for key, m in children(model) if hasattr(m, "_meta")}
        readers = dict(_readers(model.graph, layers))
        order = [k for k in _targets(model.graph) if _is_product(layers.get(k))]
        for key in order:
            second = layers[key]
            firsts = [k for k in order if readers.get(k) == {key}]
            parts = [layers[k] for k in firsts]
            if parts and not any(id(m) in self._done for m in (*parts, second)):
                self._pair(parts, second)

    def _divide_attributes(self, layer: Any) -> None:
        """Pairs among the attributes of a layer, by their order and sizes."""
        pending: list[Any] = []
        for _, part in children(layer):
            if not _is_product(part) or id(part) in self._done:
                continue
            into, out = map(math.prod, _sizes(part))
            if into == out:
                path = self._paths[id(part)]
                self.whole[path] = "its sizes do not tell which layer reads it"
                pending = []
            elif pending and _sizes(pending[0])[1] == _sizes(part)[0]:
                self._pair(pending, part)
                pending = []
            elif pending and _sizes(pending[0]) == _sizes(part):
                pending.append(part)  # a gate beside it
            else:
                pending = [part]

    def _pair(self, firsts: list[Any], second: Any) -> None:
        columns = [self._by_columns(layer) for layer in firsts]
        rows = self._by_rows(second)
        if not (all(columns) and rows) or any(
            _sizes(layer)[1] != _sizes(second)[0] for layer in firsts
        ):
            return
        self._done |= {id(layer) for layer in (*firsts, second)}
        self._note_bias(second)
        names = ", ".join(layer.name for layer in firsts)
        self._add(
            [{k: v for part in columns for k, v in part.items()} | rows],
            [f"{names} by columns, {second.name} by rows"],
        )

    # ------------------------------------------------------------------ one product
    def _by_columns(self, layer: Any) -> dict[str, int]:
        """The axes of a layer's weights if its outputs are divided; none if packed."""
        path, (_, out) = self._paths[id(layer)], _axes(layer)
        if self._shapes.get(f"{path}/kernel") != tuple(layer.kernel.shape):
            return {}
        axes = {f"{path}/kernel": out[0]}
        bias, size = f"{path}/bias", layer.kernel.shape[out[0]]
        shape = self._shapes.get(bias, ())
        if len(shape) >= len(out) and shape[-len(out)] == size:
            axes[bias] = len(shape) - len(out)
        if (term := getattr(layer, "_low_rank", None)) is not None:
            axes[f"{path}/{term.place}lora_b"] = 1  # [rank, out]
        return axes

    def _by_rows(self, layer: Any) -> dict[str, int]:
        """The axes of a layer's weights if what it reads is divided; none if packed."""
        path, (into, _) = self._paths[id(layer)], _axes(layer)
        if self._shapes.get(f"{path}/kernel") != tuple(layer.kernel.shape):
            return {}
        axes = {f"{path}/kernel": into[0]}
        if (term := getattr(layer, "_low_rank", None)) is not None:
            axes[f"{path}/{term.place}lora_a"] = 0  # [in, rank]
        return axes

    def _note_bias(self, layer: Any) -> None:
        bias = f"{self._paths[id(layer)]}/bias"
        if bias in self._shapes:
            self.whole[bias] = "added once, to the sum over devices"

    def _add(self, options: list[dict[str, int]], reasons: list[str]) -> None:
        paths = dict.fromkeys(path for option in options for path in option)
        shapes = {path: self._shapes[path] for path in paths}
        self.teams.append(Team(tuple(options), shapes, tuple(reasons)))


def _is_product(layer: Any) -> bool:
    """Whether a layer is a product of its input with a kernel, and of all features."""
    if not isinstance(layer, Dense | EinsumDense) or not layer.built:
        return False
    into, out = _axes(layer)
    kernel = len(layer.kernel.shape)
    return bool(into) and bool(out) and len(into) + len(out) == kernel


def _axes(layer: Any) -> tuple[list[int], list[int]]:
    """The kernel's axes that are summed over, and those that the output has."""
    if isinstance(layer, Dense):
        return [0], [1]
    read, kernel, out = layer._terms
    summed = [i for i, c in enumerate(kernel) if c not in out]
    return summed, [i for i, c in enumerate(kernel) if c not in read]


def _sizes(layer: Any) -> tuple[list[int], list[int]]:
    """The sizes of the kernel's axes that are summed over, and of the others."""
    into, out = _axes(layer)
    shape = layer.kernel.shape
    return [shape[i] for i in into], [shape[i] for i in out]


def _targets(graph: Any) -> Iterator[str]:
    """The layers of a graph in the order of their first calls."""
    return iter(dict.fromkeys(n.target for n in graph.nodes if _names_layer(n)))


def _names_layer(node: Any) -> bool:
    return isinstance(node.target, str)


def _readers(graph: Any, layers: dict[str, Any]) -> Iterator[tuple[str, set]]:
    """For each dense layer of a graph the layers that read its features.

    ``None`` among them stands for what reads them in another way, as the outputs do.
    """
    read_by: dict[int, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        for leaf in node.leaves:
            if (source := getattr(leaf, "node", -1)) >= 0:
                read_by.setdefault(source, set()).add(number)
    returned = {ref.node for ref in graph.outputs}

    def follow(number: int) -> Iterator[Any]:
        if number in returned:
            yield None
        for reader in read_by.get(number, ()):
            node = graph.nodes[reader]
            layer = layers.get(node.target) if _names_layer(node) else None
            if _is_product(layer):
                yield node.target
            elif _is_pointwise(node, layer):
                yield from follow(reader)
            else:
                yield None

    for number, node in enumerate(graph.nodes):
        layer = layers.get(node.target) if _names_layer(node) else None
        if layer is not None and _is_product(layer):
            mixes = getattr(layer.activation, "__name__", "") in _MIXING
            yield node.target, {None} if mixes else set(follow(number))


def _is_pointwise(node: Any, layer: Any) -> bool:
    if layer is None:
        name = node.name.rstrip("0123456789").rstrip("_")
        return not _names_layer(node) and name in _POINTWISE_OPERATIONS
    activation = getattr(getattr(layer, "activation", None), "__name__", "")
    return type(layer).__name__ in _POINTWISE_LAYERS and activation not in _MIXING
