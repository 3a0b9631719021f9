"""Windows that slide over arrays, as the pooling that LiteRT has.

It pools along two axes of an array of four, without dilation, and both axes are padded
in one way. So windows along other axes, and along more or fewer of them, are put
between reshapes, two neighbouring axes at a time. The mean of windows that reach beyond
the array counts what lies within it, as the layers do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.export.operations import (
    Known,
    Operations,
    ProgramStep,
    ValueSlot,
    run,
    steps_for,
)

VALID, SAME = "VALID", "SAME"


class WindowMean:
    """The counterpart of a primitive in the operation that `join_means` makes."""

    name = "window_mean"

    def bind(self, x: Any, **params: Any) -> Any:
        """The mean of each window."""
        total = lax.reduce_window(
            x,
            np.zeros((), x.dtype),
            lax.add,
            params["window_dimensions"],
            params["window_strides"],
            params["padding"],
        )
        return total / _counts(x.shape, params)


def join_means(operations: Operations) -> Operations:
    """A program whose sums of windows, divided by their entries, are means of them."""
    source = {id(slot): step for step in operations.steps for slot in step.outputs}
    rewritten = [_mean_of(step, source) or step for step in operations.steps]
    steps = tuple(steps_for(rewritten, operations.outputs))
    return dataclasses.replace(operations, steps=steps)


def _mean_of(
    step: ProgramStep, source: Mapping[int, ProgramStep]
) -> ProgramStep | None:
    """The mean that a division gives, if it gives one."""
    if step.name != "div":
        return None
    total, divisor = step.inputs
    summed = source.get(id(total))
    if summed is None or summed.name != "reduce_window_sum" or _is_dilated(summed):
        return None
    x = summed.inputs[0].aval
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return None
    counts = _value(divisor, source)
    if counts is None:
        return None
    shape = summed.outputs[0].aval.shape
    expected = np.broadcast_to(_counts(x.shape, summed.params), shape)
    if not np.array_equal(np.broadcast_to(counts, shape), expected):
        return None
    params = dict(summed.params)
    return dataclasses.replace(
        step, primitive=WindowMean(), params=params, inputs=summed.inputs
    )


def _value(slot: ValueSlot, source: Mapping[int, ProgramStep]) -> np.ndarray | None:
    """The value of a slot that no input decides; ``None`` for others."""
    steps: dict[int, ProgramStep] = {}

    def collect(slot: ValueSlot) -> bool:
        if isinstance(slot, Known):
            return True
        step = source.get(id(slot))
        if step is None or not all(map(collect, step.inputs)):
            return False
        steps[id(step)] = step
        return True

    if not collect(slot):
        return None
    if isinstance(slot, Known):
        return np.asarray(slot.value)
    return np.asarray(run(list(steps.values()), {})[id(slot)])


def _is_dilated(step: ProgramStep) -> bool:
    names = "base_dilation", "window_dilation"
    return any(n != 1 for name in names for n in step.params[name])


def _counts(shape: Sequence[int], params: Mapping[str, Any]) -> np.ndarray:
    """How many entries of an array each window has; the padding has none."""
    counts = np.ones([1] * len(shape), np.float32)
    windows = zip(
        shape,
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        strict=True,
    )
    for axis, (size, window, step, (low, high)) in enumerate(windows):
        first = np.arange(0, low + size + high - window + 1, step) - low
        inside = np.minimum(first + window, size) - np.maximum(first, 0)
        along = [-1 if place == axis else 1 for place, _ in enumerate(shape)]
        counts = counts * inside.reshape(along).astype(np.float32)
    return counts


# ------------------------------------------------------------------------ the rules
def largest(step: ProgramStep, values: Sequence[Any]) -> Any:
    """The largest entry of each window."""
    return _pool(step, values[0], _largest)


def smallest(step: ProgramStep, values: Sequence[Any]) -> Any:
    """The smallest entry of each window."""
    pooled = _pool(step, -values[0], _largest)
    return pooled if pooled is NotImplemented else -pooled


def mean(step: ProgramStep, values: Sequence[Any]) -> Any:
    """The mean of each window, over the entries that are not padding."""
    return _pool(step, values[0], _mean)


def total(step: ProgramStep, values: Sequence[Any]) -> Any:
    """The sum of each window, which is its mean times the number of its entries."""
    x, padding = values[0], step.params["padding"]
    if not jnp.issubdtype(x.dtype, jnp.floating) or min(map(min, padding)) < 0:
        return NotImplemented
    x = jnp.pad(x, padding)
    params = step.params | {"padding": ((0, 0),) * x.ndim}
    pooled = _pool(dataclasses.replace(step, params=params), x, _mean)
    if pooled is NotImplemented:
        return pooled
    return pooled * np.float32(math.prod(step.params["window_dimensions"]))


def _largest(x: Any, window: Any, steps: Any, padding: str) -> Any:
    lowest = np.array(-np.inf, x.dtype)
    return lax.reduce_window(x, lowest, lax.max, window, steps, padding)


def _mean(x: Any, window: Any, steps: Any, padding: str) -> Any:
    """The mean, in the two forms that the converter knows."""
    zero = np.zeros((), x.dtype)
    sums = lax.reduce_window(x, zero, lax.add, window, steps, padding)
    if padding == VALID:
        return sums / np.float32(math.prod(window))
    ones = jnp.ones(x.shape, x.dtype)
    return sums / lax.reduce_window(ones, zero, lax.add, window, steps, padding)


def _pool(step: ProgramStep, x: Any, pool: Any) -> Any:
    """Windows along all axes, as those along two neighbouring ones in turn."""
    if _is_dilated(step) or not jnp.issubdtype(x.dtype, jnp.floating):
        return NotImplemented
    sizes, strides = step.params["window_dimensions"], step.params["window_strides"]
    padding = [
        _padding(x.shape[axis], size, stride, step.params["padding"][axis])
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    ]
    if not all(padding):
        return NotImplemented
    axes = [n for n in range(x.ndim) if (sizes[n], strides[n]) != (1, 1)]
    while axes:
        axis, *axes = axes
        pair, kinds = (axis,), padding[axis]
        if axes and axes[0] == axis + 1 and kinds & padding[axis + 1]:
            pair, kinds = (axis, axes.pop(0)), kinds & padding[axis + 1]
        x = _pool_axes(x, pair, sizes, strides, min(kinds), pool)
    return x


def _padding(size: int, window: int, step: int, pads: tuple[int, int]) -> set[str]:
    """How LiteRT calls the padding of an axis: in none, one, or both of two ways."""
    same = lax.padtype_to_pads((size,), (window,), (step,), SAME)[0]
    kinds = {VALID} if tuple(pads) == (0, 0) else set()
    return kinds | ({SAME} if tuple(pads) == tuple(same) else set())


def _pool_axes(
    x: Any, axes: tuple[int, ...], sizes: Any, strides: Any, padding: str, pool: Any
) -> Any:
    """Windows along one axis, or along two neighbouring ones."""
    first, last = axes[0], axes[-1]
    before, after = x.shape[:first], x.shape[last + 1 :]
    inner = x.shape[first : last + 1]
    window = tuple(sizes[axis] for axis in axes)
    steps = tuple(strides[axis] for axis in axes)
    if len(axes) == 1:
        inner, window, steps = (*inner, 1), (*window, 1), (*steps, 1)
    flat = _apart(x).reshape(math.prod(before), *inner, math.prod(after))
    result = pool(flat, (1, *window, 1), (1, *steps, 1), padding)
    return _apart(result).reshape(*before, *result.shape[1 : 1 + len(axes)], *after)


def _apart(x: Any) -> Any:
    """An array that the converter does not join with what it is made of.

    It moves transpositions behind windows, which then lie along axes that its pooling
    does not have, and reshapes into products, whose shape it then refuses.
    """
    return lax.optimization_barrier(x)
