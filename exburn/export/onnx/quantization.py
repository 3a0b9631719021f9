"""Rules of rounding and of weights of few bits, and convolutions of integers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from exburn.compression.quantization.marks import READ, ROUND
from exburn.export.onnx.graph import (
    ZERO,
    Integers,
    OnnxConstant,
    OnnxGraph,
    OnnxNode,
    Value,
    to_unsigned,
)
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule

_LARGEST = 2.0**31 - 1


@rule("composite")
def _composite(low: Lowering, step, x: Value, scale: Value, zero: Value | None = None):
    """An array between QuantizeLinear and DequantizeLinear, or a weight behind one."""
    name = step.params["name"]
    if name == READ and isinstance(x, OnnxConstant) and isinstance(scale, OnnxConstant):
        return Integers(x.array, scale.array, x.path)
    if name != ROUND or not (
        isinstance(scale, OnnxConstant) and isinstance(zero, OnnxConstant)
    ):
        raise NotExpressible("Its scales are not known when the file is written")
    graph = low.graph
    zero = OnnxConstant(to_unsigned(zero.array))
    few = graph.add("QuantizeLinear", x, scale, zero, shape=x.shape, dtype=np.uint8)
    return graph.add(
        "DequantizeLinear", few, scale, zero, shape=x.shape, dtype=np.float32
    )


def fold_channels(graph: OnnxGraph) -> None:
    """Makes factors and terms of channels a part of the convolutions before them.

    Runtimes convolve in integers where only a relu lies between the convolution and the
    rounding behind it. So a normalization or a bias goes into the scales of the weight,
    and into a bias of 32 bits in the scale of the products.
    """
    uses = _count(graph)
    uses.update(output.name for output in graph.outputs)
    makers = {name: node for node in graph.nodes for name in node.outputs}
    readers = {name: node for node in graph.nodes for name in node.inputs}
    aliases: dict[str, str] = {}
    for node in list(graph.nodes):
        if node.operator == "Conv" and len(node.inputs) == 2:
            aliases |= _fold(graph, node, uses, makers, readers)
    graph.nodes[:] = [node for node in graph.nodes if node.outputs[0] not in aliases]
    for node in graph.nodes:
        node.inputs[:] = [_source(name, aliases) for name in node.inputs]


def _fold(
    graph: OnnxGraph,
    conv: OnnxNode,
    uses: Counter,
    makers: dict[str, OnnxNode],
    readers: dict[str, OnnxNode],
) -> dict[str, str]:
    """Folds what follows one convolution; what stands for the nodes that go."""
    arrays, weight = graph.initializers, makers.get(conv.inputs[1])
    step = _scale_before(conv.inputs[0], arrays, makers)
    if weight is None or weight.operator != "DequantizeLinear" or step is None:
        return {}
    if uses[weight.outputs[0]] > 1:
        return {}
    values, scale = (arrays[name] for name in weight.inputs[:2])
    count, axis, name = len(values), 1, conv.outputs[0]
    factor, bias, aliases = np.ones(count), np.zeros(count), {}
    while uses[name] == 1 and (node := readers.get(name)) is not None:
        if node.operator == "Transpose":
            axis = list(node.attributes["perm"]).index(axis)
        elif node.operator in ("Mul", "Add"):
            (other,) = [one for one in node.inputs if one != name] or [""]
            row = _row(arrays.get(other), axis, values.ndim, count)
            if row is None:
                break
            if node.operator == "Mul":
                factor, bias = factor * row, bias * row
            else:
                bias = bias + row
            aliases[node.outputs[0]] = name
        else:
            break
        name = node.outputs[0]
    scales = np.abs(np.broadcast_to(scale, count) * factor)
    scales = np.where(scales > 0, scales, 1).astype(np.float32)
    products = (scales * step).astype(np.float32)
    whole = np.rint(bias / products)
    if not aliases or np.abs(whole).max() > _LARGEST:
        return {}
    signs = np.sign(factor).astype(np.int16).reshape(-1, *[1] * (values.ndim - 1))
    integers = (values.astype(np.int16) - ZERO) * signs
    weight.inputs[:] = [
        _add(graph, weight.inputs[0], to_unsigned(integers)),
        _add(graph, f"{conv.name}/scale", scales),
        _add(graph, f"{conv.name}/zero", np.full(count, ZERO, np.uint8)),
    ]
    weight.attributes["axis"] = 0
    label = graph.fresh(f"{conv.name}/bias")
    operands = [
        _add(graph, f"{label}/values", whole.astype(np.int32)),
        _add(graph, f"{label}/scale", products),
    ]
    bias_node = OnnxNode(
        "DequantizeLinear", operands, [f"{label}:0"], {"axis": 0}, label
    )
    graph.nodes.insert(graph.nodes.index(conv), bias_node)
    conv.inputs.append(f"{label}:0")
    return aliases


def _add(graph: OnnxGraph, name: str, array: np.ndarray) -> str:
    name = graph.fresh(name)
    graph.initializers[name] = array
    return name


def _scale_before(
    name: str, arrays: dict[str, np.ndarray], makers: dict[str, OnnxNode]
) -> Any:
    """The step of the integers that a value is, where it is only moved since."""
    while (node := makers.get(name)) is not None:
        if node.operator == "DequantizeLinear":
            scale = arrays.get(node.inputs[1])
            return scale if scale is not None and not scale.ndim else None
        if node.operator not in ("Transpose", "MaxPool", "Reshape"):
            return None
        name = node.inputs[0]
    return None


def _row(array: Any, axis: int, rank: int, count: int) -> Any:
    """A number for each channel, of an array that differs along their axis alone."""
    if array is None or array.dtype != np.float32 or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(n != 1 for i, n in enumerate(shape) if i != axis):
        return None
    return np.broadcast_to(array.reshape(-1), count).astype(np.float64)


def _source(name: str, aliases: dict[str, str]) -> str:
    while name in aliases:
        name = aliases[name]
    return name


def _count(graph: OnnxGraph) -> Counter:
    """How often each value is read, in bodies of loops and branches too."""
    counts: Counter = Counter()
    for node in graph.nodes:
        counts.update(node.inputs)
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                counts.update(_count(value))
                counts.update(output.name for output in value.outputs)
    return counts
