"""Rules of matrix products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.export.onnx.arrangement import cut, pad_value, reversed_along
from exburn.export.onnx.graph import OnnxGraph, Value, file_dtype
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule


@rule("dot_general")
def _dot_general(low: Lowering, step, a, b):
    (a_sum, b_sum), (a_batch, b_batch) = step.params["dimension_numbers"]
    result = file_dtype(step.outputs[0].aval.dtype)
    a_free = [i for i in range(a.ndim) if i not in (*a_sum, *a_batch)]
    b_free = [i for i in range(b.ndim) if i not in (*b_sum, *b_batch)]
    graph, count = low.graph, len(a_batch)
    a = graph.transpose(a, (*a_batch, *a_free, *a_sum))
    b = graph.transpose(b, (*b_batch, *b_sum, *b_free))
    batch, rows, columns = (
        a.shape[:count],
        a.shape[count : count + len(a_free)],
        b.shape[count + len(b_sum) :],
    )
    summed = _product(a.shape[count + len(a_free) :])
    # A matrix multiplies any number of axes; stacks of them need one axis of rows.
    left = rows if not count and rows else (_product(rows),)
    a = graph.reshape(a, (*batch, *left, summed))
    b = graph.reshape(b, (*batch, summed, _product(columns)))
    shape = (*batch, *left, _product(columns))
    product = _matmul(graph, a, b, shape, result)
    return graph.cast(graph.reshape(product, (*batch, *rows, *columns)), result)


def _matmul(
    graph: OnnxGraph, a: Value, b: Value, shape: Sequence[Any], result
) -> Value:
    if a.dtype.name in ("int8", "uint8") and b.dtype.name in ("int8", "uint8"):
        return graph.add("MatMulInteger", a, b, shape=shape, dtype=np.int32)
    wide = result if result.name in ("float64", "int32", "int64") else np.dtype("f4")
    if result.kind == "b":
        wide = np.dtype(np.int32)
    return graph.add("MatMul", graph.cast(a, wide), graph.cast(b, wide), shape=shape)


def _product(sizes: Sequence[Any]) -> Any:
    return math.prod(sizes) if all(isinstance(n, int) for n in sizes) else _open(sizes)


def _open(sizes: Sequence[Any]) -> Any:
    product = sizes[0]
    for n in sizes[1:]:
        product = product * n
    return product


@rule("conv_general_dilated")
def _conv(low: Lowering, step, x, kernel):
    graph, params = low.graph, step.params
    if params["batch_group_count"] != 1:
        raise NotExpressible("It divides the batch into groups")
    if x.dtype.kind != "f":
        raise NotExpressible("It convolves integers")
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    rank = x.ndim - 2
    if not rank:
        raise NotExpressible("It has no axes to move along")
    strides, pads = (
        list(params["window_strides"]),
        [tuple(p) for p in params["padding"]],
    )
    spread, dilation = list(params["lhs_dilation"]), list(params["rhs_dilation"])
    x = graph.transpose(x, numbers.lhs_spec)  # [batch, channels, *sizes]
    kernel = graph.transpose(kernel, numbers.rhs_spec)  # [out, in / groups, *window]
    order = [0] * x.ndim
    for place, axis in enumerate(numbers.out_spec):
        order[axis] = place
    result_shape = step.outputs[0].aval.shape
    shape = [result_shape[axis] for axis in numbers.out_spec]
    if max(spread) > 1:
        if not all(isinstance(side, int) for pair in pads for side in pair):
            raise NotExpressible("Its padding depends on an open size")
        y = _convolve_transposed(graph, x, kernel, spread, pads, dilation, groups)
        ends = list(y.shape)
        y = cut(graph, y, [0] * y.ndim, ends, (1, 1, *strides))
    else:
        # The operator pads by what is known, and cuts nothing.
        own = [tuple(_own_padding(side) for side in pair) for pair in pads]
        rest = [
            tuple(side - part for side, part in zip(pair, parts, strict=True))
            for pair, parts in zip(pads, own, strict=True)
        ]
        x = pad_value(graph, x, [(0, 0), (0, 0), *rest], graph.like(0, x))
        y = graph.add(
            "Conv",
            x,
            kernel,
            shape=shape,
            kernel_shape=list(kernel.shape[2:]),
            strides=strides,
            pads=[low for low, _ in own] + [high for _, high in own],
            dilations=dilation,
            group=groups,
        )
    return graph.transpose(y, order)


def _own_padding(side: Any) -> int:
    return max(side, 0) if isinstance(side, int) else 0


def _convolve_transposed(
    graph: OnnxGraph, x: Value, kernel: Value, spread, pads, dilation, groups: int
) -> Value:
    """A convolution over entries that lie apart, as the gradient of one.

    That has its window in turn, and cuts what a convolution would pad.
    """
    out, per_group, *window = kernel.shape
    axes = range(2, kernel.ndim)
    kernel = reversed_along(graph, kernel, [a for a in axes if kernel.shape[a] > 1])
    if groups > 1:
        kernel = graph.reshape(kernel, (groups, out // groups, per_group, *window))
        kernel = graph.transpose(kernel, (0, 2, 1, *range(3, kernel.ndim)))
        kernel = graph.reshape(kernel, (groups * per_group, out // groups, *window))
    else:
        kernel = graph.transpose(kernel, (1, 0, *axes))
    reach = [(n - 1) * d for n, d in zip(window, dilation, strict=True)]
    edges = [
        (before - r, after - r) for r, (before, after) in zip(reach, pads, strict=True)
    ]
    cuts = [(max(-before, 0), max(-after, 0)) for before, after in edges]
    sizes = [
        (n - 1) * s + r + 1 - before - after
        for n, s, r, (before, after) in zip(
            x.shape[2:], spread, reach, cuts, strict=True
        )
    ]
    y = graph.add(
        "ConvTranspose",
        x,
        kernel,
        shape=(x.shape[0], out, *sizes),
        kernel_shape=list(window),
        strides=list(spread),
        pads=[low for low, _ in cuts] + [high for _, high in cuts],
        dilations=list(dilation),
        group=groups,
    )
    more = [(max(before, 0), max(after, 0)) for before, after in edges]
    return pad_value(graph, y, [(0, 0), (0, 0), *more], graph.like(0, y))
