"""Rules of the primitives that write at computed places."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.export.onnx.arrangement import count_along
from exburn.export.onnx.elementwise import select, wider
from exburn.export.onnx.graph import OnnxConstant, OnnxGraph, Spread, Value
from exburn.export.onnx.indexing import find_places
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule

_REDUCTIONS = {
    "scatter": "none",
    "scatter-add": "add",
    "scatter_add": "add",
    "scatter-sub": "add",
    "scatter_sub": "add",
    "scatter-mul": "mul",
    "scatter_mul": "mul",
    "scatter-min": "min",
    "scatter_min": "min",
    "scatter-max": "max",
    "scatter_max": "max",
}


@rule(*_REDUCTIONS)
def _scatter(low: Lowering, step, x, indices, updates):
    """On the flat array, with the place of each entry of the updates."""
    graph, params = low.graph, step.params
    numbers = params["dimension_numbers"]
    axes = list(numbers.scatter_dims_to_operand_dims)
    batching = list(numbers.operand_batching_dims)
    inserted = [*numbers.inserted_window_dims, *batching]
    windows = [a for a in range(x.ndim) if a not in inserted]
    window_at = dict(zip(windows, numbers.update_window_dims, strict=True))
    batch_at = [i for i in range(updates.ndim) if i not in numbers.update_window_dims]
    sizes = {a: updates.shape[window_at[a]] if a in window_at else 1 for a in axes}
    places = find_places(graph, indices, axes, x.shape, sizes, params["mode"])
    flat_place = _flat_places(
        graph, x, updates, places.starts, window_at, batch_at, numbers
    )
    operator = _REDUCTIONS[step.name]
    values = updates
    if step.name.endswith("sub"):
        values = graph.unary("Neg", values)
    dtype = x.dtype
    wide = wider(dtype) if operator != "none" else dtype
    x_shape, total = x.shape, _product(x.shape)
    flat = graph.cast(graph.reshape(x, (total,)), wide)
    count = _product(updates.shape)
    flat_place = graph.expand(flat_place, updates.shape)
    if places.valid is not None:
        inner = iter(places.valid.shape)
        shape = [next(inner) if i in batch_at else 1 for i in range(updates.ndim)]
        valid = graph.reshape(places.valid, shape)
        source = flat_place.source if isinstance(flat_place, Spread) else flat_place
        outside = graph.size(total)
        flat_place = graph.expand(select(graph, valid, source, outside), updates.shape)
        # What lies outside goes into one more entry, which is cut again.
        spare = OnnxConstant(np.zeros(1, wide))
        flat = graph.concat([flat, spare], 0)
    result: Value = graph.add(
        "ScatterElements",
        flat,
        graph.reshape(flat_place, (count,)),
        graph.cast(graph.reshape(values, (count,)), wide),
        shape=flat.shape,
        axis=0,
        reduction=operator,
    )
    if places.valid is not None:
        result = graph.slice(result, [0], [total], [0], shape=(total,))
    return graph.reshape(graph.cast(result, dtype), x_shape)


def _flat_places(
    graph: OnnxGraph, x, updates, starts, window_at, batch_at, numbers
) -> Value:
    """The place in the flat operand of each entry of the updates, broadcast."""
    batching = dict(
        zip(
            numbers.operand_batching_dims,
            numbers.scatter_indices_batching_dims,
            strict=True,
        )
    )
    rank = updates.ndim
    total: Value | None = None
    for axis in range(x.ndim):
        terms: list[Value] = []
        if axis in starts:
            shape = [1] * rank
            for i, n in zip(batch_at, starts[axis].shape, strict=True):
                shape[i] = n
            terms.append(graph.reshape(starts[axis], shape))
        for place in (window_at.get(axis), _at(batching.get(axis), batch_at)):
            if place is not None and updates.shape[place] != 1:
                shape = [1] * rank
                shape[place] = updates.shape[place]
                line = count_along(graph, shape, place, np.int64)
                terms.append(line.source if isinstance(line, Spread) else line)
        stride = _product(x.shape[axis + 1 :])
        for term in terms:
            part = _times(graph, term, stride)
            total = part if total is None else graph.binary("Add", total, part)
    if total is None:
        total = graph.constant(np.zeros((1,) * rank), np.int64)
    return total


def _at(place: int | None, batch_at: list[int]) -> int | None:
    return None if place is None else batch_at[place]


def _times(graph: OnnxGraph, value: Value, stride: Any) -> Value:
    if isinstance(stride, int) and stride == 1:
        return value
    if isinstance(value, OnnxConstant) and isinstance(stride, int):
        return OnnxConstant(value.array * stride)
    return graph.binary("Mul", value, graph.size(stride))


def _product(sizes: Any) -> Any:
    product: Any = 1
    for n in sizes:
        product = product * n
    return product


@rule("select_and_scatter_add", "select_and_gather_add")
def _gradients(low: Lowering, step, *_):
    raise NotExpressible("It is part of a gradient")
