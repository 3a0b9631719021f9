"""Floating-point operations of a traced program, counted in its jaxpr."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax.numpy as jnp

# Names of functions in a program that are convolutions: depthwise ones, whose gradients
# are sums as well (kernels/conv/shifted_sum.py), and those of few channels, with
# XLA's gradients (kernels/conv/cpu.py).
_DEPTHWISE, _FEW_CHANNELS = "exburn_depthwise", "exburn_few_channels"
# And of one that few batches need, which does not count (layers/contract/
# routed_experts.py).
_RARE = "exburn_more_blocks"
_LOOPS = {"scan", "while"}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a program does.

    Attributes:
        flops: Multiplications and additions of contractions and convolutions.
        products: Those of contractions alone.
        convolutions: Number of convolutions.
        turned: Of these, such as have another layout than images and kernels with their
            channels last, or spread what they read: transposed ones.
        halves: Of the convolutions, such as are in 16 bits.
        equations: Number of primitive operations, a measure of launch overhead.
        elements: Array elements written; of a loop those of one turn, and its results.
        outputs: Bytes of the results.
        tables: Elements of the inputs that are looked into by rows.
        kernels: Of the operations those that may be kernels of a GPU: not those of
            integers, nor lookups, which become parts of others.
        float8: Of ``products`` those of two arrays of 8-bit floats.
    """

    flops: float = 0.0
    convolutions: int = 0
    equations: int = 0
    elements: float = 0.0
    turned: int = 0
    outputs: float = 0.0
    products: float = 0.0
    halves: int = 0
    tables: int = 0
    kernels: int = 0
    float8: float = 0.0

    def times(self, factor: float) -> Cost:
        """The cost for so many times the rows: the same operations, larger."""
        names = ("flops", "elements", "outputs", "products", "float8")
        larger = {name: getattr(self, name) * factor for name in names}
        return dataclasses.replace(self, **larger)


def count(jaxpr: Any) -> Cost:
    """Counts a (closed) jaxpr, inner programs included; scans times their length.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> jaxpr = jax.make_jaxpr(jnp.matmul)(jnp.ones((2, 3)), jnp.ones((3, 4)))
        >>> count(jaxpr).flops
        48.0
    """
    flops, products, convolutions, equations, rearranged, halves = 0.0, 0.0, 0, 0, 0, 0
    kernels, float8 = 0, 0.0
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    unknown = {d for v in jaxpr.invars for d in _shape(v) if not isinstance(d, int)}

    def size(dims: Iterable[Any]) -> int:
        return math.prod(_size(dim, unknown) for dim in dims)

    for equation, times in _walk(jaxpr, 1):
        name = equation.primitive.name
        out = size(_shape(equation.outvars[0])) if equation.outvars else 0
        equations += times
        kernels += times * (name != "gather" and any(map(_is_float, equation.outvars)))
        if name == "dot_general":
            (contract, _), _ = equation.params["dimension_numbers"]
            shape = _shape(equation.invars[0])
            operations = times * 2.0 * out * size(shape[d] for d in contract)
            products += operations
            float8 += operations * all(map(_is_float8, equation.invars))
        elif name == "conv_general_dilated":
            kernel = _shape(equation.invars[1])
            numbers = equation.params["dimension_numbers"]
            outs, inner, *window = (kernel[d] for d in numbers.rhs_spec)
            spread = any(n != 1 for n in equation.params["lhs_dilation"])
            if spread:  # most of what its windows meet are zeros in between
                entries = size(_shape(equation.invars[0]))
                each = outs / equation.params["feature_group_count"]
            else:
                entries, each = out, inner
            flops += times * 2.0 * entries * each * math.prod(window)
            convolutions += times
            last = (len(kernel) - 1, len(kernel) - 2)
            straight = numbers.rhs_spec[:2] == last and numbers.lhs_spec[1] == last[0]
            rearranged += times * (spread or not straight)
            halves += times * (equation.invars[0].aval.dtype.itemsize == 2)
        elif (estimate := equation.params.get("cost_estimate")) is not None:
            products += times * estimate.flops  # of a kernel that loops
        elif (called := equation.params.get("name")) in (_DEPTHWISE, _FEW_CHANNELS):
            *window, inner, _ = _shape(equation.invars[1])
            flops += times * 2.0 * out * math.prod(window) * inner
            convolutions += times * (called == _FEW_CHANNELS)
    outputs = sum(size(_shape(v)) * v.aval.dtype.itemsize for v in jaxpr.outvars)
    elements = _written_elements(jaxpr, size)
    flops += products
    counts = flops, convolutions, equations, elements, rearranged, outputs
    tables = {id(v): size(_shape(v)) for v in _looked_into(jaxpr)}
    return Cost(*counts, products, halves, sum(tables.values()), kernels, float8)


def _is_float(var: Any) -> bool:
    return jnp.issubdtype(getattr(var.aval, "dtype", jnp.int32), jnp.inexact)


def _is_float8(var: Any) -> bool:
    return _is_float(var) and var.aval.dtype.itemsize == 1


def _looked_into(jaxpr: Any, origins: dict[int, Any] | None = None) -> Iterator[Any]:
    """The outermost program's inputs whose rows are gathered, maybe several times.

    Args:
        jaxpr: The program, or one inside of it.
        origins: What its variables are of the outermost one's inputs, by their ids.
    """
    sources = {id(v): v for v in jaxpr.invars} if origins is None else origins
    for equation in jaxpr.eqns:
        read = equation.invars[:1] if equation.primitive.name == "gather" else []
        yield from (sources[id(v)] for v in read if id(v) in sources)
        for sub in _inside(equation):
            if len(sub.invars) != len(equation.invars):  # of a loop, maybe
                continue
            pairs = zip(sub.invars, equation.invars, strict=True)
            inner = {id(i): sources[id(o)] for i, o in pairs if id(o) in sources}
            yield from _looked_into(sub, inner)


def _written_elements(jaxpr: Any, size: Callable[[Iterable[Any]], int]) -> float:
    """``Cost.elements``."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = _inside(equation)
        if not inner or equation.primitive.name in _LOOPS:
            total += sum(size(_shape(var)) for var in equation.outvars)
        total += sum(_written_elements(sub, size) for sub in inner)
    return total


def _shape(var: Any) -> tuple:
    return getattr(var.aval, "shape", ())


def _size(dim: Any, unknown: set[Any]) -> int:
    """A size; how many times as much as the unknown ones, if it is a multiple."""
    for one in unknown:
        if not isinstance(dim, int) and dim % one == 0:
            dim = dim // one
    return dim if isinstance(dim, int) else 1


def _walk(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    for equation in jaxpr.eqns:
        inner = _inside(equation)
        if not inner:
            yield equation, times
            continue
        repeat = 1
        if equation.primitive.name == "scan":
            repeat = _size(equation.params.get("length", 1), set())
        elif equation.primitive.name == "shard_map":  # what each device does
            repeat = equation.params["mesh"].size
        for sub in inner:
            yield from _walk(sub, times * repeat)


def _inside(equation: Any) -> list[Any]:
    """Its programs; none of what counts as one operation, or not at all."""
    one = equation.params.get("name") in (_DEPTHWISE, _FEW_CHANNELS, _RARE)
    one = one or equation.params.get("cost_estimate") is not None
    return [] if one else [*inner_jaxprs(equation.params)]


def inner_jaxprs(params: dict) -> Iterator[Any]:
    """The programs within an equation: of a loop, a branch, a jitted function …"""
    for program in inner_programs(params):
        yield getattr(program, "jaxpr", program)


def inner_programs(params: dict) -> Iterator[Any]:
    """The programs within an equation, with the constants that they hold."""
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            if hasattr(getattr(item, "jaxpr", item), "eqns"):
                yield item
