"""Which operation of a program a converter cannot convert, or converts wrongly.

A converter says at best which of its own operations it gave up on, and nothing of what
it converts wrongly. So once a file is known to be bad, each operation is converted by
itself, in a process that a crash may end, and run beside JAX. Converters join
operations, and one may fail only in company: then each layer's are tried together.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.errors import ExportError
from exburn.export.comparison import difference
from exburn.export.converter import artifact, run_converter
from exburn.export.operations import Known, ProgramStep, Rule, ValueSlot, run
from exburn.export.program import ExportedProgram
from exburn.export.report import Problem
from exburn.export.rows import fold_weights, load_arrays, save_arrays

_LIMIT = 1e-4  # of the error of one operation, beside its greatest entry


@dataclasses.dataclass(eq=False)
class Piece:
    """Operations that are tried together.

    Attributes:
        steps: They, in their order.
        inputs: The slots that they take from others.
        outputs: Those that they give.
        error: What went wrong; empty if nothing did.
    """

    steps: list[ProgramStep]
    inputs: list[ValueSlot]
    outputs: list[ValueSlot]
    error: str = ""

    def compute(self, rules: Any, *values: Any) -> list[Any]:
        """The outputs for inputs."""
        arguments = dict(zip(map(id, self.inputs), values, strict=True))
        results = run(self.steps, arguments, rules)
        return [results[id(slot)] for slot in self.outputs]


def find_problems(
    program: ExportedProgram,
    script: Path,
    target: str,
    rules: Mapping[str, Rule] | None = None,
) -> list[Problem]:
    """What of a program a converter cannot convert, or converts wrongly.

    Args:
        program: The program, of known sizes.
        script: The converter's script, which takes jobs of ``pieces``.
        target: The converter's name, as errors have it.
        rules: What the converter is given in place of some primitives.
    """
    steps, failed = fold_weights(program)[0], []
    for pieces in (_each_once(steps), _by_layer(steps)):
        try:
            tried = _try(pieces, script, program.target, target, rules)
        except ExportError:  # what failed before is the error to show
            break
        if failed := [piece for piece in tried if piece.error]:
            break
    problems = []
    for piece in failed:
        step = piece.steps[-1]
        names = ", ".join(dict.fromkeys(each.name for each in piece.steps))
        problems.append(Problem(step.layer, names, piece.error))
    return list(dict.fromkeys(problems))


def _each_once(steps: Sequence[ProgramStep]) -> list[Piece]:
    """Each operation by itself, and of those that are alike only the first."""
    pieces, marks = [], set()
    for step in steps:
        operands = [
            (slot.aval.str_short(), isinstance(slot, Known) and slot.aval.size < 9)
            for slot in step.inputs
        ]
        mark = step.name, str(step.params), str(operands)
        if mark not in marks:
            marks.add(mark)
            pieces.append(_piece([step], step.outputs))
    return pieces


def _by_layer(steps: Sequence[ProgramStep]) -> list[Piece]:
    """The operations of each layer together."""
    groups: dict[str, list[ProgramStep]] = {}
    for step in steps:
        groups.setdefault(step.layer, []).append(step)
    pieces = []
    for layer, group in groups.items():
        outside = {
            id(slot) for step in steps if step.layer != layer for slot in step.inputs
        }
        inside = {id(slot) for step in group for slot in step.inputs}
        slots = [slot for step in group for slot in step.outputs]
        outputs = [s for s in slots if id(s) in outside or id(s) not in inside]
        pieces.append(_piece(group, outputs))
    return pieces


def _piece(steps: Sequence[ProgramStep], outputs: Sequence[ValueSlot]) -> Piece:
    inner = {id(slot) for step in steps for slot in step.outputs}
    inputs = {
        id(slot): slot
        for step in steps
        for slot in step.inputs
        if not isinstance(slot, Known) and id(slot) not in inner
    }
    return Piece(list(steps), list(inputs.values()), list(outputs))


def _try(
    pieces: list[Piece], script: Path, traced_for: Any, target: str, rules: Any
) -> list[Piece]:
    """The pieces, with what went wrong in each."""
    with tempfile.TemporaryDirectory(prefix="exburn-export-") as room:
        folder = Path(room)
        jobs, references = [], []
        for number, piece in enumerate(pieces):
            draws = _draw(piece)
            compute = jax.jit(partial(piece.compute, None))
            with jax.default_matmul_precision("highest"):
                values = [list(map(np.asarray, compute(*inputs))) for inputs in draws]
            references.append(values)
            inputs = draws[0]
            specs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
            data = artifact(partial(piece.compute, rules), specs, traced_for)
            name = f"piece_{number}"
            (folder / f"{name}.stablehlo").write_bytes(data)
            ins = [f"x{place}" for place, _ in enumerate(inputs)]
            outs = [f"y{place}" for place, _ in enumerate(values[0])]
            for draw, inputs in enumerate(draws):
                save_arrays(folder / f"{name}.in_{draw}.npz", ins, inputs)
            jobs.append({"name": name, "inputs": ins, "outputs": outs})
        run_converter(script, folder, {"pieces": jobs}, target=target)
        for job, piece, want in zip(jobs, pieces, references, strict=True):
            piece.error = _outcome(folder, job, want)
    return pieces


def _outcome(folder: Path, job: dict, references: list[list[np.ndarray]]) -> str:
    """What went wrong with a piece; empty if nothing did."""
    name = job["name"]
    reason = folder / f"{name}.json"
    for draw, values in enumerate(references):
        outputs = folder / f"{name}.out_{draw}.npz"
        if not outputs.exists():
            has_reason = reason.exists()
            return json.loads(reason.read_text()) if has_reason else "the process died"
        arrays = load_arrays(outputs)
        for place, want in zip(job["outputs"], values, strict=True):
            got = arrays[place]
            if got.shape != want.shape:
                return f"its result has the shape {got.shape}, not {want.shape}"
            if not (error := difference(want, got)) <= _LIMIT:
                return f"its result is another one, by {error:.1e}"
    return ""


def _draw(piece: Piece) -> list[list[np.ndarray]]:
    """Inputs that tell operations apart: positive ones, and others of any sign."""
    random = np.random.default_rng(0)
    first: list[np.ndarray] = []
    second: list[np.ndarray] = []
    for slot in piece.inputs:
        shape, dtype = slot.aval.shape, np.dtype(slot.aval.dtype)
        if dtype.kind in "biu":
            value = random.integers(0, 2, shape).astype(dtype)
            first.append(value)
            second.append((1 - value.astype(np.int32)).astype(dtype))
        else:
            first.append(random.uniform(0.1, 0.9, shape).astype(dtype))
            second.append(random.uniform(-2, 2, shape).astype(dtype))
    return [first, second]
