"""Rules of reductions over windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.export.onnx.arrangement import cut, pad_value
from exburn.export.onnx.elementwise import compute
from exburn.export.onnx.graph import OnnxGraph, Value, same_size
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule
from exburn.export.operations import inline

_TAPS = 128  # of a window that is computed entry by entry
_COMBINED = {"max": "Max", "min": "Min", "add": "Add", "mul": "Mul"}


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _reduce_window(low: Lowering, step, x):
    operator = {"max": "Max", "min": "Min", "sum": "Add"}[step.name.rpartition("_")[2]]
    return _windows(low.graph, step, x, operator, None)


@rule("reduce_window")
def _reduce_window_by(low: Lowering, step, x, first, *more):
    body = inline(step.params["jaxpr"])
    names = [inner.name for inner in body.steps]
    if more or len(names) != 1 or names[0] not in _COMBINED:
        raise NotExpressible("It combines entries by a function of its own")
    return _windows(low.graph, step, x, _COMBINED[names[0]], first)


def _windows(
    graph: OnnxGraph, step, x: Value, operator: str, first: Value | None
) -> Value:
    """Windows reduced by an operator; padding counts as ``first``."""
    params = step.params
    size, strides = params["window_dimensions"], params["window_strides"]
    pads, dilation = params["padding"], params["window_dilation"]
    if any(n != 1 for n in params["base_dilation"]):
        raise NotExpressible("Its entries lie apart")
    if not all(isinstance(side, int) for pair in pads for side in pair):
        fill = graph.like(_neutral(operator, x.dtype), x) if first is None else first
        x, pads = pad_value(graph, x, pads, fill), ((0, 0),) * x.ndim
    axes = [
        axis
        for axis in range(x.ndim)
        if size[axis] > 1 or strides[axis] > 1 or any(pads[axis])
    ]
    if not axes:
        return x
    plain = first is None or operator in ("Max", "Min") and not any(map(any, pads))
    reach = [(size[a] - 1) * dilation[a] + 1 for a in axes]
    fits = all(
        isinstance(side, int) and 0 <= side < n
        for a, n in zip(axes, reach, strict=True)
        for side in pads[a]
    )
    dilated = any(dilation[a] > 1 for a in axes)
    pooled = operator in ("Max", "Min") or (operator == "Add" and not dilated)
    if plain and fits and pooled and len(axes) <= 3 and x.dtype.name == "float32":
        return _pool(graph, step, x, operator, axes, pads)
    return _by_taps(graph, step, x, operator, first, pads)


def _pool(
    graph: OnnxGraph, step, x: Value, operator: str, axes: Sequence[int], padding
) -> Value:
    """By an operator for pooling, which takes ``[rows, channels, *sizes]``."""
    params, shape = step.params, step.outputs[0].aval.shape
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    order = (*rest, *axes)
    rearranged = graph.transpose(x, order)
    rest_sizes = [x.shape[axis] for axis in rest]
    rows = rest_sizes[0] if rest_sizes else 1
    channels: Any = 1
    for n in rest_sizes[1:]:
        channels = channels * n
    rearranged = graph.reshape(
        rearranged, (rows, channels, *(x.shape[axis] for axis in axes))
    )
    sizes = [params["window_dimensions"][axis] for axis in axes]
    pads = [padding[axis] for axis in axes]
    out_sizes = [shape[axis] for axis in axes]
    common: dict[str, Any] = {
        "kernel_shape": sizes,
        "strides": [params["window_strides"][axis] for axis in axes],
        "pads": [low for low, _ in pads] + [high for _, high in pads],
    }
    out = (rows, channels, *out_sizes)
    if operator == "Add":
        y: Value = graph.add(
            "AveragePool", rearranged, shape=out, count_include_pad=1, **common
        )
        y = graph.binary("Mul", y, graph.like(math.prod(sizes), y))
    else:
        dilations = [params["window_dilation"][axis] for axis in axes]
        if operator == "Min":
            rearranged = graph.unary("Neg", rearranged)
        y = graph.add("MaxPool", rearranged, shape=out, dilations=dilations, **common)
        if operator == "Min":
            y = graph.unary("Neg", y)
    y = graph.reshape(y, (*rest_sizes, *out_sizes))
    return graph.transpose(y, tuple(np.argsort(order)))


def _by_taps(
    graph: OnnxGraph, step, x: Value, operator: str, first: Value | None, pads
) -> Value:
    """Each place in the window by itself, all of them combined."""
    params = step.params
    size, strides = params["window_dimensions"], params["window_strides"]
    dilation = params["window_dilation"]
    if math.prod(size) > _TAPS:
        raise NotExpressible(f"Its windows have more than {_TAPS} entries")
    fill = graph.like(_neutral(operator, x.dtype), x) if first is None else first
    x = pad_value(graph, x, [tuple(pair) for pair in pads], fill)
    shape = step.outputs[0].aval.shape
    total: Value | None = None
    for place in itertools.product(*map(range, size)):
        starts = [p * d for p, d in zip(place, dilation, strict=True)]
        ends = [
            n if same_size(n, whole) else start + (n - 1) * by + 1
            for start, n, by, whole in zip(starts, shape, strides, x.shape, strict=True)
        ]
        part = cut(graph, x, starts, ends, strides)
        total = part if total is None else compute(graph, operator, total, part)
    assert total is not None
    if first is None or (operator in ("Max", "Min") and not any(map(any, pads))):
        return total
    return compute(graph, operator, total, graph.reshape(first, (1,) * x.ndim))


def _neutral(operator: str, dtype: np.dtype) -> Any:
    if operator in ("Add", "Mul"):
        return 0 if operator == "Add" else 1
    if dtype == np.bool_:
        return operator == "Min"
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    if dtype.kind == "f":
        return -np.inf if operator == "Max" else np.inf
    return limits.min if operator == "Max" else limits.max
