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
    quantization,
    reductions,
    scatters,
    sorting,
    windows,
)
from exburn.export.onnx.channels import fold_channels
from exburn.export.onnx.graph import Constant, Graph, Node, Tensor, file_dtype, prune
from exburn.export.onnx.lowering import (
    Lowering,
    add_inputs,
    hint_for,
    mark_shared,
)
from exburn.export.operations import rounds
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
    if rounds(operations):
        fold_channels(graph)
    prune(graph)
    return graph


def find_problems(program: Program) -> list[Problem]:
    """The operations that cannot be expressed, each of a layer once."""
    lowering, found = _begin(program), {}
    drawn: set[int] = set()  # what is made of random numbers is told once
    for step in program.operations.steps:
        random = any(id(slot) in drawn for slot in step.inputs)
        try:
            lowering.lower(step)
        except ExportError as error:
            layer, primitive = error.layer or "", error.primitive or step.name
            hint = hint_for(primitive, error.details.get("reason", ""))
            if not random:
                problem = Problem(layer, primitive, hint)
                found.setdefault((layer, primitive), problem)
            random = random or primitive.startswith("random_")
            for slot in step.outputs:
                dtype = "f4" if random else file_dtype(slot.aval.dtype)
                name = lowering.graph.fresh("unknown")
                lowering.bind(slot, Tensor(name, slot.aval.shape, dtype))
        if random:
            drawn |= {id(slot) for slot in step.outputs}
    return list(found.values())


def _begin(program: Program) -> Lowering:
    """The lowering of a program, which knows its weights and inputs."""
    graph, operations = Graph(), program.operations
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
        constants[id(slot)] = Constant(array, name)
        lowering.bind(slot, constants[id(slot)])
    *inputs, key = operations.inputs[count:]
    for slot, tensor in zip(inputs, tensors, strict=True):
        lowering.bind(slot, tensor)
    lowering.bind(key, Tensor(graph.fresh("random key"), (), "u4"))  # nothing reads it
    mark_shared(operations, constants)
    return lowering
