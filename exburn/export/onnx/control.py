"""Rules of loops and branches, whose bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.export.onnx.arrangement import count_along
from exburn.export.onnx.graph import (
    OnnxConstant,
    OnnxGraph,
    OnnxTensor,
    Value,
    file_dtype,
)
from exburn.export.onnx.lowering import Lowering, rule
from exburn.export.operations import Operations, ValueSlot, inline, scan_sizes


@rule("scan")
def _scan(low: Lowering, step, *values):
    graph, params = low.graph, step.params
    body = inline(params["jaxpr"], step.layer)
    first, states = scan_sizes(step, body)
    constants, carry, xs = (
        values[:first],
        list(values[first : first + states]),
        list(values[first + states :]),
    )
    inner = low.body(OnnxGraph(graph))
    for slot, value in zip(body.inputs[:first], constants, strict=True):
        inner.bind(slot, value)
    elements = body.inputs[first + states :]
    _add_arguments(inner, [*body.inputs[first : first + states], *elements])
    if not xs:  # it only counts
        length = params["length"]
        xs = [count_along(graph, (length,), 0, np.int64)]
        inner.graph.inputs.append(
            OnnxTensor(graph.fresh("step"), (), np.dtype(np.int64))
        )
    _add_results(inner, inner.run(body), [slot.aval for slot in body.outputs])
    count = len(body.outputs) - states
    backwards = int(params["reverse"])
    names = graph.emit(
        "Scan",
        [*carry, *xs],
        len(body.outputs),
        body=inner.graph,
        num_scan_inputs=len(xs),
        scan_input_directions=[backwards] * len(xs) if backwards else None,
        scan_output_directions=[backwards] * count if backwards and count else None,
    )
    return _tensors(names, step.outputs)


@rule("while")
def _while(low: Lowering, step, *values):
    graph, params = low.graph, step.params
    in_condition, in_body = params["cond_nconsts"], params["body_nconsts"]
    condition = inline(params["cond_jaxpr"], step.layer)
    body = inline(params["body_jaxpr"], step.layer)
    for_condition = values[:in_condition]
    for_body = values[in_condition : in_condition + in_body]
    carry = list(values[in_condition + in_body :])
    (go_on,) = _call(low, condition, [*for_condition, *carry])
    inner = low.body(OnnxGraph(graph))
    inner.graph.inputs += [
        OnnxTensor(graph.fresh("iteration"), (), np.dtype(np.int64)),
        OnnxTensor(graph.fresh("condition"), (), np.dtype(np.bool_)),
    ]
    for slot, value in zip(body.inputs[:in_body], for_body, strict=True):
        inner.bind(slot, value)
    _add_arguments(inner, body.inputs[in_body:])
    new = inner.run(body)
    (again,) = _call(inner, condition, [*for_condition, *new])
    avals = [condition.outputs[0].aval, *(slot.aval for slot in body.outputs)]
    _add_results(inner, [again, *new], avals)
    names = graph.emit("Loop", ["", go_on, *carry], len(carry), body=inner.graph)
    return _tensors(names, step.outputs)


@rule("cond")
def _cond(low: Lowering, step, which, *values):
    branches = [inline(branch, step.layer) for branch in step.params["branches"]]
    if isinstance(which, OnnxConstant):
        place = int(np.clip(which.array, 0, len(branches) - 1))
        return _call(low, branches[place], values)
    return _branch(low, step, which, branches, values, 0)


def _branch(low: Lowering, step, which: Value, branches, values, place: int):
    """Branch ``place``, or one of those after it."""
    if place == len(branches) - 1:
        return _call(low, branches[place], values)
    graph = low.graph
    here = graph.binary("Greater", which, graph.like(place, which), np.bool_)
    avals = [slot.aval for slot in step.outputs]
    first, rest = low.body(OnnxGraph(graph)), low.body(OnnxGraph(graph))
    _add_results(first, _call(first, branches[place], values), avals)
    _add_results(rest, _branch(rest, step, which, branches, values, place + 1), avals)
    names = graph.emit(
        "If", [here], len(avals), then_branch=rest.graph, else_branch=first.graph
    )
    return _tensors(names, step.outputs)


@rule("platform_index")
def _platform_index(low: Lowering, step):
    """The branch for a CPU, or that for any platform."""
    groups = step.params["platforms"]
    for place, names in enumerate(groups):
        if names is None or "cpu" in names:
            return OnnxConstant(np.int32(place))
    return OnnxConstant(np.int32(len(groups) - 1))


def _call(low: Lowering, body: Operations, values: Sequence[Value]) -> list[Value]:
    """The nodes of a body in line."""
    inner = low.body(low.graph)
    for slot, value in zip(body.inputs, values, strict=True):
        inner.bind(slot, value)
    return inner.run(body)


def _add_arguments(low: Lowering, slots: Sequence[ValueSlot]) -> None:
    """Makes slots the arguments of a body."""
    for slot in slots:
        aval = slot.aval
        tensor = OnnxTensor(
            low.graph.fresh("argument"), aval.shape, file_dtype(aval.dtype)
        )
        low.graph.inputs.append(tensor)
        low.bind(slot, tensor)


def _add_results(low: Lowering, values: Sequence[Value], avals: Sequence[Any]) -> None:
    """Makes values the results of a body, which must come from nodes in it."""
    for value, aval in zip(values, avals, strict=True):
        value = low.graph.cast(value, file_dtype(aval.dtype))
        tensor = low.graph.add("Identity", value, shape=aval.shape)
        low.graph.outputs.append(tensor)


def _tensors(names: Sequence[str], slots: Sequence[ValueSlot]) -> list[Value]:
    return [
        OnnxTensor(name, slot.aval.shape, file_dtype(slot.aval.dtype))
        for name, slot in zip(names, slots, strict=True)
    ]
