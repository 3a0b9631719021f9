"""Programs of fixed numbers of rows, for formats that have no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, ExportError
from exburn.export.operations import (
    Known,
    ProgramStep,
    Rule,
    ValueSlot,
    apply,
    outputs_of,
    run,
    steps_for,
)
from exburn.export.program import ExportedProgram

_SMALL = 1 << 10  # bytes that a value may take in any case
_PRODUCTS = {"dot_general"}


def fix_rows(program: ExportedProgram, rows: int) -> ExportedProgram:
    """The program for so many rows.

    Raises:
        ArgumentError: Another size of its inputs is open.
    """

    def fix(spec: Any) -> Any:
        shape = (rows, *spec.shape[1:]) if spec.shape else ()
        if all(isinstance(n, int) for n in shape):
            return jax.ShapeDtypeStruct(shape, spec.dtype)
        raise ArgumentError(
            "export",
            "this format needs to know every size",
            {"open": f"{tuple(map(str, spec.shape))}"},
            hint="model.export(path, dynamic=None, samples=x[:8]).",
        )

    return program.with_specs(jax.tree.map(fix, program.specs))


def flatten(
    program: ExportedProgram, rules: Mapping[str, Rule] | None = None
) -> tuple[Callable[..., list], list[Any]]:
    """A function from arrays to a list of arrays, weights included, and its specs.

    Args:
        program: The program.
        rules: By primitive what computes it instead: see `operations.apply`.

    Raises:
        ExportError: The program draws random numbers.
    """
    operations = program.operations
    steps, constants = fold_weights(program)
    places = list(map(id, operations.inputs))[len(program.weights) : -1]

    def function(*leaves: Any) -> list[Any]:
        values = {place: slot.value for place, slot in constants.items()}
        values |= dict(zip(places, leaves, strict=True))
        return outputs_of(operations, run(steps, values, rules))

    return function, jax.tree.leaves(program.specs)


def fold_weights(
    program: ExportedProgram,
) -> tuple[list[ProgramStep], dict[int, Known]]:
    """The operations that depend on the inputs, and the other values by slot.

    What depends on weights alone is computed here, unless that takes more bytes than
    what it is computed from. What a product multiplies by is computed in any case:
    converters take it for a weight.

    Raises:
        ExportError: An output depends on random numbers.
    """
    *slots, key = program.operations.inputs
    constants = {
        id(slot): Known(slot.aval, weight)
        for slot, weight in zip(slots, program.weights, strict=False)
    }
    remaining: list[ProgramStep] = []
    later: dict[int, ProgramStep] = {}  # what depends on weights alone, by its outputs

    def compute(step: ProgramStep) -> None:
        for slot in step.inputs:
            if id(slot) in later and id(slot) not in constants:
                compute(later[id(slot)])
        operands = [constants.get(id(slot), slot) for slot in step.inputs]
        values = [slot.value for slot in operands if isinstance(slot, Known)]
        for slot, value in zip(step.outputs, apply(step, values), strict=True):
            constants[id(slot)] = Known(slot.aval, np.asarray(value))

    for step in program.operations.steps:
        if any(slot is key for slot in step.inputs):
            raise ExportError(
                "export",
                "a file for another runtime draws no random numbers",
                {"layer": step.layer, "primitive": step.name},
            )
        if step.name in _PRODUCTS:
            for slot in step.inputs:
                if id(slot) in later and id(slot) not in constants:
                    compute(later[id(slot)])
        step_inputs = tuple(constants.get(id(slot), slot) for slot in step.inputs)
        step = dataclasses.replace(step, inputs=step_inputs)
        if not _is_fixed(step, later):
            remaining.append(step)
            continue
        later |= {id(slot): step for slot in step.outputs}
        small = _size(step.outputs) <= max(_size(step_inputs), _SMALL)
        if small and all(isinstance(slot, Known) for slot in step_inputs):
            if not _repeats(step):
                compute(step)
                continue
        remaining.append(step)
    return steps_for(remaining, program.operations.outputs), constants


def _is_fixed(step: ProgramStep, later: Mapping[int, ProgramStep]) -> bool:
    """Tells whether an operation depends on weights alone."""
    fixed = all(isinstance(slot, Known) or id(slot) in later for slot in step.inputs)
    fixed = fixed and not any(map(_is_key, step.outputs))
    return fixed and step.name != "composite"  # a rule reads its integers


def _repeats(step: ProgramStep) -> bool:
    """Whether a row of floats is repeated: a bias, which converters want as a row."""
    (first, *_), (result, *_) = step.inputs or (None,), step.outputs
    if step.name != "broadcast_in_dim" or first is None or not first.aval.ndim:
        return False
    floats = jnp.issubdtype(result.aval.dtype, jnp.floating)
    return floats and result.aval.size > first.aval.size


def _is_key(slot: ValueSlot) -> bool:
    return jnp.issubdtype(slot.aval.dtype, jax.dtypes.extended)


def _size(slots: Sequence[ValueSlot]) -> int:
    return sum(slot.aval.size * slot.aval.dtype.itemsize for slot in slots)


def save_arrays(path: Path, names: Sequence[str], values: Sequence[Any]) -> None:
    """Writes arrays by name as an ``.npz`` file."""
    arrays: Any = dict(zip(names, values, strict=True))
    np.savez(path, **arrays)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name."""
    with np.load(path) as file:
        return dict(file)


def batches(
    inputs: Sequence[np.ndarray], rows: int
) -> tuple[list[list[np.ndarray]], int]:
    """Inputs cut into batches, the last filled up, and how many rows there were.

    Example:
        >>> parts, count = batches([np.arange(3)], 2)
        >>> [part[0].tolist() for part in parts], count
        ([[0, 1], [2, 2]], 3)
    """
    count = len(inputs[0])
    places = [
        np.minimum(np.arange(start, start + rows), count - 1)
        for start in range(0, count, rows)
    ]
    return [[array[chosen] for array in inputs] for chosen in places], count


def join_batches(
    parts: Sequence[Mapping[str, Any]], names: Sequence[str], rows: int
) -> list[np.ndarray]:
    """The outputs of batches, without what filled up the last."""
    return [
        np.concatenate([np.asarray(part[name]) for part in parts])[:rows]
        for name in names
    ]


def save_batches(
    folder: Path, inputs: Sequence[np.ndarray], names: Sequence[str], rows: int
) -> int:
    """Writes batches of inputs for a converter's job, and returns how many."""
    parts, _ = batches(inputs, rows)
    for number, part in enumerate(parts):
        save_arrays(folder / f"batch_{number}.npz", names, part)
    return len(parts)


def load_outputs(
    folder: Path, count: int, names: Sequence[str], rows: int
) -> list[np.ndarray]:
    """The outputs that a job has left of so many batches."""
    parts = [load_arrays(folder / f"outputs_{n}.npz") for n in range(count)]
    return join_batches(parts, names, rows)
