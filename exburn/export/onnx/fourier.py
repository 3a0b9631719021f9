"""Complex numbers as pairs of arrays, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.export.onnx.arrangement import cut, reversed_along
from exburn.export.onnx.graph import Complex, OnnxGraph, Value, file_dtype
from exburn.export.onnx.lowering import Lowering, NotExpressible, complex_rule


@complex_rule("complex")
def _complex(low: Lowering, step, real, imaginary):
    return Complex(real, imaginary)


@complex_rule("real")
def _real(low: Lowering, step, x):
    return x.real


@complex_rule("imag")
def _imag(low: Lowering, step, x):
    return x.imaginary


@complex_rule("conj")
def _conj(low: Lowering, step, x):
    if not isinstance(x, Complex):
        return _of_real(low.graph, x)
    return Complex(x.real, low.graph.unary("Neg", x.imaginary))


@complex_rule("convert_element_type")
def _convert(low: Lowering, step, x):
    graph, dtype = low.graph, np.dtype(step.params["new_dtype"])
    if isinstance(x, Complex):
        return x if dtype.kind == "c" else graph.cast(x.real, file_dtype(dtype))
    return _of_real(graph, graph.cast(x, np.dtype(np.float32)))


def _of_real(graph: OnnxGraph, x: Value) -> Complex:
    zero = graph.constant(np.zeros((1,) * x.ndim), x.dtype)
    return Complex(x, graph.expand(zero, x.shape))


@complex_rule("abs")
def _abs(low: Lowering, step, x):
    graph = low.graph
    squares = [graph.binary("Mul", part, part) for part in (x.real, x.imaginary)]
    return graph.unary("Sqrt", graph.binary("Add", *squares))


@complex_rule("add", "sub")
def _add(low: Lowering, step, a, b):
    operator = "Add" if step.name == "add" else "Sub"
    return Complex(
        low.graph.binary(operator, a.real, b.real),
        low.graph.binary(operator, a.imaginary, b.imaginary),
    )


@complex_rule("neg")
def _neg(low: Lowering, step, x):
    return Complex(*(low.graph.unary("Neg", part) for part in (x.real, x.imaginary)))


@complex_rule("mul")
def _mul(low: Lowering, step, a, b):
    graph = low.graph

    def product(x: Value, y: Value) -> Value:
        return graph.binary("Mul", x, y)

    return Complex(
        graph.binary("Sub", product(a.real, b.real), product(a.imaginary, b.imaginary)),
        graph.binary("Add", product(a.real, b.imaginary), product(a.imaginary, b.real)),
    )


@complex_rule("fft")
def _fft(low: Lowering, step, x):
    """Along the last axes, of which the last one is halved for real numbers."""
    graph, lengths = low.graph, step.params["fft_lengths"]
    kind = str(getattr(step.params["fft_type"], "name", step.params["fft_type"]))
    rank = len(step.inputs[0].aval.shape)
    axes = list(range(rank - len(lengths), rank))
    if kind == "RFFT":
        x = _transform(graph, _with_parts(graph, [x]), axes[-1], half=True)
        axes = axes[:-1]
    for axis in axes[:-1] if kind == "IRFFT" else axes:
        stacked = _with_parts(graph, [x.real, x.imaginary])
        x = _transform(graph, stacked, axis, inverse=kind in ("IFFT", "IRFFT"))
    if kind != "IRFFT":
        return x
    return _to_real(graph, x, rank - 1, lengths[-1])


def _with_parts(graph: OnnxGraph, parts: Sequence[Value]) -> Value:
    """``[…, 2]`` of real and imaginary parts, or ``[…, 1]`` of real ones."""
    shape = (*parts[0].shape, 1)
    return graph.concat([graph.reshape(v, shape) for v in parts], len(shape) - 1)


def _transform(
    graph: OnnxGraph, x: Value, axis: int, *, inverse: bool = False, half: bool = False
) -> Complex:
    shape = list(x.shape[:-1])
    if half:
        shape[axis] = shape[axis] // 2 + 1
    spectrum = graph.add(
        "DFT",
        x,
        shape=(*shape, 2),
        axis=axis,
        inverse=int(inverse),
        onesided=int(half),
    )
    return _split(graph, spectrum)


def _split(graph: OnnxGraph, x: Value) -> Complex:
    shape = x.shape[:-1]
    parts = []
    for place in range(2):
        starts = [*(0 for _ in shape), place]
        parts.append(graph.reshape(cut(graph, x, starts, [*shape, place + 1]), shape))
    return Complex(*parts)


def _to_real(graph: OnnxGraph, x: Complex, axis: int, length: Any) -> Value:
    """Of half a spectrum, whose other half is its conjugate in turn."""
    if not isinstance(length, int):
        raise NotExpressible("Its length is open")
    half = length // 2 + 1
    ends = list(x.shape)
    ends[axis] = half - (1 if length % 2 == 0 else 0)
    starts = [0] * len(ends)
    starts[axis] = 1
    parts = []
    for part, sign in ((x.real, 1), (x.imaginary, -1)):
        first = list(x.shape)
        first[axis] = half
        part = cut(graph, part, [0] * len(first), first)
        rest = reversed_along(graph, cut(graph, part, starts, ends), [axis])
        if sign < 0:
            rest = graph.unary("Neg", rest)
        parts.append(graph.concat([part, rest], axis))
    stacked = _with_parts(graph, parts)
    return _transform(graph, stacked, axis, inverse=True).real
