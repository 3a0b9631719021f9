"""The way of units from layer to layer: one rule for each kind of layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn import layers
from exburn.activations import acts_on_rows
from exburn.compression.channels.units import Channels, Units
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
from exburn.module.graph import Graph, Ref
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
    "abs cast clip elu exp gelu hard_sigmoid hard_silu hard_swish hard_tanh identity "
    "leaky_relu log_sigmoid negative relu relu6 selu sigmoid silu softplus softsign "
    "sqrt square swish tanh".split()
)
_JOINING = frozenset("add divide maximum minimum multiply subtract true_divide".split())
_WHOLE_ROWS = frozenset("softmax log_softmax sparsemax sparse_plus glu".split())


def input_name(path: str, number: int) -> str:
    """What stands for an input of a model within the model, as a weight would."""
    return f"{path}/input {number}"


class Walk:
    """One walk through the graph of a model, and of the models in it.

    Args:
        model: A model made of symbols.
        op: The operation named in errors.
    """

    def __init__(self, model: Model, op: str):
        self.units, self._op = Units(), op
        self._paths = {id(layer): path for path, layer in layer_paths(model).items()}
        outputs = self._follow(model.graph, model, [None] * len(model.graph.inputs))
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
            given = [fetch(ref) for ref in refs]
            shapes = [shape(ref) for ref in refs]
            layer: Any = None
            if isinstance(node.target, str):
                layer = nodes[node.target]
            inner = getattr(layer, "graph", None)
            if inner is not None and len(given) == len(inner.inputs):
                for number, one in enumerate(given):
                    name = input_name(self._paths[id(layer)], number)
                    if one is not None:
                        self.units.lie(name, one.axis, one.ids)
                produced.append(self._follow(inner, layer, given))
                continue
            result: Any = None
            if layer is not None:
                rule = _rule_of(layer)
                result = (
                    rule(self, layer, given, shapes, node.shapes[0]) if rule else _NO
                )
            else:
                result = self._operation(node, given, shapes)
            if isinstance(result, str):
                path = node.name if layer is None else self._paths[id(layer)]
                kind = "" if layer is None else f" ({type(layer).__name__})"
                for one in given:
                    if one is not None:
                        self.units.block(one.ids, f"{path!r}{kind} {result}")
                result = None
            produced.append([result] + [None] * (len(node.shapes) - 1))
        return [fetch(ref) for ref in graph.outputs]

    # -------------------------------------------------------------- kinds of layers
    def dense(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path = given, self._paths[id(layer)]
        rank = len(out)
        if one is not None and one.axis != rank - 1:
            return "sums over an axis that is not that of the units"
        self.units.lie(f"{path}/kernel", 0, _ids(one))
        return self._made(layer, path, "units", "kernel", 1, rank - 1, rank)

    def conv(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path, rank = given, self._paths[id(layer)], len(out)
        axis = self._channel_axis(layer, rank)
        if _lies_elsewhere(one, axis):
            return _ELSEWHERE
        if layer.groups > 1:
            return "computes groups of channels"
        self.units.lie(f"{path}/kernel", layer.kernel.ndim - 2, _ids(one))
        end = layer.kernel.ndim - 1
        return self._made(layer, path, "filters", "kernel", end, axis, rank)

    def transposed(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path, rank = given, self._paths[id(layer)], len(out)
        axis = self._channel_axis(layer, rank)
        if _lies_elsewhere(one, axis):
            return _ELSEWHERE
        end = layer.kernel.ndim - 1
        self.units.lie(f"{path}/kernel", end, _ids(one))
        return self._made(layer, path, "filters", "kernel", end - 1, axis, rank)

    def depthwise(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path, rank = given, self._paths[id(layer)], len(out)
        self.units.lie(f"{path}/kernel", layer.kernel.ndim - 2, _ids(one))
        if one is None:
            return None
        if one.axis != self._channel_axis(layer, rank):
            return _ELSEWHERE
        ids = np.repeat(one.ids, layer.depth_multiplier)  # side by side
        self._check_activation(layer, ids)
        if layer.bias is not None:
            self.units.lie(f"{path}/bias", 0, ids)
        if layer.depth_multiplier == 1:
            kernel = np.abs(np.asarray(layer.kernel))
            self.units.scale(one.ids, kernel.reshape(-1, len(one.ids)).mean(0))
        return Channels(ids, one.axis, rank)

    def separable(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path, rank = given, self._paths[id(layer)], len(out)
        axis = self._channel_axis(layer, rank)
        if _lies_elsewhere(one, axis):
            return _ELSEWHERE
        ids = None if one is None else np.repeat(one.ids, layer.depth_multiplier)
        self.units.lie(f"{path}/depthwise_kernel", layer.rank, _ids(one))
        self.units.lie(f"{path}/pointwise_kernel", layer.rank, ids)
        name, end = "pointwise_kernel", layer.rank + 1
        return self._made(layer, path, "filters", name, end, axis, rank)

    def _made(
        self, layer: Any, path: str, option: str, name: str, end: int, axis: int, rank
    ) -> Any:
        """The units that a layer makes, the same ones at each of its calls."""
        kernel = getattr(layer, name)
        known = self.units.producers.get(path)
        ids = self.units.make(path, option, kernel, end) if known is None else known.ids
        self.units.lie(f"{path}/{name}", end, ids)
        if getattr(layer, "bias", None) is not None:
            self.units.lie(f"{path}/bias", 0, ids)
        self._check_activation(layer, ids)
        return Channels(ids, axis, rank)

    def _check_activation(self, layer: Any, ids: np.ndarray) -> None:
        """Notes units that an activation sees together; those of outputs stay."""
        if not _by_entry(getattr(layer, "activation", None)):
            path, kind = self._paths[id(layer)], type(layer).__name__
            self.units.block(ids, f"{path!r} ({kind}) computes with all of them")

    def batch_norm(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,) = given
        if one is None:
            self._lie_all(layer, None)
            return None
        if layer.axis % len(out) != one.axis:
            return "normalizes another axis"
        self._lie_all(layer, one)
        if layer.gamma is not None:
            variance = np.asarray(layer.moving_variance)
            gain = np.abs(np.asarray(layer.gamma)) / np.sqrt(variance + layer.epsilon)
            self.units.scale(one.ids, gain)
        return one

    def layer_norm(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,) = given
        if one is None:
            self._lie_all(layer, None)
            return None
        axes = layer.axis if isinstance(layer.axis, list | tuple) else [layer.axis]
        if [axis % len(out) for axis in axes] != [one.axis]:
            return "normalizes other axes than that of the units alone"
        self._lie_all(layer, one)
        return one

    def prelu(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path = given, self._paths[id(layer)]
        for axis, size in enumerate(layer.alpha.shape):
            if size > 1 and (one is None or one.axis == axis + 1):
                self.units.lie(f"{path}/alpha", axis, _ids(one))
        return one

    def _lie_all(self, layer: Any, one: Channels | None) -> None:
        path = self._paths[id(layer)]
        names = "gamma", "beta", "scale", "moving_mean", "moving_variance"
        for name in names:
            weight = vars(layer).get(name)
            if getattr(weight, "ndim", None) == 1:
                self.units.lie(f"{path}/{name}", 0, _ids(one))

    def by_entry(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,) = given
        if one is None:
            return None
        self._check_activation(layer, one.ids)
        noise = getattr(layer, "noise_shape", None)
        if noise is not None and noise[one.axis] not in (None, 1):
            return "has a noise_shape of as many units"
        if getattr(layer, "data_format", None):
            if one.axis != self._channel_axis(layer, len(out)):
                return _ELSEWHERE
        return one

    def global_pooling(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,) = given
        if one is None:
            return None
        if one.axis != self._channel_axis(layer, one.rank):
            return _ELSEWHERE
        axis = one.axis if layer.keepdims else 1
        return Channels(one.ids, axis, len(out))

    def flatten(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        first = getattr(layer, "data_format", "") == "channels_first"
        return self._flat(given[0], shapes[0], first and len(shapes[0]) > 2)

    def _flat(self, one: Channels | None, shape: tuple, moves: bool = False) -> Any:
        """One axis of all: before the units and behind them are positions."""
        if one is None:
            return None
        before, behind = shape[1 : one.axis], shape[one.axis + 1 :]
        if moves and one.axis == 1:
            before, behind = behind, ()
        if any(not isinstance(size, int) for size in (*before, *behind)):
            return "flattens axes of unknown sizes"
        ids = np.tile(np.repeat(one.ids, math.prod(behind)), math.prod(before))
        return Channels(ids, 1, 2)

    def reshape(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        (one,), path = given, self._paths[id(layer)]
        if one is None:
            return None
        target, size = list(layer.target_shape), len(one.ids)
        if len(out) == 2:
            flat = self._flat(one, shapes[0])
            if isinstance(flat, Channels) and target[0] != -1:
                self.units.sizes[path, "target_shape"] = flat.ids, 0
            return flat
        if one.axis == one.rank - 1 and out[-1] == size:
            if target[-1] != -1:
                self.units.sizes[path, "target_shape"] = one.ids, len(target) - 1
            elif any(not isinstance(s, int) or s == -1 for s in target[:-1]):
                return "has axes of unknown sizes"
            return Channels(one.ids, len(out) - 1, len(out))
        return "moves units to other axes"

    def concatenate(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        return self._joined(given, shapes, layer.axis % len(out), len(out))

    def _joined(self, given: list, shapes: list, axis: int, rank: int) -> Any:
        if all(one is None for one in given):
            return None
        places = {one.axis for one in given if one is not None}
        if len(places) > 1:
            return "joins units that lie along different axes"
        if places != {axis}:
            return self._together(given, shapes, rank)
        if all(one is not None for one in given):
            return Channels(np.concatenate([one.ids for one in given]), axis, rank)
        # Channels that are no units, an input's, get numbers of units that stay.
        parts = []
        for one, shape in zip(given, shapes, strict=True):
            if one is None and not isinstance(shape[axis], int):
                return "joins an axis of unknown size"
            parts.append(self._standing(shape[axis]) if one is None else one.ids)
        return Channels(np.concatenate(parts), axis, rank)

    def _standing(self, count: int) -> np.ndarray:
        ids = self.units.make("", "", np.ones((1, count)), 1)
        del self.units.producers[""]
        self.units.fix(ids)
        return ids

    def merge(self, layer: Any, given: list, shapes: list, out: tuple) -> Any:
        return self._together(given, shapes, len(out))

    def _together(self, given: list, shapes: list, rank: int) -> Any:
        """Tensors whose units lie over each other: they go together."""
        known = [one for one in given if one is not None]
        if not known:
            return None
        wide = max(known, key=lambda one: len(one.ids))
        # Counted from the end: a tensor of lower rank is broadcast.
        place = wide.axis - wide.rank
        for one, shape in zip(given, shapes, strict=True):
            single = -place > len(shape) or shape[place] == 1
            if one is None:
                if not single:
                    self.units.fix(wide.ids)
            elif one.axis - one.rank != place and len(one.ids) > 1:
                return "joins units that lie along different axes"
            elif not single and len(one.ids) == len(wide.ids):
                self.units.tie(one.ids, wide.ids)
            elif not single:
                return "joins different numbers of units"
            elif len(one.ids) == 1:
                self.units.fix(one.ids)
        return Channels(wide.ids, rank + place, rank)

    def _operation(self, node: Any, given: list, shapes: list) -> Any:
        """A function on symbols, as ``x + y`` or ``ops.relu(x)``."""
        if all(one is None for one in given):
            return None
        name = node.target.name.rstrip("_0123456789")
        rank = len(node.shapes[0])
        fixed = [
            leaf for leaf in jax.tree.leaves(node.leaves) if not isinstance(leaf, Ref)
        ]
        numbers = all(np.ndim(leaf) == 0 for leaf in fixed)
        if name in _JOINING and numbers:
            return self._together(given, shapes, rank)
        if name in _OPERATIONS and len(given) == 1 and numbers:
            return given[0]
        return "is an operation that is not followed"

    def _channel_axis(self, layer: Any, rank: int) -> int:
        return 1 if layer.data_format == "channels_first" else rank - 1


def _ids(one: Channels | None) -> np.ndarray | None:
    return None if one is None else one.ids


def _lies_elsewhere(one: Channels | None, axis: int) -> bool:
    return one is not None and one.axis != axis


_NO = "is a layer that is not followed"
_ELSEWHERE = "reads channels along another axis"

_Rule = Callable[[Walk, Any, list, list, tuple], Any]
_RULES: tuple[tuple[Any, _Rule], ...] = (
    (layers.Dense, Walk.dense),
    (SeparableConv, Walk.separable),
    (DepthwiseConv, Walk.depthwise),
    (ConvTranspose, Walk.transposed),
    (Conv, Walk.conv),
    (layers.BatchNormalization, Walk.batch_norm),
    ((layers.LayerNormalization, layers.RMSNormalization), Walk.layer_norm),
    (layers.PReLU, Walk.prelu),
    (GlobalPooling, Walk.global_pooling),
    (layers.Flatten, Walk.flatten),
    (layers.Reshape, Walk.reshape),
    (layers.Concatenate, Walk.concatenate),
    (_MERGES, Walk.merge),
    (_BY_ENTRY, Walk.by_entry),
)


def _rule_of(layer: Any) -> _Rule | None:
    """The rule for a layer; a user's class with a ``call`` of its own has none."""
    cls = type(layer)
    if is_foreign(cls) and cls.call is not our_class(cls).call:
        return None
    return next((rule for kinds, rule in _RULES if isinstance(layer, kinds)), None)


def _by_entry(activation: Any) -> bool:
    """Whether an activation computes each entry by itself; of unknown ones: yes."""
    if activation is None:
        return True
    name = getattr(activation, "__name__", type(activation).__name__.lower())
    if name in _WHOLE_ROWS:
        return False
    return acts_on_rows(activation) or not isinstance(activation, layers.Layer)


def follow(model: Model, op: str) -> Units:
    """The units of a model made of symbols."""
    return Walk(model, op).units
