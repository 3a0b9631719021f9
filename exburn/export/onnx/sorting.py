"""Rules of sorting and of the largest entries."""

from __future__ import annotations

import numpy as np

from exburn.export.onnx.elementwise import wider
from exburn.export.onnx.graph import OnnxGraph, OnnxTensor, Value
from exburn.export.onnx.lowering import Lowering, rule

_KNOWN = ("float32", "float64", "int32", "int64")


@rule("sort")
def _sort(low: Lowering, step, *operands):
    """By the last key first; of equal entries the first stays first."""
    graph, axis = low.graph, step.params["dimension"]
    keys = operands[: step.params["num_keys"]]
    n = operands[0].shape[axis]
    order: Value | None = None
    for key in reversed(keys):
        here = key if order is None else _along(graph, key, order, axis)
        values, places = _largest(graph, here, n, axis, largest=False)
        order = places if order is None else _along(graph, order, places, axis)
        if len(operands) == 1:
            return [values]
    assert order is not None
    return [_along(graph, operand, order, axis) for operand in operands]


@rule("top_k", "approx_top_k")
def _top_k(low: Lowering, step, x):
    params = step.params
    axis = params.get("axis", params.get("reduction_dimension", -1)) % x.ndim
    values, places = _largest(
        low.graph, x, params["k"], axis, largest=params.get("is_max_k", True)
    )
    return [values, low.graph.cast(places, step.outputs[1].aval.dtype)]


def _largest(graph: OnnxGraph, x: Value, count, axis: int, *, largest: bool):
    """The largest or least entries along an axis in order, and their places."""
    wide = graph.cast(x, wider(x.dtype, _KNOWN))
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values, places = graph.emit(
        "TopK", [wide, graph.size(count)], 2, axis=axis, largest=int(largest), sorted=1
    )
    entries = graph.cast(OnnxTensor(values, shape, wide.dtype), x.dtype)
    return entries, OnnxTensor(places, shape, np.int64)


def _along(graph: OnnxGraph, x: Value, places: Value, axis: int) -> Value:
    return graph.add("GatherElements", x, places, shape=places.shape, axis=axis)
