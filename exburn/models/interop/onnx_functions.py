"""The functions that an ONNX file defines for itself, counted before it is loaded.

onnxruntime copies a function to each of its calls. Thirty functions, each of which
calls the one before twice, are a file of 2 KB, and a thousand million copies.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

from exburn.errors import FileFormatError, require
from exburn.runtime.files.ordinary import check_ordinary

_MOST = (10_000, 20)  # calls, and more for each node of the file
_FUNCTIONS = 25  # the field of ModelProto


def check_calls(source: str | bytes) -> None:
    """Refuses a model whose functions call each other far too often."""
    if isinstance(source, bytes):
        if _has_functions(source):
            _check(source)
        return
    if not check_ordinary(source, "predict").st_size:
        return
    with open(source, "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if _has_functions(data):
                _check(data[:])


def _has_functions(data: Any) -> bool:
    """Whether there is such a field, of which only the beginnings are looked at."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        field, kind = key >> 3, key & 7
        if field == _FUNCTIONS:
            return True
        match kind:
            case 0:  # a number
                _, place = _number(data, place)
            case 1:  # eight bytes
                place += 8
            case 2:  # a length, and as many bytes
                length, place = _number(data, place)
                place += length
            case 5:  # four bytes
                place += 4
            case _:
                return False  # no such file: onnxruntime says so
    return False


def _number(data: Any, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place behind it."""
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, place


def _check(data: bytes) -> None:
    onnx = require("onnx", "predict", "the ONNX model has functions", extra="onnx")
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception as error:  # of protobuf
        reason = "the ONNX model is damaged"
        raise FileFormatError("predict", reason, {"cause": error}) from error
    functions = {(f.domain, f.name): list(f.node) for f in model.functions}
    costs: dict[tuple[str, str], int] = {}
    nodes = 0

    def cost(calls: Iterator[Any], depth: int) -> int:
        nonlocal nodes
        total = 0
        for node in calls:
            nodes += 1
            name = (node.domain, node.op_type)
            total += 1 + (cost_of(name, depth) if name in functions else 0)
        return total

    def cost_of(name: tuple[str, str], depth: int) -> int:
        if depth > len(functions):
            raise FileFormatError(
                "predict", f"the ONNX model's function {name[1][:80]!r} calls itself"
            )
        if name not in costs:
            costs[name] = cost(_nodes(functions[name]), depth + 1)
        return costs[name]

    try:
        total = cost(_nodes(model.graph.node), 0)
    except RecursionError:
        total = nodes = 0
    if not nodes or total > _MOST[0] + _MOST[1] * nodes:
        raise FileFormatError(
            "predict",
            "the ONNX model's functions call each other far too often",
            {"calls": total, "nodes": nodes},
            hint="Take the file from who made the model.",
        )


def _nodes(nodes: Any) -> Iterator[Any]:
    """The nodes of a graph, and those of the graphs within them."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        for attribute in node.attribute:
            for graph in (*attribute.graphs, attribute.g):
                todo += graph.node
