"""Norms of weights' gradients by what the gradients are products of: ghost norms.

A layer that multiplies inputs ``a`` with a weight at several positions has the gradient
``sum_t a_t g_tᵀ``, where ``g`` is the gradient of its output. Its squared norm is also
``sum_ts (a_t · a_s) (g_t · g_s)``. What takes less memory is computed.

Sources: I. Goodfellow, "Efficient Per-Example Gradient Computations", 2015; X. Li et
al., "Large Language Models Can Be Strong Differentially Private Learners", 2021; Z. Bu,
J. Mao, S. Xu, "Scalable and Efficient Training of Large Convolutional Neural Networks
with Differential Privacy", 2022.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.runtime.kernels.dispatch import is_ampere

_OFFSETS = 9  # of a window, whose inputs are taken one after another
DTYPES = {jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16)}


def squared_norm(parts: list[jax.Array], slope: jax.Array) -> jax.Array:
    """Squared norm of ``sum_t a_t g_tᵀ`` for each of the parts, added up.

    Args:
        parts: ``[groups, positions, in]`` each: inputs that have weights of their own,
            such as those of the offsets of a window.
        slope: ``[groups, positions, out]``

    Example:
        >>> a = jax.random.normal(jax.random.key(0), (1, 5, 3))
        >>> g = jax.random.normal(jax.random.key(1), (1, 5, 4))
        >>> squares = squared_norm([a], g), jnp.sum(jnp.square(a[0].T @ g[0]))
        >>> bool(jnp.allclose(*squares, rtol=1e-5))
        True
    """
    positions, width = parts[0].shape[1:]
    if positions == 1:
        return _dot(_squares(parts), _squares([slope]))
    if is_between(positions, width, slope.shape[2]):
        inner = sum(_between(part) for part in parts)
        return jnp.sum(inner * _between(slope))
    total = jnp.float32(0)
    for part in parts:
        gradient = precise_einsum("kti,kto->kio", part, slope)
        total = total + jnp.sum(jnp.square(gradient))
    return total


def is_between(positions: int, width: int, out: int) -> bool:
    """Whether products of positions with each other are fewer than the weights.

    Args:
        width, out: Numbers of an input and of an output at a position.
    """
    return 2 * positions**2 <= width * out


def precise_einsum(formula: str, *operands: jax.Array) -> jax.Array:
    """A sum of products in float32, with an error of that size.

    On a GPU it is three products in TF32, which take half the time of one in float32.
    Products of numbers in bfloat16 have no error.
    """
    if all(operand.dtype == jnp.bfloat16 for operand in operands):
        return jnp.einsum(formula, *operands, preferred_element_type=jnp.float32)
    operands = tuple(operand.astype(jnp.float32) for operand in operands)

    def exact(*operands: jax.Array) -> jax.Array:
        return jnp.einsum(formula, *operands, precision=lax.Precision.HIGHEST)

    def thrice(*operands: jax.Array) -> jax.Array:
        precision: Any = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
        return jnp.einsum(formula, *operands, precision=precision)

    if not is_ampere():
        return exact(*operands)
    return lax.platform_dependent(*operands, cuda=thrice, default=exact)


def _squares(parts: list[jax.Array]) -> jax.Array:
    return sum(
        (jnp.sum(jnp.square(part.astype(jnp.float32)), axis=(1, 2)) for part in parts),
        jnp.float32(0),
    )


def _dot(one: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.sum(one * other)


def _between(rows: jax.Array) -> jax.Array:
    """Products of positions with each other, ``[groups, positions, positions]``."""
    return precise_einsum("kti,ksi->kts", rows, rows)


def of_dot(equation: Any, at: int, x: jax.Array, slope: jax.Array) -> jax.Array:
    """Of a product of matrices, ``lax.dot_general``.

    Args:
        at: Place of the weight among the operands.
    """
    (contracted, batched) = equation.params["dimension_numbers"]
    own, groups = contracted[1 - at], batched[1 - at]
    free = [axis for axis in range(x.ndim) if axis not in (*own, *groups)]
    lead = [x.shape[axis] for axis in groups]
    count = math.prod(lead)
    width = math.prod(x.shape[axis] for axis in own)
    rows = lax.transpose(x, (*groups, *free, *own)).reshape(count, -1, width)
    # Of an output: the groups, the free axes of the left one, those of the right one.
    rest, first = slope.ndim - len(groups) - len(free), len(groups)
    theirs = [*range(first, first + rest)] if at == 0 else [*range(slope.ndim)][-rest:]
    theirs = theirs if rest else []
    ours = [axis for axis in range(first, slope.ndim) if axis not in theirs]
    order = [*range(first), *ours, *theirs]
    slope = lax.transpose(slope, order).reshape(count, rows.shape[1], -1)
    return squared_norm([rows], slope)


def of_convolution(equation: Any, at: int, x: jax.Array, slope: jax.Array) -> jax.Array:
    """Of ``lax.conv_general_dilated``: each offset of the window is a product."""
    windows = Windows(equation, at, x, slope)
    if windows.overlap and has_few_positions(equation, at):
        return jnp.sum(windows.between() * _between(windows.slope))
    return squared_norm(windows.parts(), windows.slope)


def has_few_positions(equation: Any, at: int) -> bool:
    """Whether products of a convolution's positions are fewer than its weights."""
    out, kernel = equation.outvars[0].aval, equation.invars[at].aval
    places = equation.params["dimension_numbers"].rhs_spec
    features, width = (kernel.shape[axis] for axis in places[:2])
    of_group = features // equation.params["feature_group_count"]
    if (offsets := math.prod(_window_of(equation, at))) > _OFFSETS:
        width *= offsets
    return is_between(out.size // features, width, of_group)


def _window_of(equation: Any, at: int) -> list[int]:
    """Sizes of a convolution's window."""
    kernel = equation.invars[at].aval.shape
    places = equation.params["dimension_numbers"].rhs_spec
    return [kernel[axis] for axis in places[2:]]


def convolution_gradient(
    equation: Any, at: int, x: jax.Array, slope: jax.Array
) -> jax.Array:
    """The gradient of a convolution's kernel for one row, as a product of matrices.

    Under ``jax.vmap`` JAX would make a convolution with a group for each row of it,
    which takes seven times as long on a GPU.
    """
    windows = Windows(equation, at, x, slope)
    # [groups, offsets · in, out]
    gradient = jnp.einsum(
        "kti,kto->kio",
        jnp.concatenate(windows.parts(), 2),
        windows.slope,
        preferred_element_type=jnp.float32,
    )
    groups, _, out = gradient.shape
    gradient = gradient.reshape(groups, *_window_of(equation, at), -1, out)
    last = gradient.ndim - 1
    gradient = gradient.transpose(0, last, last - 1, *range(1, last - 1))
    gradient = gradient.reshape(-1, *gradient.shape[2:])  # [out, in, *window]
    return lax.transpose(gradient, [*np.argsort(windows.numbers.rhs_spec)])


class Windows:
    """What the windows of a convolution see.

    Args:
        equation, at, x, slope: As of ``of_convolution``.

    Attributes:
        numbers: Which axis is which.
        slope: ``[groups, positions, out]``
        overlap: Whether windows see each other's positions, so that products of
            positions are computed once for all of them.
    """

    def __init__(self, equation: Any, at: int, x: jax.Array, slope: jax.Array):
        params = equation.params
        self.numbers: Any = params["dimension_numbers"]
        self._groups = params["feature_group_count"]
        # [rows, channels, *sizes]
        x = lax.transpose(x, self.numbers.lhs_spec)
        slope = lax.transpose(slope, self.numbers.out_spec)
        pads = [
            (low, high, spread - 1)
            for (low, high), spread in zip(
                params["padding"], params["lhs_dilation"], strict=True
            )
        ]
        zero = jnp.zeros((), x.dtype)
        self._x = lax.pad(x, zero, [(0, 0, 0), (0, 0, 0), *pads])
        self._strides, self._sizes = params["window_strides"], slope.shape[2:]
        self.slope = _in_groups(slope, self._groups)
        self._window = _window_of(equation, at)
        self._spreads = params["rhs_dilation"]
        self._begins = [
            [o * d for o, d in zip(offset, self._spreads, strict=True)]
            for offset in np.ndindex(*self._window)
        ]
        seen, positions = math.prod(self._x.shape[2:]), math.prod(self._sizes)
        self.overlap = seen**2 < len(self._begins) * positions**2

    def parts(self) -> list[jax.Array]:
        """The inputs of each offset of the window, as of ``squared_norm``.

        Those of many offsets are one part.
        """
        if len(self._begins) > _OFFSETS:
            return [self._in_one()]
        return [
            _in_groups(self._cut(self._x, begin, [2]), self._groups)
            for begin in self._begins
        ]

    def _in_one(self) -> jax.Array:
        """Inputs of all offsets, ``[groups, positions, offsets · in]``.

        Slices of one axis after another are fewer than those of each offset.
        """
        x = self._x
        for axis, (size, count) in enumerate(
            zip(self._sizes, self._window, strict=True)
        ):
            step, spread = self._strides[axis], self._spreads[axis]
            reach = (size - 1) * step + 1
            cuts = [
                lax.slice_in_dim(x, o * spread, o * spread + reach, step, 2 + axis)
                for o in range(count)
            ]
            x = jnp.stack(cuts, -1)
        rows, channels, groups = *x.shape[:2], self._groups
        offsets = len(self._begins)
        x = x.reshape(rows, groups, channels // groups, -1, offsets)
        return x.transpose(1, 0, 3, 4, 2).reshape(*self.slope.shape[:2], -1)

    def between(self) -> jax.Array:
        """Products of windows with each other, ``[groups, positions, positions]``."""
        rows, _, *sizes = self._x.shape
        every = _between(_in_groups(self._x, self._groups))
        every = every.reshape(-1, rows, *sizes, rows, *sizes)
        places = [2, 3 + len(sizes)]
        seen = (self._cut(every, begin, places) for begin in self._begins)
        total = functools.reduce(jnp.add, seen)
        return total.reshape(len(self.slope), *[self.slope.shape[1]] * 2)

    def _cut(self, x: jax.Array, begin: list[int], places: list[int]) -> jax.Array:
        """What an offset of the window sees of axes, which begin at some places."""
        starts, ends, strides = [0] * x.ndim, [*x.shape], [1] * x.ndim
        for place in places:
            for axis, size in enumerate(self._sizes):
                step = self._strides[axis]
                starts[place + axis], strides[place + axis] = begin[axis], step
                ends[place + axis] = begin[axis] + (size - 1) * step + 1
        return lax.slice(x, starts, ends, strides)


def _in_groups(images: jax.Array, groups: int) -> jax.Array:
    """Images ``[rows, channels, *sizes]`` as ``[groups, positions, channels]``."""
    rows, channels = images.shape[:2]
    split = images.reshape(rows, groups, channels // groups, -1)
    return split.transpose(1, 0, 3, 2).reshape(groups, -1, channels // groups)


def of_lookup(equation: Any, at: int, x: jax.Array, slope: jax.Array) -> jax.Array:
    """Of rows of a table, ``lax.gather``: those of a row that was read often add up."""
    size = equation.invars[at].aval.shape[0]
    places = x.reshape(-1)
    slope = slope.reshape(len(places), -1).astype(jnp.float32)
    if equation.params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        inside = (places >= 0) & (places < size)
        slope = jnp.where(inside[:, None], slope, 0.0)
    places = jnp.clip(places, 0, size - 1)
    order = jnp.argsort(places)
    places, slope = places[order], slope[order]
    changes = jnp.concatenate([jnp.zeros(1, bool), places[1:] != places[:-1]])
    sums = jax.ops.segment_sum(
        slope, jnp.cumsum(changes), len(places), indices_are_sorted=True
    )
    return jnp.sum(jnp.square(sums))


NORMS: dict[str, Callable[[Any, int, jax.Array, jax.Array], jax.Array]] = {
    "dot_general": of_dot,
    "conv_general_dilated": of_convolution,
    "gather": of_lookup,
}


def computes(equation: Any, at: int) -> bool:
    """Whether the norm of an operand's gradient can be computed here."""
    name, params = equation.primitive.name, equation.params
    kinds = {v.aval.dtype for v in (equation.invars[at], *equation.outvars)}
    if name != "gather":
        kinds.add(equation.invars[1 - at].aval.dtype)
    if name not in NORMS or not kinds <= DTYPES:
        return False
    if name == "dot_general":
        return True
    if name == "conv_general_dilated":
        return at == 1 and params["batch_group_count"] == 1
    numbers, table = params["dimension_numbers"], equation.invars[at].aval.shape
    offsets = (*range(len(equation.outvars[0].aval.shape))[1 - len(table) :],)
    return (
        at == 0
        and equation.invars[1].aval.shape[-1] == 1
        and numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
        and numbers.offset_dims == offsets
        and tuple(params["slice_sizes"]) == (1, *table[1:])
    )
