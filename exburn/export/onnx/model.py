"""A whole program as a graph of ONNX."""

from __future__ import annotations

import jax

from exburn.errors import ExportError
from exburn.export.onnx import (  # noqa: F401  (their rules register themselves)
    arrangement,
    control,
    elementwise,
    fourier,
    indexing,
    products,
    reductions,
    scatters,
    sorting,
    windows,
)
from exburn.export.onnx.graph import Constant, Graph, Node, Tensor
from exburn.export.onnx.lowering import (
    Lowering,
    add_inputs,
    hint_for,
    mark_shared,
)
from exburn.export.program import Program
from exburn.export.report import Problem


def make_graph(program: Program) -> Graph:
    """The graph of a program.

    Raises:
        ExportError: An operation cannot be expressed.
    """
    lowering = _begin(program)
    graph, operations = lowering.graph, program.operations
    found = lowering.run(operations)
    for name, value in zip(program.output_names, found, strict=True):
        label = graph.fresh(f"output {name}")
        graph.nodes.append(Node("Identity", [graph.name_of(value)], [name], {}, label))
        graph.outputs.append(Tensor(name, value.shape, value.dtype))
    return graph


def find_problems(program: Program) -> list[Problem]:
    """The operations that cannot be expressed, each of a layer once."""
    lowering, found = _begin(program), {}
    for step in program.operations.steps:
        try:
            lowering.lower(step)
        except ExportError as error:
            layer, primitive = error.layer or "", error.primitive or step.name
            hint = hint_for(primitive, error.details.get("reason", ""))
            found.setdefault((layer, primitive), Problem(layer, primitive, hint))
            for slot in step.outputs:
                stand_in = Tensor(
                    lowering.graph.fresh("unknown"), slot.aval.shape, "f4"
                )
                lowering.bind(slot, stand_in)
    return list(found.values())


def _begin(program: Program) -> Lowering:
    """The lowering of a program, which knows its weights and inputs."""
    graph, operations = Graph(), program.operations
    lowering = Lowering(graph)
    specs = jax.tree.leaves(program.specs)
    tensors = add_inputs(graph, program.input_names, specs)
    for name in program.output_names:
        graph.fresh(name)
    weights, count = program.weights, len(program.weight_names)
    constants = {}
    for slot, name, array in zip(
        operations.inputs[:count], program.weight_names, weights, strict=True
    ):
        constants[id(slot)] = Constant(array, name)
        lowering.bind(slot, constants[id(slot)])
    *inputs, key = operations.inputs[count:]
    for slot, tensor in zip(inputs, tensors, strict=True):
        lowering.bind(slot, tensor)
    lowering.bind(key, Tensor(graph.fresh("random key"), (), "u4"))  # nothing reads it
    mark_shared(operations, constants)
    return lowering
