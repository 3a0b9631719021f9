"""Rules of the primitives that reduce or accumulate along axes."""

from __future__ import annotations

import numpy as np

from exburn.export.onnx.elementwise import WIDE, compute, wider
from exburn.export.onnx.graph import OnnxGraph, Value
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule

_REDUCED = {
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
}


@rule(*_REDUCED)
def _reduce(low: Lowering, step, x):
    return reduce_value(low.graph, _REDUCED[step.name], x, step.params["axes"])


@rule("reduce_and", "reduce_or")
def _reduce_logical(low: Lowering, step, x):
    graph = low.graph
    if x.dtype != bool:
        raise NotExpressible("It combines the bits of integers")
    operator = "ReduceMin" if step.name == "reduce_and" else "ReduceMax"
    whole = reduce_value(graph, operator, graph.cast(x, np.int32), step.params["axes"])
    return graph.cast(whole, np.bool_)


def reduce_value(graph: OnnxGraph, operator: str, x: Value, axes) -> Value:
    """A value reduced along axes, which go."""
    axes = tuple(int(axis) for axis in axes)
    if not axes:
        return x
    shape = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    wide = wider(x.dtype)
    result = graph.add(
        operator, graph.cast(x, wide), graph.ints(axes), shape=shape, keepdims=0
    )
    return graph.cast(result, x.dtype)


@rule("argmax", "argmin")
def _arg(low: Lowering, step, x):
    graph = low.graph
    (axis,) = step.params["axes"]
    shape = tuple(n for a, n in enumerate(x.shape) if a != axis)
    dtypes = ("float32", "float64", "int32")
    operator = "ArgMax" if step.name == "argmax" else "ArgMin"
    wide = graph.cast(x, wider(x.dtype, dtypes))
    places = graph.add(
        operator, wide, shape=shape, dtype=np.int64, axis=int(axis), keepdims=0
    )
    return graph.cast(places, np.dtype(step.params["index_dtype"]))


# ------------------------------------------------------------------ accumulations
@rule("cumsum")
def _cumsum(low: Lowering, step, x):
    graph = low.graph
    wide = wider(x.dtype, WIDE)
    axis = graph.constant(step.params["axis"], np.int64)
    sums = graph.add(
        "CumSum",
        graph.cast(x, wide),
        axis,
        shape=x.shape,
        reverse=int(step.params["reverse"]),
    )
    return graph.cast(sums, x.dtype)


_COMBINED = {"cumprod": "Mul", "cummax": "Max", "cummin": "Min"}


@rule(*_COMBINED)
def _accumulate(low: Lowering, step, x):
    """By doubling: after step i each entry combines ``2 ** (i + 1)`` before it."""
    graph, operator = low.graph, _COMBINED[step.name]
    axis, backwards = step.params["axis"], step.params["reverse"]
    length = x.shape[axis]
    if not isinstance(length, int):
        raise NotExpressible("It accumulates along an axis of open size")
    reach = 1
    while reach < length:
        before = _part(graph, x, axis, 0, length - reach)
        after = _part(graph, x, axis, reach, length)
        sums = compute(graph, operator, before, after)
        if backwards:
            rest = _part(graph, x, axis, length - reach, length)
            x = graph.concat([sums, rest], axis)
        else:
            rest = _part(graph, x, axis, 0, reach)
            x = graph.concat([rest, sums], axis)
        reach *= 2
    return x


@rule("cumlogsumexp")
def _cumlogsumexp(low: Lowering, step, x):
    """Of the differences to the greatest entry."""
    graph, axis = low.graph, step.params["axis"]
    keep = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    greatest = graph.add("ReduceMax", x, graph.ints([axis]), shape=keep, keepdims=1)
    terms = graph.unary("Exp", graph.binary("Sub", x, greatest))
    total = graph.add(
        "CumSum",
        terms,
        graph.constant(axis, np.int64),
        shape=x.shape,
        reverse=int(step.params["reverse"]),
    )
    return graph.binary("Add", graph.unary("Log", total), greatest)


def _part(graph: OnnxGraph, x: Value, axis: int, start: int, end: int) -> Value:
    shape = list(x.shape)
    shape[axis] = end - start
    return graph.slice(x, [start], [end], [axis], shape=shape)
