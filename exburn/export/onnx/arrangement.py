"""Rules of the primitives that move entries, and of those that make arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.export.onnx.graph import (
    OnnxConstant,
    OnnxGraph,
    OnnxTensor,
    Spread,
    Value,
    file_dtype,
    same_size,
)
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule

_TO_THE_FRONT = int(np.iinfo(np.int64).min) + 1  # the end of a slice that runs back


@rule("reshape")
def _reshape(low: Lowering, step, x):
    return reshape_value(low.graph, x, step.params["new_sizes"])


@rule("squeeze", "expand_dims")
def _squeeze(low: Lowering, step, x):
    return reshape_value(low.graph, x, step.outputs[0].aval.shape)


def reshape_value(graph: OnnxGraph, x: Value, shape: Sequence[Any]) -> Value:
    """A value in another shape; one that is repeated stays so where that is plain."""
    if not isinstance(x, Spread):
        return graph.reshape(x, shape)
    sizes = [n for n in x.shape if not same_size(n, 1)]
    if len(sizes) == len([n for n in shape if not same_size(n, 1)]) and all(
        map(same_size, sizes, [n for n in shape if not same_size(n, 1)])
    ):  # only axes of size 1 come or go
        axes = iter(
            m
            for n, m in zip(x.shape, x.source.shape, strict=True)
            if not same_size(n, 1)
        )
        source = [1 if same_size(n, 1) else next(axes) for n in shape]
        return graph.expand(graph.reshape(x.source, source), shape)
    if all(same_size(n, 1) for n in x.source.shape):
        return graph.expand(graph.reshape(x.source, [1] * len(shape)), shape)
    return graph.reshape(x, shape)


@rule("transpose")
def _transpose(low: Lowering, step, x):
    return low.graph.transpose(x, step.params["permutation"])


@rule("broadcast_in_dim")
def _broadcast(low: Lowering, step, x, *sizes):
    if sizes:
        raise NotExpressible("It has sizes that are computed")
    graph, shape = low.graph, step.params["shape"]
    source = x.source if isinstance(x, Spread) else x
    inner: list[Any] = [1] * len(shape)
    for axis, place in enumerate(step.params["broadcast_dimensions"]):
        inner[place] = source.shape[axis]
    return graph.expand(graph.reshape(source, inner), shape)


@rule("concatenate")
def _concatenate(low: Lowering, step, *values):
    return low.graph.concat(values, step.params["dimension"])


@rule("stack")
def _stack(low: Lowering, step, *values):
    axis = step.params["axis"] % (values[0].ndim + 1)
    shape = (*values[0].shape[:axis], 1, *values[0].shape[axis:])
    return low.graph.concat([low.graph.reshape(v, shape) for v in values], axis)


@rule("split", "unstack")
def _split(low: Lowering, step, x):
    graph, axis = low.graph, step.params["axis"] % x.ndim
    shapes = [slot.aval.shape for slot in step.outputs]
    sizes = step.params.get("sizes") or (1,) * len(shapes)
    if len(sizes) == 1:
        return [graph.reshape(x, shapes[0])]
    names = graph.emit("Split", [x, graph.sizes(sizes)], len(sizes), axis=axis)
    parts = []
    for name, size, shape in zip(names, sizes, shapes, strict=True):
        cut = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        parts.append(graph.reshape(OnnxTensor(name, cut, x.dtype), shape))
    return parts


@rule("tile")
def _tile(low: Lowering, step, x):
    graph, reps = low.graph, step.params["reps"]
    shape = step.outputs[0].aval.shape
    x = graph.reshape(x, (1,) * (len(reps) - x.ndim) + tuple(x.shape))
    return graph.add("Tile", x, graph.sizes(reps), shape=shape)


@rule("slice")
def _slice(low: Lowering, step, x):
    starts, ends = step.params["start_indices"], step.params["limit_indices"]
    steps = step.params["strides"] or (1,) * x.ndim
    return cut(low.graph, x, starts, ends, steps)


def cut(
    graph: OnnxGraph, x: Value, starts: Sequence[Any], ends: Sequence[Any], steps=None
) -> Value:
    """Part of a value along all of its axes."""
    steps = steps or (1,) * x.ndim
    axes = [
        axis
        for axis in range(x.ndim)
        if not (
            same_size(starts[axis], 0)
            and same_size(ends[axis], x.shape[axis])
            and steps[axis] == 1
        )
    ]
    if not axes:
        return x
    shape = [
        (end - start + by - 1) // by
        for start, end, by in zip(starts, ends, steps, strict=True)
    ]

    def pick(values: Sequence[Any]) -> list[Any]:
        return [values[axis] for axis in axes]

    return graph.slice(x, pick(starts), pick(ends), axes, pick(steps), shape=shape)


@rule("rev")
def _rev(low: Lowering, step, x):
    axes = [
        axis for axis in step.params["dimensions"] if not same_size(x.shape[axis], 1)
    ]
    return reversed_along(low.graph, x, axes)


def reversed_along(graph: OnnxGraph, x: Value, axes: Sequence[int]) -> Value:
    """A value with its entries along axes in turn."""
    if not axes:
        return x
    count = len(axes)
    ends, steps = [_TO_THE_FRONT] * count, [-1] * count
    return graph.slice(x, [-1] * count, ends, axes, steps, shape=x.shape)


@rule("pad")
def _pad(low: Lowering, step, x, fill):
    graph, config = low.graph, step.params["padding_config"]
    for axis, (_, _, between) in enumerate(config):
        if between:
            x = _space_out(graph, x, axis, between, fill)
    return pad_value(graph, x, [(low_, high) for low_, high, _ in config], fill)


def pad_value(
    graph: OnnxGraph, x: Value, widths: Sequence[tuple], fill: Value
) -> Value:
    """A value with entries before and after it; fewer, where widths are negative."""
    if any(side < 0 for pair in widths for side in pair if isinstance(side, int)):
        starts = [
            max(-before, 0) if isinstance(before, int) else 0 for before, _ in widths
        ]
        ends = [
            n + min(after, 0) if isinstance(after, int) else n
            for n, (_, after) in zip(x.shape, widths, strict=True)
        ]
        x = cut(graph, x, starts, ends)
    more = [
        tuple(max(side, 0) if isinstance(side, int) else side for side in pair)
        for pair in widths
    ]
    if not any(
        side if isinstance(side, int) else True for pair in more for side in pair
    ):
        return x
    shape = [n + a + b for n, (a, b) in zip(x.shape, more, strict=True)]
    sizes = graph.sizes([*(a for a, _ in more), *(b for _, b in more)])
    dtypes = ("float32", "float64", "int32", "int64", "uint8", "int8", "bool")
    wide = x.dtype if x.dtype.name in dtypes else np.dtype(np.int64)
    fill = graph.reshape(graph.cast(fill, wide), ())
    return graph.cast(
        graph.add("Pad", graph.cast(x, wide), sizes, fill, shape=shape), x.dtype
    )


def _space_out(
    graph: OnnxGraph, x: Value, axis: int, between: int, fill: Value
) -> Value:
    """A value with ``between`` entries after each along an axis, but for the last."""
    before, n, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    apart = graph.reshape(x, (*before, n, 1, *after))
    widths = [(0, 0)] * apart.ndim
    widths[axis + 1] = (0, between)
    apart = pad_value(graph, apart, widths, fill)
    whole = graph.reshape(apart, (*before, n * (between + 1), *after))
    ends = list(whole.shape)
    ends[axis] = ends[axis] - between
    return cut(graph, whole, [0] * whole.ndim, ends)


# ------------------------------------------------------------------ arrays from nothing
@rule("iota")
def _iota(low: Lowering, step):
    shape, axis = step.params["shape"], step.params["dimension"]
    dtype = file_dtype(step.params["dtype"])
    return count_along(low.graph, shape, axis, dtype)


def count_along(graph: OnnxGraph, shape: Sequence[Any], axis: int, dtype: Any) -> Value:
    """Numbers from 0 along an axis."""
    n = shape[axis]
    line: Value
    if isinstance(n, int):
        line = OnnxConstant(np.arange(n).astype(dtype))
    else:
        end = graph.reshape(graph.size(n), ())
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        line = graph.cast(
            graph.add("Range", zero, end, one, shape=(n,), dtype=np.int64), dtype
        )
    inner = [n if a == axis else 1 for a in range(len(shape))]
    return graph.expand(graph.reshape(line, inner), shape)


@rule("empty", "empty2")
def _empty(low: Lowering, step, *_):
    aval = step.outputs[0].aval
    zero = OnnxConstant(np.zeros((1,) * len(aval.shape), file_dtype(aval.dtype)))
    return low.graph.expand(zero, aval.shape)


@rule("dim_as_value")
def _dim_as_value(low: Lowering, step):
    aval = step.outputs[0].aval
    value = low.graph.reshape(low.graph.size(step.params["dim"]), ())
    return low.graph.cast(value, aval.dtype)


@rule("dimension_size")
def _dimension_size(low: Lowering, step, x):
    aval = step.outputs[0].aval
    value = low.graph.size(x.shape[step.params["dimension"]])
    return low.graph.cast(low.graph.reshape(value, ()), aval.dtype)
