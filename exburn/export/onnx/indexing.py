"""Rules of the primitives that read at computed places."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from exburn.export.onnx.arrangement import count_along, cut
from exburn.export.onnx.elementwise import select
from exburn.export.onnx.graph import (
    OnnxConstant,
    OnnxGraph,
    Spread,
    Value,
    broadcast,
    same_size,
)
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule


# ------------------------------------------------------------------ one slice
@rule("dynamic_slice")
def _dynamic_slice(low: Lowering, step, x, *starts):
    graph, sizes = low.graph, step.params["slice_sizes"]
    axes = [axis for axis in range(x.ndim) if not same_size(x.shape[axis], sizes[axis])]
    if not axes:
        return x
    first = graph.concat(
        [clipped_start(graph, starts[a], x.shape[a], sizes[a]) for a in axes], 0
    )
    lengths = graph.sizes([sizes[axis] for axis in axes])
    ends = graph.binary("Add", first, lengths)
    return graph.add("Slice", x, first, ends, graph.ints(axes), shape=sizes)


@rule("dynamic_update_slice")
def _dynamic_update_slice(low: Lowering, step, x, update, *starts):
    return _replace(low.graph, x, update, starts, 0)


def _replace(graph: OnnxGraph, x: Value, update: Value, starts, axis: int) -> Value:
    """What is before, the update, and what is behind it, axis by axis."""
    while axis < x.ndim and same_size(x.shape[axis], update.shape[axis]):
        axis += 1
    if axis == x.ndim:
        return update
    n, size = x.shape[axis], update.shape[axis]
    start = clipped_start(graph, starts[axis], n, size)
    end = graph.binary("Add", start, graph.size(size))
    axes = graph.ints([axis])

    def part(first: Value, last: Value, length: Any) -> Value:
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return graph.add("Slice", x, first, last, axes, shape=shape)

    inner = _replace(graph, part(start, end, size), update, starts, axis + 1)
    # The sizes of these two are known when the file runs.
    before = part(graph.ints([0]), start, 0)
    behind = part(end, graph.size(n), 0)
    return graph.add("Concat", before, inner, behind, axis=axis, shape=x.shape)


def clipped_start(graph: OnnxGraph, start: Value, n: Any, size: Any) -> Value:
    """The start of a slice as an array of one int64, so that the slice lies inside."""
    start = graph.cast(graph.reshape(start, (1,)), np.int64)
    if isinstance(start, OnnxConstant) and isinstance(n, int) and isinstance(size, int):
        return OnnxConstant(np.clip(start.array, 0, n - size))
    low = graph.binary("Max", start, graph.ints([0]))
    return graph.binary("Min", low, graph.size(n - size))


# ------------------------------------------------------------------ many slices
@dataclasses.dataclass
class Places:
    """Where slices begin, one array for each axis that is indexed.

    Attributes:
        starts: By axis, ``[batch…]`` of int64.
        valid: ``[batch…]`` of booleans: whether slices lie inside; ``None`` if all do.
    """

    starts: dict[int, Value]
    valid: Value | None


def find_places(
    graph: OnnxGraph,
    indices: Value,
    axes: Sequence[int],
    shape: Sequence[Any],
    sizes: dict[int, Any],
    mode: Any,
) -> Places:
    """Reads where slices begin from the last axis of ``indices``.

    Args:
        indices: ``[batch…, index]``.
        axes: The operand's axis of each index.
        sizes: The sizes of slices by axis.
        mode: What happens outside: JAX's mode.
    """
    name = jax.lax.GatherScatterMode.from_any(mode).name
    if name not in ("CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"):
        raise NotExpressible(f"Its mode is {name}")
    batch = indices.shape[:-1]
    starts, valid = {}, None
    for place, axis in enumerate(axes):
        column = indices
        if len(axes) > 1:
            ends = [*batch, place + 1]
            column = cut(graph, indices, [*(0 for _ in batch), place], ends)
        start = graph.cast(graph.reshape(column, batch), np.int64)
        last = shape[axis] - sizes[axis]
        if isinstance(start, OnnxConstant) and isinstance(last, int):
            inside = (start.array >= 0) & (start.array <= last)
            if not inside.all():
                if name == "FILL_OR_DROP":
                    valid = _both(graph, valid, OnnxConstant(inside))
                start = OnnxConstant(np.clip(start.array, 0, last))
        elif name in ("CLIP", "FILL_OR_DROP"):
            clipped = _clip(graph, start, last)
            if name == "FILL_OR_DROP":
                inside = graph.binary("Equal", clipped, start, np.bool_)
                valid = _both(graph, valid, inside)
            start = clipped
        starts[axis] = start
    return Places(starts, valid)


def _clip(graph: OnnxGraph, start: Value, last: Any) -> Value:
    if isinstance(last, int):
        bounds = graph.constant(0, np.int64), graph.constant(last, np.int64)
        return graph.add("Clip", start, *bounds, shape=start.shape)
    above = graph.binary("Max", start, graph.constant(0, np.int64))
    most = graph.binary("Min", above, graph.size(last))
    return graph.reshape(most, start.shape)


def _both(graph: OnnxGraph, a: Value | None, b: Value) -> Value:
    return b if a is None else graph.binary("And", a, b)


@rule("gather")
def _gather(low: Lowering, step, x, indices):
    graph, params = low.graph, step.params
    numbers, sizes = params["dimension_numbers"], list(params["slice_sizes"])
    batch = indices.shape[:-1]
    axes = list(numbers.start_index_map)
    places = find_places(
        graph, indices, axes, x.shape, {a: sizes[a] for a in axes}, params["mode"]
    )
    batching = list(numbers.operand_batching_dims)
    # Along axes that no index names, slices begin at the first entry.
    ends = [
        n if axis in axes or axis in batching else sizes[axis]
        for axis, n in enumerate(x.shape)
    ]
    x = cut(graph, x, [0] * x.ndim, ends)
    indexed = [a for a in axes if not same_size(sizes[a], x.shape[a])]
    window_axes = [a for a in range(x.ndim) if a not in (*indexed, *batching)]
    wide = [a for a in indexed if sizes[a] != 1]
    # The axes of the result: those of the batch, then of windows by operand axis.
    if len(indexed) == 1 and not batching:
        entries, labels = _take(graph, x, places, indexed[0], sizes, len(batch))
    else:
        entries, labels = _take_points(
            graph, x, places, indexed, window_axes, sizes, numbers, batch
        )
    windows = [
        a
        for a in range(len(sizes))
        if a not in numbers.collapsed_slice_dims and a not in batching
    ]
    spanned_axes = {a for a in (*wide, *window_axes)}
    order, free = [], iter(range(len(batch)))
    axis_of = dict(zip(numbers.offset_dims, windows, strict=True))
    for position in range(len(step.outputs[0].aval.shape)):
        if position not in axis_of:
            order.append(labels.index(("batch", next(free))))
        elif axis_of[position] in spanned_axes:
            order.append(labels.index(("window", axis_of[position])))
    shape = step.outputs[0].aval.shape
    # A collapsed axis that every slice has whole is of size 1.
    order += [i for i in range(len(labels)) if i not in order]
    entries = graph.reshape(graph.transpose(entries, order), shape)
    if places.valid is None:
        return entries
    inner = iter(batch)
    mask_shape = [1 if p in axis_of else next(inner) for p in range(len(shape))]
    fill = graph.like(_fill_value(params["fill_value"], entries.dtype), entries)
    return select(graph, graph.reshape(places.valid, mask_shape), entries, fill)


def _take(graph: OnnxGraph, x: Value, places: Places, axis: int, sizes, count: int):
    """Slices along one axis."""
    index = places.starts[axis]
    batch = index.shape
    inner = [("batch", i) for i in range(count)]
    if sizes[axis] != 1:
        index = _with_offsets(graph, index, [sizes[axis]], 0)
        inner.append(("window", axis))
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    entries = graph.add("Gather", x, index, shape=shape, axis=axis)
    labels = [
        *(("window", a) for a in range(axis)),
        *inner,
        *(("window", a) for a in range(axis + 1, x.ndim)),
    ]
    assert len(batch) == count
    return entries, labels


def _take_points(graph, x, places, indexed, window_axes, sizes, numbers, batch):
    """Slices along several axes, or of rows that belong to rows of the indices."""
    batching = list(numbers.operand_batching_dims)
    at = list(numbers.start_indices_batching_dims)
    others = [i for i in range(len(batch)) if i not in at]
    wide = [a for a in indexed if sizes[a] != 1]
    data = graph.transpose(x, (*batching, *indexed, *window_axes))
    labels: list[Any] = [("batch", i) for i in (*at, *others)]
    labels += [("window", a) for a in wide]
    labels += [("window", a) for a in window_axes]
    if not indexed:  # each slice is whole: rows by rows
        if others:
            raise NotExpressible("It repeats whole slices")
        return data, labels
    columns = []
    reach = [sizes[a] for a in wide]
    for axis in indexed:
        index = graph.transpose(places.starts[axis], (*at, *others))
        if wide:
            place = wide.index(axis) if axis in wide else None
            index = _with_offsets(graph, index, reach, place)
        columns.append(index)
    shape: Any = ()
    for column in columns:
        shape = broadcast(shape, column.shape)
    columns = [
        graph.reshape(graph.expand(column, shape), (*shape, 1)) for column in columns
    ]
    points = graph.concat(columns, len(shape))
    entries = graph.add(
        "GatherND",
        data,
        points,
        shape=(*shape, *(x.shape[a] for a in window_axes)),
        batch_dims=len(batching),
    )
    return entries, labels


def _with_offsets(
    graph: OnnxGraph, start: Value, reach: Sequence[Any], place: int | None
) -> Value:
    """Starts with an axis for each window, along one of which they count up."""
    shape = (*start.shape, *(1 for _ in reach))
    start = graph.reshape(start, shape)
    if place is None:
        return start
    inner = [1] * len(shape)
    axis = len(shape) - len(reach) + place
    inner[axis] = reach[place]
    offsets = count_along(graph, inner, axis, np.int64)
    offsets = offsets.source if isinstance(offsets, Spread) else offsets
    if isinstance(start, OnnxConstant) and isinstance(offsets, OnnxConstant):
        return OnnxConstant(start.array + offsets.array)
    return graph.binary("Add", start, offsets)


def _fill_value(value: Any, dtype: np.dtype) -> Any:
    """What stands for entries outside, as JAX has it."""
    if value is not None:
        return value
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "b":
        return True
    limits = np.iinfo(dtype)
    return limits.min if dtype.kind == "i" else limits.max
