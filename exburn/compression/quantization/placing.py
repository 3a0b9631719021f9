"""The choice of activations that are rounded, so that runtimes compute in integers.

Their operators take and give integers: a convolution with its bias, a normalization
behind it and a relu are one of them, a sum of two branches is one, pooling and
reshapes pass integers on. So what such a group gives is rounded once, at its end.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from exburn import activations
from exburn.compression.quantization.blocks import within
from exburn.compression.quantization.ranges import INPUT, OUTPUT, PLACES, SUM
from exburn.core.batch_independence import is_foreign
from exburn.layers import (
    RNN,
    Activation,
    ActivityRegularization,
    Add,
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    BatchNormalization,
    Concatenate,
    Cropping1D,
    Cropping2D,
    Cropping3D,
    Dense,
    Dropout,
    EinsumDense,
    Flatten,
    GaussianDropout,
    GaussianNoise,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalAveragePooling3D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    GlobalMaxPooling3D,
    Identity,
    Maximum,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
    Minimum,
    Multiply,
    Permute,
    ReLU,
    RepeatVector,
    Reshape,
    SpatialDropout1D,
    SpatialDropout2D,
    SpatialDropout3D,
    Subtract,
    UpSampling1D,
    UpSampling2D,
    UpSampling3D,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
)
from exburn.layers.convolution.conv import Conv
from exburn.layers.convolution.depthwise import DepthwiseConv
from exburn.layers.convolution.transposed import ConvTranspose
from exburn.module.graph import Graph, Node, Ref
from exburn.module.selection import layer_paths

# Integers go through these as they are.
_MOVES = (
    ActivityRegularization,
    *(AveragePooling1D, AveragePooling2D, AveragePooling3D),
    *(Cropping1D, Cropping2D, Cropping3D),
    *(Dropout, SpatialDropout1D, SpatialDropout2D, SpatialDropout3D),
    *(GaussianDropout, GaussianNoise),
    *(Flatten, Identity, Permute, RepeatVector, Reshape),
    *(GlobalMaxPooling1D, GlobalMaxPooling2D, GlobalMaxPooling3D),
    *(MaxPooling1D, MaxPooling2D, MaxPooling3D),
    *(UpSampling1D, UpSampling2D, UpSampling3D),
    *(ZeroPadding1D, ZeroPadding2D, ZeroPadding3D),
)
_PRODUCTS = (Dense, EinsumDense, Conv, DepthwiseConv, ConvTranspose)
_JOINS = (Add, Subtract, Multiply)  # a relu behind them is part of them
_OTHERS = (
    *(Concatenate, Maximum, Minimum),
    *(GlobalAveragePooling1D, GlobalAveragePooling2D, GlobalAveragePooling3D),
)
_FUSED = (activations.linear, activations.relu, activations.relu6)


def find_places(
    model: Any, targets: set[str], chosen: set[str]
) -> dict[str, tuple[str, ...]]:
    """Where activations are rounded, by the path of the layer."""
    places: dict[str, set[str]] = {}
    seen: set[str] = set()
    if getattr(model, "graph", None) is not None:
        _Walk(model, "", targets, places, seen).run([False] * len(model.graph.inputs))
    layers = layer_paths(model)
    loops = [path for path, layer in layers.items() if isinstance(layer, RNN)]
    for path in sorted(targets - seen):  # in layers whose structure is not known
        looped = any(within(path, loop) for loop in loops)
        if isinstance(layers[path], _PRODUCTS) and not looped:
            places.setdefault(path, set()).add(INPUT)
    return {
        path: tuple(place for place in PLACES if place in places[path])
        for path in layers
        if places.get(path) and path in chosen
    }


class _Walk:
    """A graph, call by call.

    Args:
        prefix: Its path, with a slash behind it.
    """

    def __init__(
        self,
        model: Any,
        prefix: str,
        targets: set[str],
        places: dict[str, set[str]],
        seen: set[str],
    ):
        self.graph: Graph = model.graph
        self.layers, self.prefix = dict(model.nodes), prefix
        self.targets, self.places, self.seen = targets, places, seen
        self.users: dict[Ref, list[int]] = {}
        for number, node in enumerate(self.graph.nodes):
            for ref in _refs(node):
                self.users.setdefault(ref, []).append(number)
        self.ends = set(self.graph.outputs)
        self.calls = Counter(node.target for node in self.graph.nodes)

    def run(self, inputs: list[bool]) -> list[bool]:
        """Which outputs are rounded already, for which inputs are."""
        rounded = {Ref(-1, i): is_rounded for i, is_rounded in enumerate(inputs)}
        for number, node in enumerate(self.graph.nodes):
            flags = [rounded.get(ref, False) for ref in _refs(node)]
            done = self._call(number, node, flags)
            rounded |= {Ref(number, i): flag for i, flag in enumerate(done)}
        return [rounded.get(ref, False) for ref in self.graph.outputs]

    def _call(self, number: int, node: Node, flags: list[bool]) -> list[bool]:
        count, layer = len(node.shapes), self._layer(number)
        if layer is None:
            return [False] * count
        path, is_rounded = f"{self.prefix}{node.target}", bool(flags) and all(flags)
        if getattr(layer, "graph", None) is not None:
            inner = _Walk(layer, f"{path}/", self.targets, self.places, self.seen)
            return inner.run(flags)
        self.seen.add(path)
        if isinstance(layer, _MOVES):
            return [is_rounded] * count
        product = path in self.targets and isinstance(layer, _PRODUCTS)
        if product and not is_rounded:
            self._add(path, INPUT)
        if not (product or self._computes(number, layer, is_rounded)):
            return [False] * count
        if self._goes_on(number):
            return [False] * count  # the last of the group rounds
        fused = not product or layer.activation in _FUSED
        if not fused and not is_foreign(type(layer)):
            self._add(path, SUM)
        if fused or Ref(number, 0) not in self.ends:
            self._add(path, OUTPUT)
            return [True] * count
        return [False] * count

    def _add(self, path: str, place: str) -> None:
        self.places.setdefault(path, set()).add(place)

    def _layer(self, number: int) -> Any:
        target = self.graph.nodes[number].target
        return self.layers[target] if isinstance(target, str) else None

    def _computes(self, number: int, layer: Any, is_rounded: bool) -> bool:
        """Whether a layer without a weight of few bits is an operator of integers."""
        if isinstance(layer, (*_JOINS, *_OTHERS)):
            return is_rounded or self._ends_groups(number)
        if isinstance(layer, BatchNormalization) or _is_relu(layer):
            return is_rounded or self._ends_groups(number)
        return False

    def _ends_groups(self, number: int) -> bool:
        """Whether all that a call gets comes from calls whose group it is in."""
        sources = [ref.node for ref in _refs(self.graph.nodes[number])]
        return bool(sources) and all(
            source >= 0 and self._goes_on(source) for source in sources
        )

    def _goes_on(self, number: int) -> bool:
        """Whether what a call gives is rounded behind the next one, as a part of it."""
        users, ref = self.users.get(Ref(number, 0), []), Ref(number, 0)
        if len(users) != 1 or ref in self.ends:
            return False
        layer, after = self._layer(number), self._layer(users[0])
        if layer is None or after is None:
            return False
        plain = getattr(layer, "activation", activations.linear) is activations.linear
        product = self._is_product(number) and plain
        if isinstance(after, BatchNormalization):
            return product
        group = product or isinstance(layer, _JOINS) or self._is_normalized(number)
        return _is_relu(after) and group

    def _is_product(self, number: int) -> bool:
        path = f"{self.prefix}{self.graph.nodes[number].target}"
        return path in self.targets and isinstance(self._layer(number), _PRODUCTS)

    def _is_normalized(self, number: int) -> bool:
        """Whether a call normalizes what a product gives."""
        if not isinstance(self._layer(number), BatchNormalization):
            return False
        sources = [ref.node for ref in _refs(self.graph.nodes[number])]
        return len(sources) == 1 and sources[0] >= 0 and self._goes_on(sources[0])


def _refs(node: Node) -> list[Ref]:
    return [leaf for leaf in node.leaves if isinstance(leaf, Ref)]


def _is_relu(layer: Any) -> bool:
    if isinstance(layer, ReLU):
        plain = not layer.negative_slope and not layer.threshold
        return plain and layer.max_value in (None, 6)
    return isinstance(layer, Activation) and layer.activation in _FUSED
