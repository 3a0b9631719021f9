"""ONNX files: for onnxruntime and whatever else reads them.

The program's jaxpr becomes nodes, primitive by primitive (`lowering`, by the rules of
the families beside it, which register themselves), and these a protobuf.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice
from exburn.errors import ExportError, require
from exburn.export.onnx import (  # noqa: F401  (their rules register themselves)
    arrangement,
    control,
    elementwise,
    fourier,
    indexing,
    products,
    quantization,
    reductions,
    scatters,
    sorting,
    windows,
)
from exburn.export.onnx.graph import (
    OnnxConstant,
    OnnxGraph,
    OnnxNode,
    OnnxTensor,
    file_dtype,
    prune,
)
from exburn.export.onnx.lowering import (
    Lowering,
    add_inputs,
    hint_for,
    mark_shared,
)
from exburn.export.onnx.quantization import fold_channels
from exburn.export.operations import rounds
from exburn.export.program import ExportedProgram
from exburn.export.report import Problem, WriteResult
from exburn.export.signature import Interface
from exburn.export.structure import KEY, encode

_STEP = 0.02  # of an output that is rounded to 8 bits: some steps


def require_packages() -> None:
    """Raises ``MissingDependencyError`` where ``onnx`` or ``onnxruntime`` is absent."""
    require("onnx", "export", "writing ONNX needs the package onnx", extra="onnx")
    reason = "an ONNX file is run by onnxruntime before it is kept"
    require("onnxruntime", "export", reason, extra="onnx")


def write(program: ExportedProgram, path: Path, options: dict[str, Any]) -> WriteResult:
    """Writes the program.

    Args:
        options: ``integers``: ``"int64"`` or ``"int32"`` for inputs of integers of 32
            bits; by default what the model declares.

    Raises:
        ExportError: An operation cannot be expressed, or the file would be too large.
        ArgumentError: There are no such integers.
    """
    program.wide = _wide_inputs(program, options.get("integers"))
    graph = make_graph(program)
    write_graph(graph, path, program)
    if rounds(program.operations):  # a number between two steps may go either way
        return WriteResult(_operators(graph), rtol=_STEP, typical=True)
    return WriteResult(_operators(graph))


def runner(program: Interface, path: Path) -> tuple[str, list[Callable[[list], list]]]:
    """onnxruntime, on the CPU, for the file."""
    onnxruntime = require("onnxruntime", "export", "it runs the file", extra="onnx")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(path), settings, providers=["CPUExecutionProvider"]
    )
    names = program.input_names
    types = {spec.name: spec.type for spec in session.get_inputs()}

    def fit(name: str, value: np.ndarray) -> np.ndarray:
        return value.astype("int64") if types[name] == "tensor(int64)" else value

    def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
        feed = dict(zip(names, inputs, strict=True))
        arrays = {name: fit(name, v) for name, v in feed.items() if name in types}
        return session.run(program.output_names, arrays)

    return f"onnxruntime {onnxruntime.__version__}", [run]


def problems(program: ExportedProgram) -> list[Problem]:
    """The operations that ONNX cannot express, each of a layer once."""
    lowering, rows = _begin(program), {}
    random_slots: set[int] = set()  # what is made of random numbers is told once
    for step in program.operations.steps:
        random = any(id(slot) in random_slots for slot in step.inputs)
        try:
            lowering.lower(step)
        except ExportError as error:
            layer, primitive = error.layer or "", error.primitive or step.name
            hint = hint_for(primitive, error.details.get("reason", ""))
            if not random:
                problem = Problem(layer, primitive, hint)
                rows.setdefault((layer, primitive), problem)
            random = random or primitive.startswith("random_")
            for slot in step.outputs:
                dtype = "f4" if random else file_dtype(slot.aval.dtype)
                name = lowering.graph.fresh("unknown")
                lowering.bind(slot, OnnxTensor(name, slot.aval.shape, dtype))
        if random:
            random_slots |= {id(slot) for slot in step.outputs}
    return list(rows.values())


def _wide_inputs(program: ExportedProgram, integers: Any) -> frozenset[str]:
    """The names of the inputs that are int64 in the file."""
    if integers is not None:
        check_choice("export", "integers", integers, ("int32", "int64"))
    specs = jax.tree.leaves(program.specs)
    declared = program.declared or [spec.dtype for spec in specs]
    return frozenset(
        name
        for name, spec, dtype in zip(program.input_names, specs, declared, strict=True)
        if spec.dtype == np.int32 and (integers or np.dtype(dtype).name) == "int64"
    )


def _operators(graph: Any) -> Counter:
    counts: Counter = Counter()
    for node in graph.nodes:
        counts[node.operator] += 1
        for value in node.attributes.values():
            if hasattr(value, "nodes"):
                counts.update(_operators(value))
    return counts


def make_graph(program: ExportedProgram) -> OnnxGraph:
    """The graph of a program.

    Raises:
        ExportError: An operation cannot be expressed.
    """
    lowering = _begin(program)
    graph, operations = lowering.graph, program.operations
    values = lowering.run(operations)
    for name, value in zip(program.output_names, values, strict=True):
        label = graph.fresh(f"output {name}")
        graph.nodes.append(
            OnnxNode("Identity", [graph.name_of(value)], [name], {}, label)
        )
        graph.outputs.append(OnnxTensor(name, value.shape, value.dtype))
    if rounds(operations):
        fold_channels(graph)
    prune(graph)
    return graph


def _begin(program: ExportedProgram) -> Lowering:
    """The lowering of a program, which knows its weights and inputs."""
    graph, operations = OnnxGraph(), program.operations
    lowering = Lowering(graph)
    specs = jax.tree.leaves(program.specs)
    tensors = add_inputs(graph, program.input_names, specs, program.wide)
    for name in program.output_names:
        graph.fresh(name)
    weights, count = program.weights, len(program.weight_names)
    constants = {}
    for slot, name, array in zip(
        operations.inputs[:count], program.weight_names, weights, strict=True
    ):
        constants[id(slot)] = OnnxConstant(array, name)
        lowering.bind(slot, constants[id(slot)])
    *inputs, key = operations.inputs[count:]
    for slot, tensor in zip(inputs, tensors, strict=True):
        lowering.bind(slot, tensor)
    lowering.bind(
        key, OnnxTensor(graph.fresh("random key"), (), "u4")
    )  # nothing reads it
    mark_shared(operations, constants)
    return lowering


OPSET, IR_VERSION = 18, 9
_LIMIT = (1 << 31) - (1 << 20)  # of a protobuf, less some room for the graph


def write_graph(graph: OnnxGraph, path: Path, program: ExportedProgram) -> None:
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


def _graph(onnx: Any, graph: OnnxGraph, name: str) -> Any:
    def info(tensor: OnnxTensor) -> Any:
        return onnx.helper.make_tensor_value_info(
            tensor.name,
            _kind(onnx, tensor.dtype),
            [n if isinstance(n, int) else str(n) for n in tensor.shape],
        )

    return onnx.helper.make_graph(
        [_node(onnx, node) for node in graph.nodes],
        name,
        list(map(info, graph.inputs)),
        list(map(info, graph.outputs)),
    )


def _node(onnx: Any, node: OnnxNode) -> Any:
    proto = onnx.NodeProto(
        op_type=node.operator, name=node.name, input=node.inputs, output=node.outputs
    )
    for key, value in sorted(node.attributes.items()):
        if isinstance(value, OnnxGraph):
            attribute = onnx.AttributeProto(name=key, type=onnx.AttributeProto.GRAPH)
            attribute.g.CopyFrom(_graph(onnx, value, f"{node.name}/{key}"))
        elif isinstance(value, np.dtype):
            attribute = onnx.helper.make_attribute(key, _kind(onnx, value))
        elif isinstance(value, np.ndarray):
            attribute = onnx.helper.make_attribute(key, _initializer(onnx, "", value))
        else:
            attribute = onnx.helper.make_attribute(key, value)
        proto.attribute.append(attribute)
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
