"""The way of units from layer to layer: one rule for each kind of layer."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn import layers
from exburn.compression.channels import feedforward, sequences, shapes
from exburn.compression.channels.units import ELSEWHERE, Channels, LayerCall, Units
from exburn.core.batch_independence import is_foreign, our_class
from exburn.layers.convolution.conv import Conv
from exburn.layers.convolution.depthwise import DepthwiseConv, SeparableConv
from exburn.layers.convolution.transposed import ConvTranspose
from exburn.layers.pooling.adaptive import AdaptivePooling
from exburn.layers.pooling.global_pooling import GlobalPooling
from exburn.layers.pooling.window import Pooling
from exburn.layers.regularization.noise import Noise, SpatialDropout
from exburn.layers.reshaping.border import Cropping, ZeroPadding
from exburn.layers.reshaping.upsampling import UpSampling
from exburn.models import Model
from exburn.module.graph import Graph, Node, Ref
from exburn.module.selection import layer_paths

_BY_ENTRY = (  # what computes each entry by itself, or over positions only
    layers.Activation,
    layers.ActivityRegularization,
    layers.ELU,
    layers.Identity,
    layers.LeakyReLU,
    layers.ReLU,
    layers.Rescaling,
    AdaptivePooling,
    Cropping,
    Noise,
    Pooling,
    SpatialDropout,
    UpSampling,
    ZeroPadding,
)
_MERGES = (
    layers.Add,
    layers.Subtract,
    layers.Multiply,
    layers.Average,
    layers.Maximum,
    layers.Minimum,
)
_OPERATIONS = frozenset(  # functions of one tensor, entry by entry
    "abs absolute cast clip elu exp gelu hard_sigmoid hard_silu hard_swish hard_tanh "
    "identity leaky_relu log_sigmoid negative relu relu6 selu sigmoid silu softplus "
    "softsign sqrt square swish tanh".split()
)
_JOINING = frozenset("add divide maximum minimum multiply subtract true_divide".split())
_REDUCTIONS = frozenset("amax amin max mean min prod std sum var".split())


def follow(model: Model) -> Units:
    """The units of a model made of symbols."""
    return _Walk(model).units


def input_name(path: str, number: int) -> str:
    """What stands for an input of a model within the model, as a weight would."""
    return f"{path}/input {number}"


class _Walk:
    """One walk through the graph of a model, and of the models in it."""

    def __init__(self, model: Model):
        self.units = Units()
        self._paths = {id(layer): path for path, layer in layer_paths(model).items()}
        graph: Any = model.graph  # of symbols: others are refused before
        outputs = self._follow(graph, model, [None] * len(graph.inputs))
        for one in outputs:
            if one is not None:
                self.units.fix(one.ids)

    def _follow(self, graph: Graph, model: Any, inputs: list) -> list:
        produced: list[list[Channels | None]] = []
        nodes = dict(model._node_items())

        def fetch(ref: Ref) -> Channels | None:
            return inputs[ref.index] if ref.node < 0 else produced[ref.node][ref.index]

        def shape(ref: Ref) -> tuple:
            if ref.node < 0:
                return tuple(graph.inputs[ref.index].shape)
            return graph.nodes[ref.node].shapes[ref.index]

        for node in graph.nodes:
            refs = [leaf for leaf in node.leaves if isinstance(leaf, Ref)]
            units_in = [fetch(ref) for ref in refs]
            layer: Any = nodes[node.target] if isinstance(node.target, str) else None
            inner = getattr(layer, "graph", None)
            if inner is not None and len(units_in) == len(inner.inputs):
                for number, one in enumerate(units_in):
                    name = input_name(self._paths[id(layer)], number)
                    if one is not None:
                        self.units.lie(name, one.axis, one.ids)
                produced.append(self._follow(inner, layer, units_in))
                continue
            sizes = [shape(ref) for ref in refs]
            if layer is None:
                where, result = repr(node.name), self._operation(node, units_in, sizes)
            else:
                path = self._paths[id(layer)]
                names, out = _argument_names(layer, node), list(node.shapes)
                call = LayerCall(layer, path, units_in, sizes, out, names)
                where, result = f"{path!r} ({type(layer).__name__})", self._call(call)
            if isinstance(result, str):
                for one in units_in:
                    if one is not None:
                        self.units.block(one.ids, f"{where} {result}")
                result = None
            outputs = result if isinstance(result, list) else [result]
            produced.append(outputs + [None] * (len(node.shapes) - len(outputs)))
        return [fetch(ref) for ref in graph.outputs]

    def _call(self, call: LayerCall) -> Any:
        rule = _rule_of(call.layer)
        return (
            "is a layer that is not followed"
            if rule is None
            else rule(self.units, call)
        )

    def _operation(self, node: Any, units_in: list, sizes: list) -> Any:
        """A function on symbols, as ``x + y`` or ``ops.relu(x)``."""
        if all(one is None for one in units_in):
            return None
        name = node.target.name.rstrip("_0123456789")
        rank = len(node.shapes[0])
        args, kwargs = jax.tree.unflatten(node.treedef, node.leaves)
        rest = args[1:]
        if name == "get_item" and len(units_in) == 1:
            return shapes.get_item(units_in[0], rest[0], rank)
        if (
            name in _REDUCTIONS
            and len(units_in) == 1
            and kwargs.keys() <= {"axis", "keepdims"}
        ):
            axis = kwargs.get("axis", rest[0] if rest else None)
            return shapes.reduction(units_in[0], axis, rank)
        axis = kwargs.get("axis", rest[0] if rest else 0)
        whole = name == "concatenate" and len(jax.tree.leaves(args[0])) == len(units_in)
        if whole and isinstance(axis, int):
            return shapes.join(self.units, units_in, sizes, axis % rank)
        fixed = [
            leaf for leaf in jax.tree.leaves(node.leaves) if not isinstance(leaf, Ref)
        ]
        numbers = all(np.ndim(leaf) == 0 for leaf in fixed)
        if name in _JOINING and numbers:
            return shapes.tie_all(self.units, units_in, sizes, rank)
        if name in _OPERATIONS and len(units_in) == 1 and numbers:
            return units_in[0]
        return "is an operation that is not followed"


def _argument_names(layer: Any, node: Node) -> list[str]:
    """For each tensor of a call, the name of the argument that holds it."""
    places = list(range(len(node.leaves)))
    args, kwargs = jax.tree.unflatten(node.treedef, places)
    bound = inspect.signature(layer.call).bind_partial(*args, **kwargs)
    names = {
        place: name
        for name, value in bound.arguments.items()
        for place in jax.tree.leaves(value)
    }
    return [names[at] for at in places if isinstance(node.leaves[at], Ref)]


def _time_distributed(units: Units, call: LayerCall) -> Any:
    """A layer without the axis of time."""
    rule = _rule_of(call.layer.layer)
    if rule is None:
        return f"is around a {type(call.layer.layer).__name__}, which is not followed"
    if any(one is not None and one.axis < 2 for one in call.inputs):
        return ELSEWHERE

    def move(one: Channels | None, by: int) -> Channels | None:
        return one and dataclasses.replace(one, axis=one.axis + by, rank=one.rank + by)

    result = rule(
        units,
        call.of(
            "layer",
            inputs=[move(one, -1) for one in call.inputs],
            shapes=[(shape[0], *shape[2:]) for shape in call.shapes],
            out=[(shape[0], *shape[2:]) for shape in call.out],
        ),
    )
    if isinstance(result, str):
        return result
    return [move(one, 1) for one in (result if isinstance(result, list) else [result])]


def _bidirectional(units: Units, call: LayerCall) -> Any:
    """Two layers that have the rule of recurrent ones."""
    for part in (call.layer.forward_layer, call.layer.backward_layer):
        if _rule_of(part) is not sequences.recurrent:
            return f"is around a {type(part).__name__}, which is not followed"
    return sequences.bidirectional(units, call)


_Rule = Callable[[Units, LayerCall], Any]
_RULES: tuple[tuple[Any, _Rule | None], ...] = (
    (layers.Dense, feedforward.dense),
    (SeparableConv, feedforward.separable_conv),
    (DepthwiseConv, feedforward.depthwise_conv),
    (ConvTranspose, feedforward.transposed_conv),
    (Conv, feedforward.conv),
    (layers.BatchNormalization, feedforward.batch_norm),
    ((layers.LayerNormalization, layers.RMSNormalization), feedforward.layer_norm),
    (layers.PReLU, feedforward.prelu),
    (GlobalPooling, feedforward.global_pooling),
    (_BY_ENTRY, feedforward.by_entry),
    (layers.Concatenate, shapes.concatenate),
    (_MERGES, shapes.merge),
    (layers.Flatten, shapes.flatten),
    (layers.Permute, shapes.permute),
    (layers.RepeatVector, shapes.repeat_vector),
    (layers.Reshape, shapes.reshape),
    (layers.ReversibleEmbedding, None),  # makes logits of vectors, too
    (layers.Embedding, sequences.embedding),
    (layers.PositionEmbedding, sequences.position_embedding),
    (
        (layers.MultiHeadAttention, layers.GroupQueryAttention),
        sequences.attention,
    ),
    (layers.Attention, sequences.dot_attention),
    ((layers.SimpleRNN, layers.LSTM, layers.GRU), sequences.recurrent),
    (layers.Bidirectional, _bidirectional),
    (layers.TimeDistributed, _time_distributed),
)


def _rule_of(layer: Any) -> _Rule | None:
    """The rule for a layer; a user's class with a ``call`` of its own has none."""
    cls = type(layer)
    if is_foreign(cls) and cls.call is not our_class(cls).call:
        return None
    return next((rule for kinds, rule in _RULES if isinstance(layer, kinds)), None)
