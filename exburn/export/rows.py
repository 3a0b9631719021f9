"""Programs of fixed numbers of rows, for formats that have no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError
from exburn.export.operations import Known, Rule, run
from exburn.export.program import Program


def fix_rows(program: Program, rows: int) -> Program:
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
    program: Program, rules: Mapping[str, Rule] | None = None
) -> tuple[Callable[..., list], list[Any]]:
    """A function from arrays to a list of arrays, weights included, and its specs.

    Args:
        program: The program.
        rules: By primitive what computes it instead: see `operations.apply`.
    """
    operations = program.operations
    weights = jax.tree.leaves(program.groups)
    specs = jax.tree.leaves(program.specs)

    def function(*leaves: Any) -> list[Any]:
        values = [*weights, *leaves, jax.random.key(0)]
        slots = map(id, operations.inputs)
        known = dict(zip(slots, values, strict=True))
        found = run(operations.steps, known, rules)
        return [
            jnp.asarray(slot.value) if isinstance(slot, Known) else found[id(slot)]
            for slot in operations.outputs
        ]

    return function, specs


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
