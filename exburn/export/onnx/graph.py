"""A graph of ONNX under construction: values, nodes, initializers.

Names, constants and shapes are settled here, so that a rule for one of JAX's primitives
is little more than the name of the operator. Nodes are plain data until `serialize`
makes a protobuf of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from exburn.core.symbolic_shapes import evaluate_size

Shape = tuple[Any, ...]

# Arrays up to this size are one initializer where they are equal.
_COMPARED = 1 << 12


class Value:
    """An array in the graph.

    Attributes:
        shape: Its sizes: integers, and JAX's symbols for open ones.
        dtype: Its dtype in the file.
    """

    shape: Shape
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)


class OnnxTensor(Value):
    """What a node gives, or an input of the graph."""

    def __init__(self, name: str, shape: Sequence[Any], dtype: Any):
        self.name, self.shape, self.dtype = name, tuple(shape), np.dtype(dtype)


class OnnxConstant(Value):
    """An array that is known. It becomes an initializer if a node reads it.

    Args:
        array: It.
        path: Its name, if it is a weight.
        shared: Whether several operations read it, so that copies of it in another form
            would make the file larger.
    """

    def __init__(self, array: Any, path: str = "", shared: bool = False):
        if not jax.numpy.issubdtype(array.dtype, jax.dtypes.extended):
            array = np.asarray(array)
            array = array.astype(file_dtype(array.dtype), copy=False)
        self.array, self.path, self.shared = array, path, shared
        self.shape, self.dtype = tuple(array.shape), array.dtype
        self.forms: dict[Any, OnnxConstant] = {}  # by what was done to it

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def large(self) -> bool:
        """Whether a copy of it would be felt in the size of the file."""
        return self.nbytes > _COMPARED

    @property
    def stays(self) -> bool:
        """Whether it is better transformed when the file runs than when it is made."""
        return self.shared and self.large


class Spread(Value):
    """A value that is repeated along axes of size 1, once something needs it so.

    Most operators of ONNX broadcast, and take the source as it is.
    """

    def __init__(self, source: Value, shape: Sequence[Any]):
        self.source, self.shape, self.dtype = source, tuple(shape), source.dtype


ZERO = 128  # the byte that stands for 0


def to_unsigned(array: np.ndarray) -> np.ndarray:
    """Integers of 8 bits or fewer as bytes around ``ZERO``.

    Example:
        >>> to_unsigned(np.array([-127, 0, 127], np.int8))
        array([  1, 128, 255], dtype=uint8)
    """
    return (array.astype(np.int16) + ZERO).astype(np.uint8)


class Integers(Value):
    """A weight of integers and scales, which a node reads as floats.

    Runtimes compute with the integers if the operator reads that node, and no other
    between: so it is moved and reshaped as constants are. The file has them without a
    sign, around 128: onnxruntime's products of ``uint8`` with ``int8`` saturate on
    processors with AVX2 and no VNNI, and it makes such products of two ``int8``.

    Args:
        scale: For each entry its scale, in a shape that broadcasts.
        path: The name of the weight.
    """

    def __init__(self, array: np.ndarray, scale: np.ndarray, path: str = ""):
        self.array, self.path = array, path
        self.scale = np.broadcast_to(scale, array.shape)
        self.shape, self.dtype = tuple(array.shape), np.dtype(np.float32)

    def map(self, function: Any) -> Integers:
        """A function of an array applied to both."""
        return Integers(function(self.array), function(self.scale), self.path)

    def read(self, graph: OnnxGraph) -> OnnxTensor:
        """The node: with a scale for the whole, or for each entry of an axis."""
        scale = self.scale
        for axis in range(scale.ndim):
            one = scale[
                tuple(slice(None) if i == axis else slice(1) for i in range(scale.ndim))
            ]
            if (one == scale).all():
                row, about = one.reshape(-1).copy(), {"axis": axis}
                if (row == row[:1]).all():
                    row, about = row[0], {}
                zero = np.full_like(row, ZERO, np.uint8)
                return graph.add(
                    "DequantizeLinear",
                    OnnxConstant(to_unsigned(self.array), self.path),
                    OnnxConstant(row),
                    OnnxConstant(zero),
                    shape=self.shape,
                    dtype=np.float32,
                    **about,
                )
        values = OnnxConstant(np.ascontiguousarray(self.array), self.path)
        whole = graph.cast(graph.add("Identity", values, shape=self.shape), np.float32)
        return graph.add("Mul", whole, OnnxConstant(scale.copy()), shape=self.shape)


class Complex(Value):
    """Complex numbers: ONNX has none, so that they are two arrays."""

    def __init__(self, real: Value, imaginary: Value):
        self.real, self.imaginary = real, imaginary
        self.shape, self.dtype = real.shape, np.dtype(np.complex64)


@dataclasses.dataclass
class OnnxNode:
    """One operator; attributes may be graphs."""

    operator: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    name: str


def file_dtype(dtype: Any) -> np.dtype:
    """The dtype that an array has in the file: halves and few bits are widened.

    Example:
        >>> file_dtype(jax.numpy.bfloat16), file_dtype(np.int32)
        (dtype('float32'), dtype('int32'))
    """
    dtype = np.dtype(dtype)
    if dtype.name in ("bfloat16", "float16") or dtype.name.startswith("float8"):
        return np.dtype(np.float32)
    if dtype.name in ("int2", "int4"):
        return np.dtype(np.int8)
    if dtype.name in ("uint2", "uint4"):
        return np.dtype(np.uint8)
    return dtype


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return str(a) == str(b)


def is_static(shape: Sequence[Any]) -> bool:
    """Whether all sizes are numbers."""
    return all(isinstance(n, int) for n in shape)


class OnnxGraph:
    """A graph, or the body of a loop or branch in one.

    Args:
        parent: The graph that it is in.

    Attributes:
        nodes: Its nodes, in their order.
        initializers: Arrays by name; those of bodies are the root's.
        layer: Path of the layer whose operations are being added.
    """

    def __init__(self, parent: OnnxGraph | None = None):
        self.parent, self.root = parent, self if parent is None else parent.root
        self.nodes: list[OnnxNode] = []
        self.inputs: list[OnnxTensor] = []
        self.outputs: list[OnnxTensor] = []
        self._done: dict[Any, tuple[OnnxTensor, Any]] = {}  # what is there already
        if parent is None:
            self.initializers: dict[str, np.ndarray] = {}
            self.layer = ""
            # By symbol: an input, an axis, and what the size there is divided by.
            self.sources: dict[str, tuple[str, int, int]] = {}
            self._names: dict[str, int] = {}
            self._equal: dict[Any, str] = {}

    # ------------------------------------------------------------------ names, nodes
    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        names = self.root._names
        count, name = names.get(base, 0), base
        while name in names:
            count += 1
            name = f"{base}_{count}"
        names[base] = count
        names.setdefault(name, 0)
        return name

    def name_of(self, value: Value) -> str:
        """The name by which a node reads a value."""
        if isinstance(value, OnnxTensor):
            return value.name
        if isinstance(value, Spread):
            return self.once(("spread", id(value)), value, lambda: self._spread(value))
        if isinstance(value, Integers):
            return self.once(("read", id(value)), value, lambda: value.read(self))
        assert isinstance(value, OnnxConstant)
        return self._initializer(value)

    def once(self, key: Any, keep: Any, make: Any) -> str:
        """What was computed for a key in this graph or around it, or is made now."""
        graph: OnnxGraph | None = self
        while graph is not None:
            if key in graph._done:
                return graph._done[key][0].name
            graph = graph.parent
        tensor = make()
        self._done[key] = tensor, keep  # `keep` lives on, so that no other has its id
        return tensor.name

    def _spread(self, value: Spread) -> OnnxTensor:
        source = value.source
        return self.add("Expand", source, self.sizes(value.shape), shape=value.shape)

    def _initializer(self, constant: OnnxConstant) -> str:
        root, array = self.root, constant.array
        key: Any = id(constant.array)
        if array.nbytes <= _COMPARED:
            key = array.dtype.str, array.shape, array.tobytes()
        if key not in root._equal:
            name = self.fresh(constant.path or "constant")
            root.initializers[name] = array
            root._equal[key] = name
        return root._equal[key]

    def emit(
        self, operator: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Adds a node; the names of its outputs.

        Args:
            operator: Its operator.
            inputs: Values, names, or ``None`` for one that is left out.
            outputs: Their number.
            **attributes: Of the operator; ``None`` leaves one out.
        """
        names = [
            "" if v is None else v if isinstance(v, str) else self.name_of(v)
            for v in inputs
        ]
        while names and not names[-1]:
            names.pop()
        layer = self.root.layer
        label = self.fresh(f"{layer}/{operator}" if layer else operator)
        results = [f"{label}:{i}" for i in range(outputs)]
        present = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(OnnxNode(operator, names, results, present, label))
        return results

    def add(
        self,
        operator: str,
        *inputs: Any,
        shape: Sequence[Any],
        dtype: Any = None,
        **attributes: Any,
    ) -> OnnxTensor:
        """Adds a node of one output, by default of the dtype of its first input."""
        (name,) = self.emit(operator, inputs, **attributes)
        return OnnxTensor(name, shape, inputs[0].dtype if dtype is None else dtype)

    # ------------------------------------------------------------------ constants
    def constant(self, value: Any, dtype: Any = None) -> OnnxConstant:
        return OnnxConstant(np.asarray(value, dtype))

    def like(self, value: Any, other: Value) -> OnnxConstant:
        """A number in the dtype of a value."""
        return OnnxConstant(np.asarray(value).astype(other.dtype))

    def ints(self, values: Sequence[int]) -> OnnxConstant:
        return OnnxConstant(np.asarray(list(values), np.int64).reshape(-1))

    # ------------------------------------------------------------------ open sizes
    def size(self, size: Any) -> Value:
        """A size as an array of one int64."""
        if isinstance(size, int):
            return self.ints([size])
        return _evaluate(self, size).value

    def sizes(self, shape: Sequence[Any]) -> Value:
        """Sizes as an array of int64."""
        if is_static(shape):
            return self.ints(shape)
        key = ("sizes", tuple(map(str, shape)))
        name = self.once(key, None, lambda: self._join_sizes(shape))
        return OnnxTensor(name, (len(shape),), np.int64)

    def _join_sizes(self, shape: Sequence[Any]) -> OnnxTensor:
        parts: list[Value] = []
        run: list[int] = []
        for n in shape:
            if isinstance(n, int):
                run.append(n)
                continue
            if run:
                parts.append(self.ints(run))
            parts.append(self.size(n))
            run = []
        if run:
            parts.append(self.ints(run))
        if len(parts) == 1:
            assert isinstance(parts[0], OnnxTensor)
            return parts[0]
        return self.add("Concat", *parts, axis=0, shape=(len(shape),), dtype=np.int64)

    # ------------------------------------------------------------------ forms of arrays
    def cast(self, value: Value, dtype: Any) -> Value:
        dtype = np.dtype(dtype)
        if value.dtype == dtype:
            return value
        grown = value.dtype.itemsize < dtype.itemsize
        if isinstance(value, OnnxConstant) and not (
            value.stays or grown and value.large
        ):
            return OnnxConstant(value.array.astype(dtype), value.path, value.shared)
        if isinstance(value, Spread):
            return Spread(self.cast(value.source, dtype), value.shape)
        return self.add("Cast", value, shape=value.shape, dtype=dtype, to=dtype)

    def reshape(self, value: Value, shape: Sequence[Any]) -> Value:
        """The same entries in another shape."""
        shape = tuple(shape)
        if len(shape) == value.ndim and all(map(same_size, shape, value.shape)):
            return value
        if isinstance(value, OnnxConstant) and not value.stays:
            return _form(value, ("reshape", shape), lambda a: a.reshape(shape))
        if isinstance(value, Integers) and is_static(shape):
            return value.map(lambda a: a.reshape(shape))
        if isinstance(value, OnnxTensor) and is_static(shape):
            return self.add("Reshape", value, self.ints(shape), shape=shape)
        return self.add("Reshape", value, self._target(value, shape), shape=shape)

    def _target(self, value: Value, shape: Shape) -> Value:
        """The shape for a Reshape: at most one -1 instead of an open size.

        A size that the value has on the same axis may be 0, which keeps it.
        """
        if 0 in shape:
            return self.sizes(shape)
        target: list[Any] = []
        for axis, n in enumerate(shape):
            same = axis < value.ndim and same_size(n, value.shape[axis])
            target.append(n if isinstance(n, int) else 0 if same else n)
        unknown = [axis for axis, n in enumerate(target) if not isinstance(n, int)]
        if len(unknown) > 1:
            return self.sizes(shape)
        for axis in unknown:
            target[axis] = -1
        return self.ints(target)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        order = tuple(int(axis) for axis in order)
        if order == tuple(range(len(order))):
            return value
        shape = tuple(value.shape[axis] for axis in order)
        if isinstance(value, OnnxConstant) and not value.stays:
            return _form(
                value, order, lambda a: np.ascontiguousarray(a.transpose(order))
            )
        if isinstance(value, Integers):
            return value.map(lambda a: a.transpose(order))
        if isinstance(value, Spread):
            return Spread(self.transpose(value.source, order), shape)
        if sum(not same_size(n, 1) for n in value.shape) < 2:
            return self.reshape(value, shape)  # nothing moves
        key = ("transpose", self.name_of(value), order)
        name = self.once(
            key, None, lambda: self.add("Transpose", value, shape=shape, perm=order)
        )
        return OnnxTensor(name, shape, value.dtype)

    def expand(self, value: Value, shape: Sequence[Any]) -> Value:
        """A value repeated along its axes of size 1: as such only where it must be."""
        shape = tuple(shape)
        if all(map(same_size, shape, value.shape)):
            return value
        if isinstance(value, Spread):
            value = value.source
        if isinstance(value, OnnxConstant) and is_static(shape):
            if math.prod(shape) * value.dtype.itemsize <= _COMPARED:
                return OnnxConstant(np.broadcast_to(value.array, shape).copy())
        return Spread(value, shape)

    def slice(
        self,
        value: Value,
        starts: Sequence[Any],
        ends: Sequence[Any],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
        *,
        shape: Sequence[Any],
    ) -> Value:
        """Part of a value; starts and ends may be open."""
        static = is_static([*starts, *ends])
        if static and isinstance(value, OnnxConstant) and not value.stays:
            cut = [slice(None)] * value.ndim
            for i, axis in enumerate(axes):
                step = steps[i] if steps else 1
                end = None if step < 0 and ends[i] < -(1 << 60) else ends[i]
                cut[axis] = slice(starts[i], end, step)
            return OnnxConstant(np.ascontiguousarray(value.array[tuple(cut)]))
        inputs = [value, self.sizes(starts), self.sizes(ends), self.ints(axes)]
        if steps and any(step != 1 for step in steps):
            inputs.append(self.ints(steps))
        return self.add("Slice", *inputs, shape=shape)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        if len(values) == 1:
            return values[0]
        total: Any = sum((v.shape[axis] for v in values[1:]), values[0].shape[axis])
        shape = list(values[0].shape)
        shape[axis] = total
        return self.add("Concat", *values, axis=axis, shape=shape)

    def binary(self, operator: str, a: Value, b: Value, dtype: Any = None) -> Value:
        """An operator that broadcasts two values of equal rank, or with a scalar."""
        shape = broadcast(a.shape, b.shape)
        return self.add(
            operator, a, b, shape=shape, dtype=a.dtype if dtype is None else dtype
        )

    def unary(
        self, operator: str, a: Value, dtype: Any = None, **attributes: Any
    ) -> Value:
        return self.add(operator, a, shape=a.shape, dtype=dtype, **attributes)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        shape = broadcast(condition.shape, broadcast(a.shape, b.shape))
        return self.add("Where", condition, a, b, shape=shape, dtype=a.dtype)


def prune(graph: OnnxGraph) -> None:
    """Removes the nodes that no output depends on, and initializers that none reads."""
    names = {tensor.name for tensor in graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if names.intersection(node.outputs):
            nodes.append(node)
            names |= _names_read(node)
    graph.nodes = nodes[::-1]
    unread = graph.initializers.keys() - names
    for name in unread:
        del graph.initializers[name]


def _names_read(node: OnnxNode) -> set[str]:
    """What a node reads, in its bodies too."""
    names = set(node.inputs)
    for body in node.attributes.values():
        if isinstance(body, OnnxGraph):
            names |= {tensor.name for tensor in body.outputs}
            names |= set().union(*map(_names_read, body.nodes))
    return names


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape of two that are broadcast together.

    Example:
        >>> broadcast((3, 1), (4,)), broadcast((), (2,))
        ((3, 4), (2,))
    """
    if len(a) < len(b):
        a, b = b, a
    b = (1,) * (len(a) - len(b)) + tuple(b)
    return tuple(m if same_size(n, 1) else n for n, m in zip(a, b, strict=True))


def _form(constant: OnnxConstant, key: Any, make: Any) -> OnnxConstant:
    """A constant in another form, which is computed once."""
    if key not in constant.forms:
        form = OnnxConstant(make(constant.array), constant.path, constant.shared)
        constant.forms[key] = form
    return constant.forms[key]


# ---------------------------------------------------------------------- open sizes


class _ShapeSize:
    """An open size as nodes; Python's operators on it add more of them."""

    def __init__(self, graph: OnnxGraph, value: Value):
        self.graph, self.value = graph, value

    def _with(self, operator: str, other: Any, swap: bool = False) -> _ShapeSize:
        operand = (
            other.value if isinstance(other, _ShapeSize) else self.graph.ints([other])
        )
        pair = (operand, self.value) if swap else (self.value, operand)
        tensor = self.graph.add(operator, *pair, shape=(1,), dtype=np.int64)
        return _ShapeSize(self.graph, tensor)

    def __add__(self, other: Any) -> _ShapeSize:
        return (
            self if isinstance(other, int) and other == 0 else self._with("Add", other)
        )

    __radd__ = __add__

    def __sub__(self, other: Any) -> _ShapeSize:
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> _ShapeSize:
        return self._with("Sub", other, swap=True)

    def __mul__(self, other: Any) -> _ShapeSize:
        return (
            self if isinstance(other, int) and other == 1 else self._with("Mul", other)
        )

    __rmul__ = __mul__

    def __neg__(self) -> _ShapeSize:
        return self._with("Mul", -1)

    def __floordiv__(self, other: Any) -> _ShapeSize:
        # ONNX divides toward zero: x // n = (x - x mod n) / n.
        return (self - self % other)._with("Div", other)

    def __mod__(self, other: Any) -> _ShapeSize:
        return self._with("Mod", other)  # of integers with the sign of the divisor

    def __pow__(self, exponent: int) -> _ShapeSize:
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result


def _greatest(a: Any, b: Any) -> Any:
    return _extreme("Max", max, a, b)


def _least(a: Any, b: Any) -> Any:
    return _extreme("Min", min, a, b)


def _extreme(operator: str, plain: Any, a: Any, b: Any) -> Any:
    if isinstance(a, _ShapeSize):
        return a._with(operator, b)
    return b._with(operator, a) if isinstance(b, _ShapeSize) else plain(a, b)


def _floordiv(a: Any, b: Any) -> Any:
    return _promote(a, b) // b


def _mod(a: Any, b: Any) -> Any:
    return _promote(a, b) % b


def _promote(a: Any, b: Any) -> Any:
    if isinstance(b, _ShapeSize) and isinstance(a, int):
        return _ShapeSize(b.graph, b.graph.ints([a]))
    return a


_FUNCTIONS = {"floordiv": _floordiv, "mod": _mod, "max": _greatest, "min": _least}


def _evaluate(graph: OnnxGraph, size: Any) -> _ShapeSize:
    """The nodes for an open size; those of a body are the root's."""
    root = graph.root

    def make() -> OnnxTensor:
        result = evaluate_size(size, _Symbols(root), _FUNCTIONS)
        if isinstance(result, int):
            value = root.ints([result])
            return OnnxTensor(root.name_of(value), (1,), np.int64)
        assert isinstance(result.value, OnnxTensor)
        return result.value

    name = root.once(("size", str(size)), None, make)
    return _ShapeSize(root, OnnxTensor(name, (1,), np.int64))


class _Symbols(dict):
    """The symbols of sizes, each read from an input once it is asked for."""

    def __init__(self, root: OnnxGraph):
        self.root = root

    def __missing__(self, name: str) -> _ShapeSize:
        return _ShapeSize(self.root, _source(self.root, name))


def _source(root: OnnxGraph, name: str) -> OnnxTensor:
    """A symbol's value as it is read from an input."""
    value, axis, factor = root.sources[name]

    def make() -> OnnxTensor:
        (size,) = root.emit("Shape", [value], start=axis, end=axis + 1)
        whole = OnnxTensor(size, (1,), np.int64)
        if factor == 1:
            return whole
        return root.add("Div", whole, root.ints([factor]), shape=(1,))

    return OnnxTensor(root.once(("source", name), None, make), (1,), np.int64)
