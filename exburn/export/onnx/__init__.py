"""ONNX files: for onnxruntime and whatever else reads them.

The program's jaxpr becomes nodes, primitive by primitive (`lowering` and the rules in
the modules beside it), and these a protobuf (`serialize`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_choice
from exburn.errors import require
from exburn.export.operations import rounds
from exburn.export.program import Program
from exburn.export.report import Problem, Written
from exburn.export.signature import Interface

_STEP = 0.02  # of an output that is rounded to 8 bits: some steps


def require_packages() -> None:
    """Raises ``MissingDependencyError`` where ``onnx`` or ``onnxruntime`` is absent."""
    require("onnx", "export", "writing ONNX needs the package onnx", extra="onnx")
    reason = "an ONNX file is run by onnxruntime before it is kept"
    require("onnxruntime", "export", reason, extra="onnx")


def write(program: Program, path: Path, options: dict[str, Any]) -> Written:
    """Writes the program.

    Args:
        program: The program.
        path: The file.
        options: ``integers``: ``"int64"`` or ``"int32"`` for inputs of integers of 32
            bits; by default what the model declares.

    Raises:
        ExportError: An operation cannot be expressed, or the file would be too large.
        ArgumentError: There are no such integers.
    """
    from exburn.export.onnx.model import make_graph
    from exburn.export.onnx.serialize import write_graph

    program.wide = _wide_inputs(program, options.get("integers"))
    graph = make_graph(program)
    write_graph(graph, path, program)
    if rounds(program.operations):  # a number between two steps may go either way
        return Written(_operators(graph), rtol=_STEP, typical=True)
    return Written(_operators(graph))


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
        kept = {name: fit(name, v) for name, v in feed.items() if name in types}
        return session.run(program.output_names, kept)

    return f"onnxruntime {onnxruntime.__version__}", [run]


def problems(program: Program) -> list[Problem]:
    """What ONNX cannot express, each operation of a layer once."""
    from exburn.export.onnx.model import find_problems

    return find_problems(program)


def _wide_inputs(program: Program, integers: Any) -> frozenset[str]:
    """The names of the inputs that are int64 in the file."""
    if integers is not None:
        check_choice("export", "integers", integers, ("int32", "int64"))
    specs = jax.tree.leaves(program.specs)
    declared = program.declared or [spec.dtype for spec in specs]
    return frozenset(
        name
        for name, spec, said in zip(program.input_names, specs, declared, strict=True)
        if spec.dtype == np.int32 and (integers or np.dtype(said).name) == "int64"
    )


def _operators(graph: Any) -> Counter:
    counts: Counter = Counter()
    for node in graph.nodes:
        counts[node.operator] += 1
        for value in node.attributes.values():
            if hasattr(value, "nodes"):
                counts.update(_operators(value))
    return counts
