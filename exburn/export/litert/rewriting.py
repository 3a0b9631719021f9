"""Operations that LiteRT does not have, as others that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.export.operations import Operation, Rule, inline, outputs_of, run
from exburn.transforms.quantization.marks import READ, ROUND

_LONGEST = 256  # steps of a loop that is written out


def _total_order(compare: Callable, below: Callable) -> Rule:
    """A comparison in which NaN is above all numbers, and below 0 comes -0."""

    def rule(step: Operation, values: Sequence[Any]) -> Any:
        a, b = values
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return compare(a, b)
        return below(compare(a, b), jnp.isnan(a), jnp.isnan(b))

    return rule


def _sort(step: Operation, values: Sequence[Any]) -> Any:
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


def _convolve(step: Operation, values: Sequence[Any]) -> Any:
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


def _unroll(step: Operation, values: Sequence[Any]) -> Any:
    """A loop of known length, written out."""
    params = step.params
    length, reverse = params["length"], params["reverse"]
    if not 0 < length <= _LONGEST:
        return NotImplemented
    place, held = params["num_consts"], params["num_carry"]
    constants, state = values[:place], list(values[place : place + held])
    rows, steps = values[place + held :], range(length)
    results = []
    for number in reversed(steps) if reverse else steps:
        here = [row[number] for row in rows]
        found = _call(params["jaxpr"], [*constants, *state, *here], step.layer)
        state, ends = found[:held], found[held:]
        results.append(ends)
    results = results[::-1] if reverse else results
    return [*state, *(jnp.stack(each) for each in zip(*results, strict=True))]


def _call(closed: Any, values: Sequence[Any], layer: str) -> list[Any]:
    """The outputs of a jaxpr within an operation."""
    inner = inline(closed, layer)
    known = dict(zip(map(id, inner.inputs), values, strict=True))
    return outputs_of(inner, run(inner.steps, known, RULES))


def _differ(step: Operation, values: Sequence[Any]) -> Any:
    """Exclusive or, for booleans."""
    return jnp.not_equal(*values) if values[0].dtype == bool else NotImplemented


def _quantize(step: Operation, values: Sequence[Any]) -> Any:
    """Rounding, and weights of few bits, as the converter knows them.

    Both are composites of one name, whose scales and zero points are attributes.
    """
    first, *known = [getattr(slot, "value", None) for slot in step.inputs]
    if any(value is None for value in known):
        return NotImplemented
    if step.params["name"] == ROUND:
        scale, zero = map(np.asarray, known)
        return _fake_quantize(values[0], scale, zero, dtype="i8", narrow_range=False)
    if step.params["name"] != READ or first is None:
        return NotImplemented
    integers, scale = np.asarray(first), np.asarray(known[0])
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
    def unchanged(x: Any, **_: Any) -> Any:
        return x

    composite = lax.composite(unchanged, "quant.fake_quant")
    return composite(
        x,
        scale=scale.astype(np.float32).ravel(),
        zero_point=zero.astype(np.int64).ravel(),
        **options,
    )


RULES: dict[str, Rule] = {
    "composite": _quantize,
    "conv_general_dilated": _convolve,
    "le_to": _total_order(lax.le, lambda found, a, b: found | b),
    "lt_to": _total_order(lax.lt, lambda found, a, b: found | (b & ~a)),
    "scan": _unroll,
    "sort": _sort,
    "xor": _differ,
}
