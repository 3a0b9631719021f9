"""What is told of an export: its report, and what stands in the way of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from exburn.errors import ExportError, printable
from exburn.errors.boundary import guard_methods


class Problem(NamedTuple):
    """An operation that a format cannot express.

    Attributes:
        layer: Path of the layer that it belongs to; empty if it is in none.
        primitive: Name of JAX's operation.
        hint: What there is to do.

    Example:
        >>> Problem("block/fft", "fft", "Leave it out of the model.").primitive
        'fft'
    """

    layer: str
    primitive: str
    hint: str


class WriteResult(NamedTuple):
    """What a writer tells of the file it has written.

    Attributes:
        operators: How often each operator is in it.
        checked: What ran the file, if the writer compared it itself.
        error: The greatest difference that it found.
        rtol: The greatest that is taken, where the caller names none and the file is
            not in float32.
        typical: Whether it is compared by the mean square, not by the greatest.
        runs: As ``runner`` returns them, if the writer has run the file already.
        notes: What else the report tells.
    """

    operators: Mapping[str, int]
    checked: str = ""
    error: float | None = None
    rtol: float | None = None
    typical: bool = False
    runs: tuple[str, Sequence[Callable]] | None = None
    notes: tuple[str, ...] = ()


@guard_methods
@dataclasses.dataclass(frozen=True)
class ExportReport:
    """What ``model.export`` wrote, and how it compares with the model.

    Attributes:
        path: The file or folder.
        format: Name of its format.
        bytes: Its size.
        weights: Bytes of the model's weights, in the dtypes of the file.
        operators: How often each operator is in it.
        error: The greatest difference from the model's outputs, as a part of the
            greatest output; of int8 the root of the mean square of all; ``None`` if the
            file was not run.
        rtol: The greatest error that was taken.
        checked: What ran it, and on how many rows; or why it was not run.
        inputs, outputs: Their names and what they are, ``float32[batch, 3]``.
        notes: What else is to be known: outputs that a rounding inside the model lets
            differ by more.

    Example:
        >>> report = ExportReport(
        ...     Path("m.onnx"), "onnx", 120, 100, {"MatMul": 1}, 1e-7, 1e-4,
        ...     "onnxruntime 1.20, 1 and 3 rows", {"x": "float32[batch, 3]"}, {},
        ... )
        >>> print(report)
        m.onnx (onnx): 120 bytes, 100 of weights
          1 operator: MatMul
          greatest error 1.0e-07 (onnxruntime 1.20, 1 and 3 rows)
          input x: float32[batch, 3]
    """

    path: Path
    format: str
    bytes: int
    weights: int
    operators: Mapping[str, int]
    error: float | None
    rtol: float
    checked: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        count = sum(self.operators.values())
        kinds = sorted(self.operators.items(), key=lambda item: (-item[1], item[0]))
        names = [f"{n} {kind}" if n > 1 else kind for kind, n in kinds]
        lines = [
            f"{self.path} ({self.format}): {self.bytes:,} bytes, "
            f"{self.weights:,} of weights"
        ]
        if count:
            several = "" if count == 1 else "s"
            lines.append(f"  {count} operator{several}: {', '.join(names)}")
        if self.error is None:
            lines.append(f"  {self.checked}")
        else:
            lines.append(f"  greatest error {self.error:.1e} ({self.checked})")
        lines += [f"  input {name}: {what}" for name, what in self.inputs.items()]
        lines += [f"  output {name}: {what}" for name, what in self.outputs.items()]
        lines += [f"  {note}" for note in self.notes]
        return printable("\n".join(lines))


def explain(error: ExportError, problems: Sequence[Problem]) -> ExportError:
    """The error with the layer and the primitive that it is about, if one was found."""
    if not problems:
        return error
    layer, primitive, hint = problems[0]
    details = {"layer": layer, "primitive": primitive, "cause": hint}
    if len(problems) > 1:
        others = [f"{p.layer or 'the model'} ({p.primitive})" for p in problems[1:]]
        details["also"] = ", ".join(others)
    return ExportError(error.op, error.reason, {**error.details, **details})
