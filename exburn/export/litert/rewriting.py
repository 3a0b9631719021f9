"""Operations that LiteRT does not have, as others that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.compression.quantization.marks import READ, ROUND
from exburn.export.litert import windows
from exburn.export.operations import (
    Known,
    ProgramStep,
    Rule,
    inline,
    outputs_of,
    run,
    scan_sizes,
)

_LONGEST = 256  # steps of a loop that is written out


def _total_order(compare: Callable, below: Callable) -> Rule:
    """A comparison in which NaN is above all numbers, and below 0 comes -0."""

    def rule(step: ProgramStep, values: Sequence[Any]) -> Any:
        a, b = values
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return compare(a, b)
        return below(compare(a, b), jnp.isnan(a), jnp.isnan(b))

    return rule


def _sort(step: ProgramStep, values: Sequence[Any]) -> Any:
    """By ``top_k`` of the negative, which orders ties as a stable sort does."""
    axis, first = step.params["dimension"], values[0]
    if step.params["num_keys"] != 1 or first.dtype == bool:
        return NotImplemented
    keys = jnp.moveaxis(first, axis, -1)
    if not jnp.issubdtype(first.dtype, jnp.floating):
        if first.dtype not in (jnp.int32, jnp.int16, jnp.int8):
            return NotImplemented
        keys = -1 - keys  # unlike -keys, never too large
    else:
        keys = -keys
    _, order = lax.top_k(keys, keys.shape[-1])
    order = jnp.moveaxis(order, -1, axis)
    return [jnp.take_along_axis(v, order, axis, mode="clip") for v in values]


def _convolve(step: ProgramStep, values: Sequence[Any]) -> Any:
    """A transposed convolution in three dimensions, as one of spread entries."""
    params, (x, kernel) = step.params, values
    spread = params["lhs_dilation"]
    if x.ndim != 5 or max(spread) == 1:
        return NotImplemented
    interior = [0] * x.ndim
    for axis, gap in zip(params["dimension_numbers"].lhs_spec[2:], spread, strict=True):
        interior[axis] = gap - 1
    for axis, gap in enumerate(interior):
        x = _spread(x, axis, gap)
    return lax.conv_general_dilated(
        x,
        kernel,
        params["window_strides"],
        params["padding"],
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=params["dimension_numbers"],
        feature_group_count=params["feature_group_count"],
        batch_group_count=params["batch_group_count"],
        precision=params["precision"],
    )


def _spread(x: Any, axis: int, gap: int) -> Any:
    """``gap`` zeros between any two entries along an axis, in four dimensions."""
    if not gap:
        return x
    shape = x.shape
    before, size, after = (
        int(np.prod(shape[:axis])),
        shape[axis],
        int(np.prod(shape[axis + 1 :])),
    )
    wide = jnp.pad(
        x.reshape(before, size, 1, after), ((0, 0),) * 2 + ((0, gap), (0, 0))
    )
    wide = wide.reshape(before, size * (gap + 1), after)[:, : size * (gap + 1) - gap]
    return wide.reshape(*shape[:axis], -1, *shape[axis + 1 :])


def _multiply(step: ProgramStep, values: Sequence[Any]) -> Any:
    """A product with a weight as one of two matrices, the weight's rows summed.

    Of other forms the converter makes products whose weights the quantizer gives scales
    along an axis that the runtime refuses, or reads as another one.
    """
    summed, batched = step.params["dimension_numbers"]
    x, weight = values
    if any(batched) or not jnp.issubdtype(x.dtype, jnp.floating):
        return NotImplemented
    if weight.ndim == 2 and summed == ((x.ndim - 1,), (0,)):
        return _as_convolution(step, x, weight) if _is_refused(x) else NotImplemented
    weights = {n: s.value for n, s in enumerate(step.inputs) if isinstance(s, Known)}
    if len(weights) != 1:
        return NotImplemented
    ((place, value),) = weights.items()
    x, matrix = values[1 - place], np.asarray(value)
    rest = [axis for axis in range(x.ndim) if axis not in summed[1 - place]]
    free = [axis for axis in range(matrix.ndim) if axis not in summed[place]]
    sizes = [x.shape[axis] for axis in rest], [matrix.shape[axis] for axis in free]
    count = int(np.prod([matrix.shape[axis] for axis in summed[place]]))
    matrix = matrix.transpose([*summed[place], *free]).reshape(count, -1)
    x = x.transpose([*rest, *summed[1 - place]]).reshape(*sizes[0], count)
    product = _multiply_rows(step, x, jnp.asarray(matrix))
    product = product.reshape(*sizes[0], *sizes[1])
    if place:
        return product
    order = [*range(len(rest), product.ndim), *range(len(rest))]
    return product.transpose(order)  # the weight comes first


def _multiply_rows(step: ProgramStep, x: Any, matrix: Any) -> Any:
    """An array times a matrix, along the array's last axis, by two matrices."""
    params = step.params | {"dimension_numbers": (((1,), (0,)), ((), ()))}
    rows = _with_shape(x, (-1, x.shape[-1]))
    product = step.primitive.bind(rows, matrix, **params)
    return _with_shape(product, (*x.shape[:-1], matrix.shape[1]))


def _is_refused(x: Any) -> bool:
    """Tells whether the converter makes a product that it then refuses.

    "'tfl.batch_matmul' op found invalid output rank, expected 3 but got 4"; it also
    does so where products of matrices are between reshapes from and to such arrays.
    """
    return x.ndim == 4 and x.shape[-2] == 1


def _as_convolution(step: ProgramStep, x: Any, weight: Any) -> Any:
    """The product of images' pixels and a matrix."""
    return lax.conv_general_dilated(
        x,
        weight.reshape(1, 1, *weight.shape),
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=step.params["precision"],
        preferred_element_type=step.params["preferred_element_type"],
    )


def _reshape(step: ProgramStep, values: Sequence[Any]) -> Any:
    """Arrays of more axes as matrices, and matrices as these."""
    if step.params["dimensions"] is not None:
        return NotImplemented
    return _with_shape(values[0], step.params["new_sizes"])


def _with_shape(x: Any, sizes: Sequence[int]) -> Any:
    """An array in another shape, which the converter does not join with a product."""
    shaped = x.reshape(sizes)
    if x.ndim == 2 and _is_refused(shaped):
        return lax.optimization_barrier(x).reshape(sizes)
    if shaped.ndim == 2 and _is_refused(x):
        return lax.optimization_barrier(shaped)
    return shaped


def _unroll(step: ProgramStep, values: Sequence[Any]) -> Any:
    """A loop of known length, written out."""
    params = step.params
    length, reverse = params["length"], params["reverse"]
    if not 0 < length <= _LONGEST:
        return NotImplemented
    place, carry = scan_sizes(step, inline(params["jaxpr"], step.layer))
    constants, state = values[:place], list(values[place : place + carry])
    rows, steps = values[place + carry :], range(length)
    results = []
    for number in reversed(steps) if reverse else steps:
        here = [row[number] for row in rows]
        outputs = _call(params["jaxpr"], [*constants, *state, *here], step.layer)
        state, ends = outputs[:carry], outputs[carry:]
        results.append(ends)
    results = results[::-1] if reverse else results
    return [*state, *(jnp.stack(each) for each in zip(*results, strict=True))]


def _call(closed: Any, values: Sequence[Any], layer: str) -> list[Any]:
    """The outputs of a jaxpr within an operation."""
    inner = inline(closed, layer)
    arguments = dict(zip(map(id, inner.inputs), values, strict=True))
    return outputs_of(inner, run(inner.steps, arguments, RULES))


def _differ(step: ProgramStep, values: Sequence[Any]) -> Any:
    """Exclusive or, for booleans."""
    return jnp.not_equal(*values) if values[0].dtype == bool else NotImplemented


def _quantize(step: ProgramStep, values: Sequence[Any]) -> Any:
    """Rounding, and weights of few bits, as the converter knows them.

    Both are composites of one name, whose scales and zero points are attributes.
    """
    first, *parameters = [getattr(slot, "value", None) for slot in step.inputs]
    if any(value is None for value in parameters):
        return NotImplemented
    if step.params["name"] == ROUND:
        scale, zero = map(np.asarray, parameters)
        return _fake_quantize(values[0], scale, zero, dtype="i8", narrow_range=False)
    if step.params["name"] != READ or first is None:
        return NotImplemented
    integers, scale = np.asarray(first), np.asarray(parameters[0])
    weight = jnp.asarray(integers.astype(np.float32) * scale)
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    if len(axes) > 1:
        return weight  # it has one scale for each entry of one axis
    bits = dict((name, leaves) for name, leaves, _ in step.params["attributes"])["bits"]
    options = {"quantization_dimension": axes[0]} if axes else {}
    kind, zeros = f"i{bits[0]}", np.zeros(scale.size)
    return _fake_quantize(
        weight, scale, zeros, dtype=kind, narrow_range=True, **options
    )


def _fake_quantize(x: Any, scale: Any, zero: Any, **options: Any) -> Any:
    def keep(x: Any, **_: Any) -> Any:
        return x

    composite = lax.composite(keep, "quant.fake_quant")
    return composite(
        x,
        scale=scale.astype(np.float32).ravel(),
        zero_point=zero.astype(np.int64).ravel(),
        **options,
    )


RULES: dict[str, Rule] = {
    "composite": _quantize,
    "conv_general_dilated": _convolve,
    "dot_general": _multiply,
    "le_to": _total_order(lax.le, lambda less, a, b: less | b),
    "lt_to": _total_order(lax.lt, lambda less, a, b: less | (b & ~a)),
    "reduce_window_max": windows.largest,
    "reduce_window_min": windows.smallest,
    "reduce_window_sum": windows.total,
    "reshape": _reshape,
    "scan": _unroll,
    "sort": _sort,
    windows.WindowMean.name: windows.mean,
    "xor": _differ,
}
