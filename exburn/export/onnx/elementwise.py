"""Rules of the primitives that work entry by entry."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from exburn.export.onnx.graph import (
    OnnxConstant,
    OnnxGraph,
    OnnxTensor,
    Value,
    broadcast,
    file_dtype,
)
from exburn.export.onnx.lowering import Lowering, NotExpressible, rule

# Dtypes that onnxruntime's operators compute in, on the CPU.
WIDE = ("float32", "float64", "int32", "int64")
_BITS = {"int8": np.int32, "int16": np.int32, "uint8": np.int32, "uint16": np.int32}


def wider(dtype: np.dtype, dtypes: tuple[str, ...] = WIDE) -> np.dtype:
    """The dtype in which an operator computes what it has no kernel for."""
    if dtype.name in dtypes:
        return dtype
    if dtype.kind == "f":
        return np.dtype(np.float32)
    return np.dtype(_BITS.get(dtype.name, np.int64 if dtype.kind == "u" else np.int32))


def compute(
    graph: OnnxGraph,
    operator: str,
    *values: Value,
    dtypes=WIDE,
    result: Any = None,
    **attributes,
) -> Value:
    """An operator on values of a dtype that it may have no kernel for.

    Args:
        graph: The graph.
        operator: The operator.
        *values: Its operands, all of one dtype.
        dtypes: The dtypes that it has kernels for.
        result: The dtype of its output, if it is not that of the operands.
        **attributes: Of the operator.
    """
    dtype = values[0].dtype
    wide = wider(dtype, dtypes)
    shape: Any = ()
    for value in values:
        shape = broadcast(shape, value.shape)
    operands = [graph.cast(value, wide) for value in values]
    computation = graph.add(
        operator, *operands, shape=shape, dtype=result or wide, **attributes
    )
    return computation if result else graph.cast(computation, dtype)


# ------------------------------------------------------------------ one operand
_UNARY = {
    "ceil": "Ceil",
    "floor": "Floor",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "logistic": "Sigmoid",
    "sqrt": "Sqrt",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
}


@rule(*_UNARY, elementwise=True)
def _unary(low: Lowering, step, x):
    return low.graph.unary(_UNARY[step.name], x)


@rule("neg", "abs", "sign", elementwise=True)
def _signs(low: Lowering, step, x):
    operator = {"neg": "Neg", "abs": "Abs", "sign": "Sign"}[step.name]
    return compute(low.graph, operator, x)


@rule("square", elementwise=True)
def _square(low: Lowering, step, x):
    return compute(low.graph, "Mul", x, x)


@rule("rsqrt", elementwise=True)
def _rsqrt(low: Lowering, step, x):
    return low.graph.unary("Reciprocal", low.graph.unary("Sqrt", x))


@rule("cbrt", elementwise=True)
def _cbrt(low: Lowering, step, x):
    graph = low.graph
    root = graph.binary("Pow", graph.unary("Abs", x), graph.like(1 / 3, x))
    return graph.binary("Mul", graph.unary("Sign", x), root)


@rule("exp2", elementwise=True)
def _exp2(low: Lowering, step, x):
    return low.graph.binary("Pow", low.graph.like(2, x), x)


@rule("expm1", elementwise=True)
def _expm1(low: Lowering, step, x):
    """``tanh(x / 2) (exp(x) + 1)``, which is exact about 0, too."""
    graph = low.graph
    half = graph.unary("Tanh", graph.binary("Mul", x, graph.like(0.5, x)))
    above = graph.binary("Add", graph.unary("Exp", x), graph.like(1, x))
    return graph.binary("Mul", half, above)


@rule("log1p", elementwise=True)
def _log1p(low: Lowering, step, x):
    """``x log(u) / (u - 1)`` with ``u = 1 + x``, which is exact about 0, too."""
    graph = low.graph
    one = graph.like(1, x)
    u = graph.binary("Add", x, one)
    log = graph.unary("Log", u)
    rest = graph.binary("Sub", u, one)
    flat = graph.binary("Equal", rest, graph.like(0, x), np.bool_)
    large = graph.binary("Greater", x, graph.like(1e6, x), np.bool_)
    safe = graph.where(flat, one, rest)
    exact = graph.binary("Mul", log, graph.binary("Div", x, safe))
    return graph.where(flat, x, graph.where(large, log, exact))


@rule("erfc", elementwise=True)
def _erfc(low: Lowering, step, x):
    return low.graph.binary("Sub", low.graph.like(1, x), low.graph.unary("Erf", x))


@rule("round", elementwise=True)
def _round(low: Lowering, step, x):
    graph = low.graph
    if step.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return graph.unary("Round", x)
    half = graph.binary("Add", graph.unary("Abs", x), graph.like(0.5, x))
    return graph.binary("Mul", graph.unary("Sign", x), graph.unary("Floor", half))


@rule("is_finite", elementwise=True)
def _is_finite(low: Lowering, step, x):
    graph = low.graph
    odd = graph.binary(
        "Or", graph.unary("IsInf", x, np.bool_), graph.unary("IsNaN", x, np.bool_)
    )
    return graph.unary("Not", odd)


@rule("integer_pow", elementwise=True)
def _integer_pow(low: Lowering, step, x):
    graph, exponent = low.graph, step.params["y"]
    if exponent == 0:
        return graph.expand(graph.constant(np.ones((1,) * x.ndim), x.dtype), x.shape)
    power = None
    square, bits = x, abs(exponent)
    while bits:  # by repeated squares
        if bits & 1:
            power = square if power is None else compute(graph, "Mul", power, square)
        bits >>= 1
        if bits:
            square = compute(graph, "Mul", square, square)
    assert power is not None
    return power if exponent > 0 else graph.unary("Reciprocal", power)


@rule("population_count", "clz", elementwise=True)
def _bits(low: Lowering, step, x):
    raise NotExpressible("It counts bits")


# ------------------------------------------------------------------ two operands
_BINARY = {"add": "Add", "add_any": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}


@rule(*_BINARY, elementwise=True)
def _binary(low: Lowering, step, a, b):
    return compute(low.graph, _BINARY[step.name], a, b)


@rule("rem", elementwise=True)
def _rem(low: Lowering, step, a, b):
    return compute(low.graph, "Mod", a, b, fmod=1)


@rule("pow", elementwise=True)
def _pow(low: Lowering, step, a, b):
    graph = low.graph
    exponent = graph.cast(b, wider(b.dtype))
    shape = broadcast(a.shape, b.shape)
    power = graph.add("Pow", graph.cast(a, wider(a.dtype)), exponent, shape=shape)
    return graph.cast(power, a.dtype)


@rule("atan2", elementwise=True)
def _atan2(low: Lowering, step, y, x):
    graph = low.graph
    pi, zero = graph.like(np.pi, x), graph.like(0, x)
    half = graph.like(np.pi / 2, x)
    right = graph.unary("Atan", graph.binary("Div", y, x))
    below = graph.binary("Less", y, zero, np.bool_)
    turn = graph.where(below, graph.like(-np.pi, x), pi)
    left = graph.binary("Less", x, zero, np.bool_)
    at_zero = graph.binary("Equal", x, zero, np.bool_)
    up = graph.where(
        graph.binary("Equal", y, zero, np.bool_),
        zero,
        graph.where(below, graph.like(-np.pi / 2, x), half),
    )
    angle = graph.where(left, graph.binary("Add", right, turn), right)
    return graph.where(at_zero, up, angle)


@rule("max", "min", elementwise=True)
def _extreme(low: Lowering, step, a, b):
    graph, largest = low.graph, step.name == "max"
    if a.dtype == np.bool_:
        return graph.binary("Or" if largest else "And", a, b)
    for x, bound in ((a, b), (b, a)):
        short = _clip(graph, x, bound, largest)
        if short is not None:
            return short
    dtypes = (*WIDE, "uint32", "uint64")
    return compute(graph, "Max" if largest else "Min", a, b, dtypes=dtypes)


def _clip(graph: OnnxGraph, x: Value, bound: Value, largest: bool) -> Value | None:
    """``Relu`` or ``Clip``, which runtimes join with the convolution before them."""
    if not isinstance(bound, OnnxConstant) or bound.array.size != 1:
        return None
    if x.dtype != np.float32 or x.ndim < bound.ndim:
        return None
    if not largest and isinstance(x, Rectified):
        most = graph.reshape(bound, ())
        return graph.add("Clip", x.source, graph.like(0, x), most, shape=x.shape)
    if largest and not bound.array.item():
        return Rectified(graph.unary("Relu", x), x)
    return None


class Rectified(OnnxTensor):
    """A value without what is below 0, which may yet be cut above."""

    def __init__(self, tensor: Value, source: Value):
        assert isinstance(tensor, OnnxTensor)
        super().__init__(tensor.name, tensor.shape, tensor.dtype)
        self.source = source


_COMPARED = {"eq": "Equal", "lt": "Less", "gt": "Greater"}
_NEGATED = {"ne": "eq"}
_OR_EQUAL = {"le": "LessOrEqual", "ge": "GreaterOrEqual"}


@rule("eq", "lt", "gt", "ne", "le", "ge", elementwise=True)
def _compare(low: Lowering, step, a, b):
    graph, name = low.graph, step.name
    dtypes = WIDE if name not in ("eq", "ne") else (*WIDE, "bool")
    operator = {**_COMPARED, **_OR_EQUAL}.get(_NEGATED.get(name, name))
    assert operator is not None
    verdict = compute(graph, operator, a, b, dtypes=dtypes, result=np.dtype(bool))
    return graph.unary("Not", verdict) if name == "ne" else verdict


@rule("eq_to", "lt_to", "le_to", elementwise=True)
def _compare_in_total_order(low: Lowering, step, a, b):
    """With -0 before 0, and NaN behind all numbers and equal to itself."""
    graph, operator = (
        low.graph,
        {"eq": "Equal", "lt": "Less", "le": "LessOrEqual"}[step.name[:2]],
    )
    if a.dtype.kind != "f":
        return compute(graph, operator, a, b, result=np.dtype(bool))

    def compare(how: str, x: Value, y: Value) -> Value:
        return graph.binary(how, x, y, np.bool_)

    # Of equal numbers only zeros have other reciprocals.
    signs = compare(
        operator, graph.unary("Reciprocal", a), graph.unary("Reciprocal", b)
    )
    before = compare("And", compare("Equal", a, b), signs)
    if operator != "Equal":
        before = compare("Or", compare("Less", a, b), before)
    a_nan, b_nan = graph.unary("IsNaN", a, np.bool_), graph.unary("IsNaN", b, np.bool_)
    if operator == "Equal":
        behind = compare("And", a_nan, b_nan)
    elif operator == "Less":
        behind = compare("And", graph.unary("Not", a_nan), b_nan)
    else:
        behind = b_nan
    return compare("Or", before, behind)


_LOGICAL = {"and": "And", "or": "Or", "xor": "Xor"}


@rule(*_LOGICAL, elementwise=True)
def _logical(low: Lowering, step, a, b):
    plain = _LOGICAL[step.name]
    return low.graph.binary(plain if a.dtype == bool else f"Bitwise{plain}", a, b)


@rule("not", elementwise=True)
def _not(low: Lowering, step, x):
    return low.graph.unary("Not" if x.dtype == bool else "BitwiseNot", x)


@rule("shift_left", "shift_right_logical", elementwise=True)
def _shift(low: Lowering, step, a, b):
    graph, direction = low.graph, "LEFT" if step.name == "shift_left" else "RIGHT"
    unsigned = np.dtype(f"uint{8 * a.dtype.itemsize}")
    wide = np.dtype(np.uint32 if unsigned.itemsize < 4 else unsigned)
    # Through the same bits without a sign.
    x = graph.cast(graph.cast(a, unsigned), wide)
    result = graph.binary("BitShift", x, graph.cast(b, wide))
    graph.nodes[-1].attributes["direction"] = direction
    return graph.cast(graph.cast(result, unsigned), a.dtype)


@rule("shift_right_arithmetic", elementwise=True)
def _shift_arithmetic(low: Lowering, step, a, b):
    """The floor of a division by a power of two."""
    graph = low.graph
    if a.dtype.kind == "u":
        return _shift_right_unsigned(low, a, b)
    wide = np.dtype(np.int64)
    power = graph.binary("Pow", graph.ints([2]), graph.cast(b, wide))
    x = graph.cast(a, wide)
    rest = graph.binary("Mod", x, power)
    quotient = graph.binary("Div", graph.binary("Sub", x, rest), power)
    return graph.cast(graph.reshape(quotient, broadcast(a.shape, b.shape)), a.dtype)


def _shift_right_unsigned(low: Lowering, a, b):
    graph = low.graph
    wide = np.dtype(np.uint32)
    result = graph.binary("BitShift", graph.cast(a, wide), graph.cast(b, wide))
    graph.nodes[-1].attributes["direction"] = "RIGHT"
    return graph.cast(result, a.dtype)


# ------------------------------------------------------------------ several operands
def select(graph: OnnxGraph, condition: Value, a: Value, b: Value) -> Value:
    """Entries of ``a`` where the condition holds, else of ``b``."""
    dtype = a.dtype
    dtypes = ("float32", "float64", "int32", "int64", "uint8")
    wide = np.dtype(np.uint8) if dtype.kind == "b" else wider(dtype, dtypes)
    result = graph.where(condition, graph.cast(a, wide), graph.cast(b, wide))
    return graph.cast(result, dtype)


@rule("select_n", elementwise=True)
def _select_n(low: Lowering, step, which, *cases):
    graph = low.graph
    if which.dtype == bool:
        return select(graph, which, cases[1], cases[0])
    result = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        here = compute(
            graph, "Equal", which, graph.like(number, which), result=np.dtype(bool)
        )
        result = select(graph, here, cases[number], result)
    return result


@rule("clamp", elementwise=True)
def _clamp(low: Lowering, step, least, x, most):
    graph = low.graph
    scalars = all(isinstance(v, OnnxConstant) and not v.shape for v in (least, most))
    if scalars and x.dtype.name in WIDE:
        return graph.add("Clip", x, least, most, shape=x.shape)
    dtypes = (*WIDE, "uint32", "uint64")
    above = compute(graph, "Max", x, least, dtypes=dtypes)
    return compute(graph, "Min", above, most, dtypes=dtypes)


@rule("convert_element_type", elementwise=True)
def _convert(low: Lowering, step, x):
    graph, target = low.graph, np.dtype(step.params["new_dtype"])
    dtype = file_dtype(target)
    if x.dtype.kind == "f" and target.kind in "iu" and target.name not in WIDE:
        x = graph.cast(x, np.dtype(np.int32))
    if x.dtype.kind == "f" and dtype != target:
        if target.name not in ("float16", "bfloat16"):
            raise NotExpressible(f"It rounds to {target.name}")
        narrow = graph.add("Cast", x, shape=x.shape, dtype=target, to=target)
        return graph.add("Cast", narrow, shape=x.shape, dtype=dtype, to=dtype)
    return graph.cast(x, dtype)


@rule("reduce_precision", elementwise=True)
def _reduce_precision(low: Lowering, step, x):
    exact = step.params["exponent_bits"] >= 8 and step.params["mantissa_bits"] >= 23
    if not exact:
        raise NotExpressible("It rounds to fewer bits")
    return x


@rule(
    "copy",
    "copy_p",
    "stop_gradient",
    "name",
    "sharding_constraint",
    "layout_constraint",
    "reshard",
    "pvary",
    elementwise=True,
)
def _same(low: Lowering, step, x):
    return x


@rule("optimization_barrier", "device_put")
def _pass_on(low: Lowering, step, *values):
    return list(values)


@rule("tie")
def _tie(low: Lowering, step, *values):
    return values[-1]
