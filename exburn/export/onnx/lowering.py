"""A program's operations as nodes of ONNX.

Each primitive of JAX has a rule. What depends on weights alone is computed here, by
running the primitive, unless the result would be larger than what it came from.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

from exburn.core.symbolic_shapes import evaluate_size, symbols_of
from exburn.errors import ExportError
from exburn.export.onnx.graph import (
    Complex,
    OnnxConstant,
    OnnxGraph,
    OnnxTensor,
    Spread,
    Value,
    broadcast,
    file_dtype,
    is_static,
)
from exburn.export.operations import Known, Operations, ProgramStep, ValueSlot

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
#: Primitives that work entry by entry, whose operands may be broadcast.
ELEMENTWISE: set[str] = set()

#: Rules of operations that take or give complex numbers.
COMPLEX: dict[str, Rule] = {}
# Primitives that move entries, of which complex ones are moved part by part.
_MOVES = set(
    "reshape squeeze expand_dims transpose broadcast_in_dim concatenate slice rev copy "
    "dynamic_slice gather stack tile".split()
)

_SMALL = 1 << 12  # bytes up to which a constant may grow
# What is no function of its operands alone, or of sizes that are open.
_NEVER = {
    "composite",
    "dim_as_value",
    "dimension_size",
    "debug_callback",
    "pure_callback",
}
_HINTS = {
    "pure_callback": "Code on the host is no part of a file: do it before or after.",
    "io_callback": "Code on the host is no part of a file: do it before or after.",
    "debug_callback": "Take jax.debug.print and callbacks out of `call`.",
    "pallas_call": "Kernels are for one device: use the plain form.",
}


class NotExpressible(Exception):
    """Raised by a rule: this use of its primitive has no form in ONNX.

    Args:
        reason: Why.
    """


def rule(*names: str, elementwise: bool = False) -> Callable[[Rule], Rule]:
    """Decorates the rule for primitives.

    A rule is called with the lowering, the operation, and the values of its inputs; it
    returns the value of its output, or a list of them.
    """

    def note(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        if elementwise:
            ELEMENTWISE.update(names)
        return function

    return note


def complex_rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorates the rule for primitives where they take or give complex numbers."""

    def note(function: Rule) -> Rule:
        for name in names:
            COMPLEX[name] = function
        return function

    return note


def hint_for(primitive: str, reason: str = "") -> str:
    """What there is to do about a primitive that cannot be expressed."""
    if primitive.startswith("random_"):
        return "A file draws no random numbers: let the layer draw in training alone."
    if (hint := _HINTS.get(primitive)) is not None:
        return hint
    if reason:
        return f"{reason}. StableHLO can express it: model.export('m.stablehlo')."
    return "StableHLO can express it: model.export('m.stablehlo')."


class Lowering:
    """The way from operations to nodes.

    Args:
        graph: What nodes are added to.

    Attributes:
        operation: The operation whose rule runs.
    """

    def __init__(self, graph: OnnxGraph):
        self.graph = graph
        self.operation: ProgramStep | None = None
        self._values: dict[int, tuple[ValueSlot, Value]] = {}

    # ------------------------------------------------------------------ values
    def bind(self, slot: ValueSlot, value: Value) -> None:
        """Says what a slot's value is."""
        self._values[id(slot)] = slot, value

    def value_of(self, slot: ValueSlot) -> Value:
        entry = self._values.get(id(slot))
        if entry is not None:
            return entry[1]
        assert isinstance(slot, Known), slot
        value = OnnxConstant(_array(slot.value, slot.aval))
        self.bind(slot, value)
        return value

    # ------------------------------------------------------------------ operations
    def run(self, operations: Operations) -> list[Value]:
        """Adds the nodes of a program; the values of its outputs.

        Raises:
            ExportError: An operation cannot be expressed.
        """
        for step in operations.steps:
            self.lower(step)
        return [self.value_of(slot) for slot in operations.outputs]

    def lower(self, step: ProgramStep) -> None:
        """Adds the nodes of one operation.

        Raises:
            ExportError: It cannot be expressed.
        """
        inputs = [self.value_of(slot) for slot in step.inputs]
        outer, self.operation = self.operation, step
        layer, self.graph.root.layer = self.graph.root.layer, step.layer
        try:
            results = self._fold(step, inputs)
            if results is None:
                results = self._apply_rule(step, inputs)
        except NotExpressible as error:
            raise cannot_express(step, str(error)) from None
        finally:
            self.operation, self.graph.root.layer = outer, layer
        for slot, result in zip(step.outputs, results, strict=True):
            self.bind(slot, result)

    def _apply_rule(self, step: ProgramStep, inputs: list[Value]) -> Sequence[Value]:
        if any(_is_complex(slot.aval) for slot in (*step.inputs, *step.outputs)):
            return [self._complex(step, inputs)]
        function = RULES.get(step.name)
        if function is None:
            raise NotExpressible("")
        if any(_is_key(slot.aval.dtype) for slot in (*step.inputs, *step.outputs)):
            raise NotExpressible("")
        if step.name in ELEMENTWISE:
            return [self._entrywise(step, function, inputs)]
        values = function(self, step, *inputs)
        return values if isinstance(values, list | tuple) else [values]

    def _complex(self, step: ProgramStep, inputs: list[Value]) -> Value:
        """An operation on complex numbers, or one that gives some."""
        values = [_real_and_imaginary(v) if v.dtype.kind == "c" else v for v in inputs]
        if step.name in _MOVES:
            parts = [
                [getattr(v, name) if isinstance(v, Complex) else v for v in values]
                for name in ("real", "imaginary")
            ]
            return Complex(*(RULES[step.name](self, step, *part) for part in parts))
        if step.name not in COMPLEX:
            raise NotExpressible("It computes with complex numbers")
        return COMPLEX[step.name](self, step, *values)

    def _entrywise(
        self, step: ProgramStep, function: Rule, inputs: list[Value]
    ) -> Value:
        """An operation on operands that are broadcast as late as possible."""
        if not any(isinstance(v, Spread) for v in inputs):
            return function(self, step, *inputs)
        plain = [v.source if isinstance(v, Spread) else v for v in inputs]
        constant = self._evaluate(step, plain) if _is_small(plain) else None
        value = function(self, step, *plain) if constant is None else constant[0]
        return self.graph.expand(value, step.outputs[0].aval.shape)

    def _fold(self, step: ProgramStep, inputs: list[Value]) -> list[Value] | None:
        """The constants that an operation gives, if it is one of constants."""
        constants = [v for v in inputs if isinstance(v, OnnxConstant)]
        if len(constants) != len(inputs) or step.name in _NEVER:
            return None
        avals = [slot.aval for slot in step.outputs]
        if not all(is_static(aval.shape) for aval in avals):
            return None
        if any(constant.stays for constant in constants):
            return None
        if not any(_is_key(aval.dtype) for aval in avals):
            size = sum(aval.size * file_dtype(aval.dtype).itemsize for aval in avals)
            sizes = [c.nbytes for c in constants if not _is_key(c.dtype)]
            if size > max(_SMALL, sum(sizes)):
                return None
        return self._evaluate(step, constants)

    def _evaluate(
        self, step: ProgramStep, constants: Sequence[Any]
    ) -> list[Value] | None:
        """What the primitive gives for constants; ``None`` if it does not run here."""
        arrays = [
            c.array if _is_key(c.dtype) else c.array.astype(slot.aval.dtype)
            for c, slot in zip(constants, step.inputs, strict=True)
        ]
        if step.name in ELEMENTWISE and len({a.shape for a in arrays}) > 1:
            arrays = list(np.broadcast_arrays(*arrays))
        results = evaluate(step, arrays)
        if results is None:
            return None
        shared = any(c.shared for c in constants)
        path = next((c.path for c in constants if c.path), "")
        return [
            OnnxConstant(_array(value, slot.aval), path, shared)
            for value, slot in zip(results, step.outputs, strict=True)
        ]

    # ------------------------------------------------------------------ bodies
    def body(self, graph: OnnxGraph) -> Lowering:
        """A lowering for the body of a loop or branch, which sees the values around."""
        inner = Lowering(graph)
        inner._values = dict(self._values)
        return inner


def cannot_express(step: ProgramStep, reason: str = "") -> ExportError:
    """The error for an operation that has no form in ONNX."""
    operands = ", ".join(str(slot.aval) for slot in step.inputs[:4])
    where = f" of layer {step.layer!r}" if step.layer else ""
    details = {"layer": step.layer, "primitive": step.name, "operands": operands}
    if reason:
        details["reason"] = reason
    return ExportError(
        "export",
        f"ONNX cannot express {step.name!r}{where}",
        details,
        hint=hint_for(step.name),
    )


def mark_shared(operations: Operations, constants: dict[int, OnnxConstant]) -> None:
    """Marks the weights that several operations read.

    Args:
        constants: Its weights, by the slot's ``id``.
    """
    uses = Counter(id(slot) for step in operations.walk() for slot in step.inputs)
    uses.update(id(slot) for slot in operations.outputs)
    for key, constant in constants.items():
        constant.shared = uses[key] > 1


def add_inputs(
    graph: OnnxGraph,
    names: Sequence[str],
    specs: Sequence[Any],
    wide: Collection[str] = (),
) -> list[Value]:
    """The inputs of a graph, of which open sizes are read.

    Args:
        names, specs: Those of the inputs.
        wide: Names of the inputs that are int64, of which int32 is made.

    Returns:
        What the program computes with.
    """
    for name, spec in zip(names, specs, strict=True):
        graph.fresh(name)
        dtype = np.dtype(np.int64) if name in wide else file_dtype(spec.dtype)
        graph.inputs.append(OnnxTensor(name, spec.shape, dtype))
        for axis, size in enumerate(spec.shape):
            for symbol in symbols_of(size):  # one, or none
                factor = evaluate_size(size, {symbol: 1})
                graph.sources.setdefault(symbol, (name, axis, factor))
    return [
        graph.cast(tensor, file_dtype(spec.dtype))
        for tensor, spec in zip(graph.inputs, specs, strict=True)
    ]


def _is_small(values: Sequence[Value]) -> bool:
    """Whether values are constants that may be combined when the file is made."""
    if not all(isinstance(v, OnnxConstant) and not v.large for v in values):
        return False
    shape: Any = ()
    for value in values:
        shape = broadcast(shape, value.shape)
    return math.prod(shape) * 8 <= _SMALL


def _real_and_imaginary(value: Value) -> Complex:
    if isinstance(value, OnnxConstant):
        return Complex(OnnxConstant(value.array.real), OnnxConstant(value.array.imag))
    if isinstance(value, Spread):
        source = _real_and_imaginary(value.source)
        return Complex(
            Spread(source.real, value.shape), Spread(source.imaginary, value.shape)
        )
    assert isinstance(value, Complex)
    return value


def _is_complex(aval: Any) -> bool:
    return jax.numpy.issubdtype(aval.dtype, np.complexfloating)


def _is_key(dtype: Any) -> bool:
    return jax.numpy.issubdtype(dtype, jax.dtypes.extended)


def _array(value: Any, aval: Any) -> Any:
    if _is_key(getattr(value, "dtype", np.dtype(np.int32))):
        return value
    return np.asarray(value, None if _is_key(aval.dtype) else aval.dtype)


_COMPUTED_BY_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "max": np.maximum,
    "min": np.minimum,
}
_MOVED_BY_NUMPY: dict[str, Callable[..., Any]] = {
    "reshape": lambda x, new_sizes, **_: x.reshape(new_sizes),
    "transpose": lambda x, permutation: x.transpose(permutation),
    "squeeze": lambda x, dimensions: x.squeeze(dimensions),
    "rev": lambda x, dimensions: np.flip(x, dimensions),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "copy": lambda x: x,
}


def evaluate(step: ProgramStep, arrays: Sequence[Any]) -> list[Any] | None:
    """What an operation gives for arrays; ``None`` if it does not run here.

    NumPy computes the plainest ones. JAX would compile a program for each operation and
    shape: 10 s for MobileNetV2 on two cores of a CPU, instead of 0.2 s.
    """
    try:
        if (quick := _by_numpy(step, arrays)) is not None:
            return [quick]
        with jax.default_device(_host()):
            results = step.primitive.bind(*arrays, **step.params)
    except Exception:  # parameters with open sizes, or what only a device can do
        return None
    return list(results) if step.primitive.multiple_results else [results]


def _by_numpy(step: ProgramStep, arrays: Sequence[Any]) -> Any:
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return None
    if step.name in _MOVED_BY_NUMPY:
        return np.ascontiguousarray(_MOVED_BY_NUMPY[step.name](*arrays, **step.params))
    if step.name in _COMPUTED_BY_NUMPY and all(a.dtype == np.float32 for a in arrays):
        with np.errstate(all="ignore"):
            return np.asarray(_COMPUTED_BY_NUMPY[step.name](*arrays), np.float32)
    if step.name == "broadcast_in_dim" and len(arrays) == 1:
        return _broadcast(arrays[0], **step.params)
    return None


def _broadcast(x: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    inner = [1] * len(shape)
    for axis, place in enumerate(broadcast_dimensions):
        inner[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(inner), shape).copy()


@functools.cache
def _host() -> Any:
    """A CPU of JAX's, where this process has one."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None
