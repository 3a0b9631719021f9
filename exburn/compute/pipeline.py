"""Kernels in a row, fused into one compiled program."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from exburn.compute.kernels import kernel, refusal, static
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods


@guard_methods
@dataclasses.dataclass(frozen=True)
class Slot:
    """A value of a pipeline that does not exist yet: an input or a step's result.

    Attributes:
        index: Its number in the pipeline.
        name: Its name there.

    Example:
        >>> Slot(0, "x").name
        'x'
    """

    index: int
    name: str


@guard_methods
class ComputePipeline:
    """Records kernels and runs all of them as one program, without host round trips.

    Example:
        >>> import jax.numpy as jnp
        >>> pipe = ComputePipeline()
        >>> x = pipe.input("x")
        >>> hidden = pipe.add("matmul", x, jnp.eye(2))
        >>> out = pipe.add("relu", hidden)
        >>> pipe.run(x=jnp.array([[1.0, -1.0]])).tolist()
        [[1.0, 0.0]]
    """

    def __init__(self):
        self._inputs: list[Slot] = []
        self._steps: list[tuple[Slot, Any, tuple, dict[str, Any]]] = []
        self._programs: dict[tuple[int, ...], Any] = {}
        #: How often the pipeline was traced, and so compiled.
        self.traces = 0

    def input(self, name: str) -> Slot:
        """Declares an input, given by name to `run`.

        Raises:
            ArgumentError: The name is taken, or is none.
        """
        taken = ["outputs", *(slot.name for slot in self._inputs)]
        if not isinstance(name, str) or name in taken:
            raise ArgumentError(
                "ComputePipeline.input",
                f"the name must be a string that is not taken, received {name!r}",
                {"taken": ", ".join(taken)},
            )
        slot = Slot(len(self._inputs) + len(self._steps), name)
        self._inputs.append(slot)
        self._programs.clear()
        return slot

    def add(self, name: str, *inputs: Any, **params: Any) -> Slot:
        """Appends a kernel.

        Args:
            name: Of the kernel.
            *inputs: Slots of this pipeline, or arrays.
            **params: Other arguments of the kernel.

        Raises:
            UnknownNameError: No kernel has that name.
            ArgumentError: A slot of another pipeline.
        """
        self._require_own("ComputePipeline.add", [v for v in inputs if _is_slot(v)])
        slot = Slot(len(self._inputs) + len(self._steps), name)
        self._steps.append((slot, kernel(name), inputs, static(params)))
        self._programs.clear()
        return slot

    def run(self, *, outputs: Sequence[Slot] | None = None, **inputs: Any) -> Any:
        """Runs the pipeline; returns at once, with arrays still being computed.

        Args:
            outputs: The slots wanted, as a list; by default the last step's result.
            **inputs: An array for each input.

        Raises:
            ArgumentError: An input is missing or unknown, there are no steps, an
                output is no slot of this pipeline, or a kernel does not take what it
                is given.
        """
        names = {slot.name for slot in self._inputs}
        if names != set(inputs) or not self._steps:
            raise ArgumentError(
                "ComputePipeline.run",
                f"it takes the inputs {sorted(names)} and needs a step, received "
                f"{sorted(inputs)} and {len(self._steps)} steps",
            )
        if isinstance(outputs, Slot):
            raise ArgumentError(
                "ComputePipeline.run", "outputs must be a list of slots"
            )
        slots = [self._steps[-1][0]] if outputs is None else list(outputs)
        self._require_own("ComputePipeline.run", slots)
        key = tuple(slot.index for slot in slots)
        if key not in self._programs:
            self._programs[key] = self._compile(key)
        results = self._programs[key](inputs, self._constants())
        return results[0] if outputs is None else results

    def _require_own(self, op: str, slots: Sequence[Slot]) -> None:
        own = [*self._inputs, *(step[0] for step in self._steps)]
        for value in slots:
            if not any(value is slot for slot in own):
                raise ArgumentError(op, f"{value} belongs to another pipeline, or none")

    def _constants(self) -> list[Any]:
        """Recorded arrays: arguments of the program, which would copy them else."""
        return [v for _, _, inputs, _ in self._steps for v in inputs if not _is_slot(v)]

    def _compile(self, indices: tuple[int, ...]) -> Any:
        slots, steps = list(self._inputs), list(self._steps)

        def program(inputs, constants):
            self.traces += 1
            rest = iter(constants)
            values = {slot.index: inputs[slot.name] for slot in slots}
            for slot, fn, arguments, params in steps:
                arrays = [
                    values[v.index] if _is_slot(v) else next(rest) for v in arguments
                ]
                try:
                    values[slot.index] = fn(*arrays, **params)
                except (TypeError, ValueError) as error:
                    raise refusal(slot.name, arrays, params, error) from error
            return [values[index] for index in indices]

        return jax.jit(program)


def _is_slot(value: Any) -> bool:
    return isinstance(value, Slot)
