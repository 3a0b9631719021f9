"""How far a program's outputs depend on the last bits before a rounding.

Runtimes add in different orders, so a float differs in its last bits, and where it is
half way between two integers it is rounded to another one: a pixel of an image that is
resized as ``uint8``. What follows from it is no fault of a file. So where a file
differs by more than it may, the program is computed twice more, with the floats before
each rounding a little greater, and a little less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from exburn.export.operations import Known, Operation, Operations, Slot, outputs_of, run
from exburn.export.program import Program

# What the floats of a tensor differ by in two runtimes, as a part of the greatest.
_LAST_BITS = 1e-5
_FUNCTIONS = {"round", "floor", "ceil"}
_OF_INTEGERS = _FUNCTIONS | {  # what of integers gives integers
    *("abs", "add", "broadcast_in_dim", "clamp", "concatenate", "convert_element_type"),
    *("copy", "dynamic_slice", "gather", "max", "min", "mul", "neg", "pad", "reshape"),
    *("rev", "select_n", "slice", "squeeze", "sub", "transpose"),
}


class Reach(NamedTuple):
    """What an output may be.

    Attributes:
        low, high: The least and the greatest value of each entry.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def widest(self) -> float:
        """The greatest difference of the two."""
        if not self.low.size:
            return 0.0
        apart = self.high.astype(np.float64) - self.low.astype(np.float64)
        return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def reaches(program: Program, inputs: list[np.ndarray]) -> list[Reach] | None:
    """What each output may be for inputs; ``None`` if nothing is rounded.

    Args:
        program: The program.
        inputs: Its inputs, in its order.
    """
    specs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in inputs]
    exact = program.with_specs(jax.tree.structure(program.specs).unflatten(specs))
    operations = exact.operations
    steps = _rounding_steps(operations, len(exact.weights))
    if not steps:
        return None
    weights = jax.tree.leaves(exact.groups)

    def compute(sign: Any, weights: Any, inputs: Any) -> list[Any]:
        def moved(step: Operation, values: Any) -> Any:
            if id(step) not in steps:
                return NotImplemented
            value, *others = values
            size = jnp.abs(value).max(initial=0, where=jnp.isfinite(value))
            values = [value + sign * _LAST_BITS * size, *others]
            return step.primitive.bind(*values, **step.params)

        rules = dict.fromkeys((*_FUNCTIONS, "convert_element_type"), moved)
        given = [*weights, *inputs, jax.random.key(0)]
        places = map(id, operations.inputs)
        values = run(operations.steps, dict(zip(places, given, strict=True)), rules)
        return outputs_of(operations, values)

    with jax.default_matmul_precision("highest"):
        run_moved = jax.jit(compute)
        found = [run_moved(np.float32(s), weights, inputs) for s in (-1, 0, 1)]
    columns = [
        np.stack(list(map(np.asarray, column))) for column in zip(*found, strict=True)
    ]
    return [Reach(column.min(0), column.max(0)) for column in columns]


def _rounding_steps(operations: Operations, weights: int) -> set[int]:
    """The ids of the operations that make integers of fractions that inputs tell."""
    told = {id(slot) for slot in operations.inputs[weights:-1]}
    whole: set[int] = set()  # slots of floats that hold integers
    steps = set()
    for step in operations.steps:
        exact = all(_is_whole(slot, whole) for slot in step.inputs)
        if step.name in _FUNCTIONS or exact and step.name in _OF_INTEGERS:
            whole |= {id(slot) for slot in step.outputs}
        if not any(id(slot) in told for slot in step.inputs):
            continue
        told |= {id(slot) for slot in step.outputs}
        to_integer = step.name == "convert_element_type" and jnp.issubdtype(
            step.outputs[0].aval.dtype, jnp.integer
        )
        if not exact and (step.name in _FUNCTIONS or to_integer):
            steps.add(id(step))
    return steps


def _is_whole(slot: Slot, whole: set[int]) -> bool:
    """Whether a slot holds integers in every runtime."""
    if not jnp.issubdtype(slot.aval.dtype, jnp.floating):
        return True
    if isinstance(slot, Known):
        return bool((np.asarray(slot.value) == np.round(slot.value)).all())
    return id(slot) in whole
