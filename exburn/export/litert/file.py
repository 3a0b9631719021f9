"""What is in a LiteRT file, read from its schema."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

from exburn.errors import require


class LiteRTSignature(NamedTuple):
    """One way into a file.

    Attributes:
        name: Its name.
        rows: How many rows it takes.
        inputs, outputs: Their names.
    """

    name: str
    rows: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def signatures(data: bytes) -> list[LiteRTSignature]:
    """The signatures of a file, in its order."""
    model = _model(data)
    entries = []
    for number in range(model.SignatureDefsLength()):
        about = model.SignatureDefs(number)
        graph = model.Subgraphs(about.SubgraphIndex())
        inputs = [about.Inputs(i) for i in range(about.InputsLength())]
        outputs = [about.Outputs(i) for i in range(about.OutputsLength())]
        first = graph.Tensors(inputs[0].TensorIndex())
        rows = int(first.Shape(0)) if first.ShapeLength() else 1
        entries.append(
            LiteRTSignature(
                about.SignatureKey().decode(),
                rows,
                tuple(each.Name().decode() for each in inputs),
                tuple(each.Name().decode() for each in outputs),
            )
        )
    return entries


def about(data: bytes, key: str) -> str | None:
    """The text that a file holds under a key of its metadata."""
    model = _model(data)
    for number in range(model.MetadataLength()):
        entry = model.Metadata(number)
        if (entry.Name() or b"").decode(errors="replace") == key:
            text = model.Buffers(entry.Buffer()).DataAsNumpy()
            return bytes(text).decode(errors="replace")
    return None


def operators(data: bytes) -> dict[str, int]:
    """How often each operator occurs in a file."""
    model = _model(data)
    kinds = vars(_schema().BuiltinOperator).items()
    names = {value: name for name, value in kinds if isinstance(value, int)}
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    counts: collections.Counter[str] = collections.Counter()
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        for place in range(graph.OperatorsLength()):
            code = codes[graph.Operators(place).OpcodeIndex()]
            kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
            custom = code.CustomCode()
            counts[custom.decode() if custom else names.get(kind, str(kind))] += 1
    return dict(counts.most_common())


def _schema() -> Any:
    reason = "LiteRT files are read by ai-edge-litert"
    return require(
        "ai_edge_litert.schema_py_generated",
        "export",
        reason,
        extra="litert",
        package="ai-edge-litert",
    )


def _model(data: bytes) -> Any:
    return _schema().Model.GetRootAs(data, 0)
