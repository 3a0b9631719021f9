"""A jaxpr as a flat list of operations, each with the layer that it belongs to.

Functions that JAX compiled by themselves, and those with derivatives of their own, are
put in line, and what no output depends on is left out. Loops and branches stay, with
what is in them as lists of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from exburn.compression.quantization.marks import READ, ROUND
from exburn.runtime.portable import layer_of

# Calls that are put in line, and the parameter that holds what they call.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_jvp_call_jaxpr": "fun_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "composite": "jaxpr",
}


class ValueSlot:
    """A value of a program: what an operation gives, or an argument.

    Attributes:
        aval: Its shape and dtype.
    """

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval

    def __repr__(self) -> str:
        return f"<Slot {self.aval}>"


class Known(ValueSlot):
    """A value that is known: a number in the program's text, or an array in it.

    Attributes:
        value: It.
    """

    __slots__ = ("value",)

    def __init__(self, aval: Any, value: Any):
        super().__init__(aval)
        self.value = value


@dataclasses.dataclass(frozen=True, eq=False)
class ProgramStep:
    """One operation of a program.

    Attributes:
        primitive: JAX's primitive.
        params: Its parameters.
        inputs, outputs: Its values.
        layer: Path of the layer that it belongs to; empty if it is in none.
    """

    primitive: Any
    params: dict[str, Any]
    inputs: tuple[ValueSlot, ...]
    outputs: tuple[ValueSlot, ...]
    layer: str

    @property
    def name(self) -> str:
        return self.primitive.name


#: What computes an operation in place of its primitive.
Rule = Callable[[ProgramStep, Sequence[Any]], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Operations:
    """A program.

    Attributes:
        inputs, outputs: Its values.
        steps: Its operations, in an order in which they can be computed.
    """

    inputs: tuple[ValueSlot, ...]
    outputs: tuple[ValueSlot, ...]
    steps: tuple[ProgramStep, ...]

    def walk(self) -> Iterator[ProgramStep]:
        """All operations, those in loops and branches too."""
        for step in self.steps:
            yield step
            for inner in bodies(step):
                yield from inner.walk()


def inline(closed: Any, layer: str = "") -> Operations:
    """A jaxpr's operations.

    Args:
        closed: A closed jaxpr, or one without constants.
        layer: The layer that it is in.
    """
    jaxpr, constants = _open(closed)
    inputs = tuple(ValueSlot(var.aval) for var in jaxpr.invars)
    steps: list[ProgramStep] = []
    outputs = _extend(steps, jaxpr, constants, inputs, layer)
    return Operations(inputs, tuple(outputs), tuple(steps_for(steps, outputs)))


def scan_sizes(step: ProgramStep, body: Operations) -> tuple[int, int]:
    """How many constants a scan has, and how many states: the rest are rows.

    Rows and what is stacked of them have an axis more than the body's. The parameters
    that say so have other names in each version of JAX.

    Args:
        step: The scan.
        body: The operations of its body.
    """

    def count_equal(outer: Sequence[ValueSlot], inner: Sequence[ValueSlot]) -> int:
        pairs = zip(outer, inner, strict=True)
        return sum(one.aval.ndim == other.aval.ndim for one, other in pairs)

    states = count_equal(step.outputs, body.outputs)
    return count_equal(step.inputs, body.inputs) - states, states


def apply(
    step: ProgramStep,
    values: Sequence[Any],
    rules: Mapping[str, Rule] | None = None,
) -> Sequence[Any]:
    """What an operation gives for arrays, or for tracers of them.

    Args:
        step: The operation.
        values: Its inputs.
        rules: By primitive what computes it instead: a function of the operation and
            its inputs, which may return ``NotImplemented``.
    """
    values = [v if isinstance(v, jax.Array) else jnp.asarray(v) for v in values]
    rule = (rules or {}).get(step.name)
    outcome = NotImplemented if rule is None else rule(step, values)
    if outcome is NotImplemented:
        outcome = step.primitive.bind(*values, **step.params)
    return outcome if isinstance(outcome, list | tuple) else [outcome]


def run(
    steps: Sequence[ProgramStep],
    slot_values: Mapping[int, Any],
    rules: Mapping[str, Rule] | None = None,
) -> dict[int, Any]:
    """Computes operations; the values of all slots, by the slots' ids.

    Args:
        steps: The operations.
        slot_values: Values of slots that none of them gives.
        rules: As of ``apply``.
    """
    values = dict(slot_values)
    for step in steps:
        arguments = [
            slot.value if isinstance(slot, Known) else values[id(slot)]
            for slot in step.inputs
        ]
        results = apply(step, arguments, rules)
        values |= {id(s): v for s, v in zip(step.outputs, results, strict=True)}
    return values


def outputs_of(operations: Operations, values: Mapping[int, Any]) -> list[Any]:
    """The outputs of a program among the values that ``run`` returns."""
    return [
        jnp.asarray(slot.value) if isinstance(slot, Known) else values[id(slot)]
        for slot in operations.outputs
    ]


def rounds(operations: Operations) -> bool:
    """Whether a program rounds activations in a way that runtimes have themselves."""
    return any(step.params.get("name") == ROUND for step in operations.walk())


def bodies(step: ProgramStep) -> list[Operations]:
    """What is in the loops and branches of an operation."""
    programs = []
    for value in step.params.values():
        entries = value if isinstance(value, list | tuple) else (value,)
        for entry in entries:
            if isinstance(entry, ClosedJaxpr | Jaxpr):
                programs.append(inline(entry, step.layer))
    return programs


def _open(closed: Any) -> tuple[Any, Sequence[Any]]:
    if isinstance(closed, ClosedJaxpr):
        return closed.jaxpr, closed.consts
    return closed, ()


def _extend(
    steps: list[ProgramStep],
    jaxpr: Any,
    constants: Sequence[Any],
    inputs: Sequence[ValueSlot],
    layer: str,
) -> list[ValueSlot]:
    """Appends a jaxpr's operations; the slots of its outputs."""
    slots: dict[Any, ValueSlot] = dict(zip(jaxpr.invars, inputs, strict=True))
    for var, value in zip(jaxpr.constvars, constants, strict=True):
        slots[var] = Known(var.aval, value)

    def read(atom: Any) -> ValueSlot:
        if isinstance(atom, Literal):
            return Known(atom.aval, atom.val)
        return slots[atom]

    for eqn in jaxpr.eqns:
        operands = tuple(map(read, eqn.invars))
        here = layer_of(eqn.source_info.name_stack) or layer
        inner = _body_of(eqn)
        if inner is not None:
            body, inner_constants = _open(inner)
            results: Sequence[ValueSlot] = _extend(
                steps, body, inner_constants, operands, here
            )
        else:
            results = tuple(ValueSlot(var.aval) for var in eqn.outvars)
            steps.append(
                ProgramStep(eqn.primitive, eqn.params, operands, tuple(results), here)
            )
        slots.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _body_of(eqn: Any) -> Any:
    """The jaxpr that an operation stands for, or ``None``."""
    if eqn.params.get("name") in (ROUND, READ):  # what a runtime has itself
        return None
    if eqn.primitive.name == "call_hi_primitive":  # since jax 0.11, as searchsorted
        whole = eqn.params["_prim"]
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        return jax.make_jaxpr(whole.expand)(*jax.tree.unflatten(whole.in_tree, avals))
    return eqn.params.get(_CALLS.get(eqn.primitive.name))


def steps_for(
    steps: Sequence[ProgramStep], outputs: Sequence[ValueSlot]
) -> list[ProgramStep]:
    """The operations that outputs depend on, in their order."""
    used = {id(slot) for slot in outputs}
    rows = []
    for step in reversed(steps):
        if any(id(slot) in used for slot in step.outputs):
            used |= {id(slot) for slot in step.inputs}
            rows.append(step)
    return rows[::-1]
