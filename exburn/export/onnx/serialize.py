"""A graph as a protobuf, in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ExportError, require
from exburn.export.onnx.graph import Graph, Node, Tensor
from exburn.export.program import Program
from exburn.export.structure import KEY, encode

OPSET, IR_VERSION = 18, 9
_LIMIT = (1 << 31) - (1 << 20)  # of a protobuf, less some room for the graph


def write_graph(graph: Graph, path: Path, program: Program) -> None:
    """Writes a graph into a file.

    Raises:
        ExportError: It holds more than a protobuf can.
    """
    onnx: Any = require("onnx", "export", "it writes the file", extra="onnx")
    size = sum(array.nbytes for array in graph.initializers.values())
    if size > _LIMIT:
        raise ExportError(
            "export",
            f"an ONNX file holds 2 GB, the weights take {size / 1e9:.1f} GB",
            hint="Export the parts of the model by themselves, or as StableHLO.",
        )
    proto = _graph(onnx, graph, str(getattr(program.model, "name", "model")))
    for name in list(graph.initializers):
        proto.initializer.append(_initializer(onnx, name, graph.initializers[name]))
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(
        proto, opset_imports=[opset], producer_name="exburn", ir_version=IR_VERSION
    )
    if structure := encode(program.outputs, program.output_names):
        onnx.helper.set_model_props(model, {KEY: structure})
    path.write_bytes(model.SerializeToString())


def _graph(onnx: Any, graph: Graph, name: str) -> Any:
    def info(tensor: Tensor) -> Any:
        return onnx.helper.make_tensor_value_info(
            tensor.name,
            _kind(onnx, tensor.dtype),
            [n if isinstance(n, int) else _symbol(n) for n in tensor.shape],
        )

    return onnx.helper.make_graph(
        [_node(onnx, node) for node in graph.nodes],
        name,
        list(map(info, graph.inputs)),
        list(map(info, graph.outputs)),
    )


def _symbol(size: Any) -> str:
    return str(size)


def _node(onnx: Any, node: Node) -> Any:
    proto = onnx.NodeProto(
        op_type=node.operator, name=node.name, input=node.inputs, output=node.outputs
    )
    for key, value in sorted(node.attributes.items()):
        if isinstance(value, Graph):
            made = onnx.AttributeProto(name=key, type=onnx.AttributeProto.GRAPH)
            made.g.CopyFrom(_graph(onnx, value, f"{node.name}/{key}"))
        elif isinstance(value, np.dtype):
            made = onnx.helper.make_attribute(key, _kind(onnx, value))
        elif isinstance(value, np.ndarray):
            made = onnx.helper.make_attribute(key, _initializer(onnx, "", value))
        else:
            made = onnx.helper.make_attribute(key, value)
        proto.attribute.append(made)
    return proto


def _initializer(onnx: Any, name: str, array: np.ndarray) -> Any:
    """An array's protobuf, of which the bytes are copied once."""
    little = array if sys.byteorder == "little" else array.byteswap()
    return onnx.TensorProto(
        name=name,
        data_type=_kind(onnx, array.dtype),
        dims=array.shape,
        raw_data=np.ascontiguousarray(little).tobytes(),
    )


def _kind(onnx: Any, dtype: np.dtype) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
