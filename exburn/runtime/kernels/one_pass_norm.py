"""Layer normalization by two kernels of Triton that read each sample once.

Replaces: `kernels.layer_norm.standardized` with scale and offset; beside the
kernels the plain forms are `_plain_values` and `_plain_gradients`. XLA's form reads a
large sample three times on the way forward, and it and its gradient five times on the
way back. Of small ones XLA takes long to find out what to compute with them.

Runs: where `fits` says so: on NVIDIA GPUs, over the last axis, for features that
threads share evenly (`_lanes`: 192, multiples of 128 and more) and samples that fill
the programs. Arrays of 4 million elements or more: bfloat16 or float16, and no 192
features. Smaller ones: float32, too, but within ``fit`` only, and of 192 features in
halves from 4,096 samples on: with 2,048 a step of text took 1.05 times as long.

Gain: on an H200 17 and 30 µs for 12.6 million elements, forward and back, where XLA's
kernels take 138 in all; value and gradients of 65,536 tokens are 1.00 (4,096 features)
to 1.22 times (1,024) as fast (``benchmarks/kernels.py``), GPT-2's step 0.4 ms shorter.
For small arrays a transformer of 12 blocks started in 8.5 s instead of 10.9 there; with
192 features one of 6 blocks took 2.28 instead of 2.40 ms a step.

Source: Ba et al., *Layer Normalization*, 2016.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.runtime.cached_trace import traced_once
from exburn.runtime.kernels.dispatch import by_rows, device_part, options, runs_kernels
from exburn.runtime.kernels.memory_bound import has_known_sizes, memory_bound

_GROUP = 8  # features that one thread reads at once: 16 bytes
_PARTS = 3  # at most, of a sample, one after the other in the registers of its threads
_MANY_SAMPLES = 4096  # of 192 features in halves
_FEW_LANES = 8  # threads for 192 features, which no more threads share evenly
# Least and most samples of a program, times the threads of each: of four warps on the
# way forward, and on the way back, where it sums the weights' gradients.
_AHEAD, _BACK = (128, 512), (64, 1024)
_PROGRAMS = 512  # are aimed at


def fits(x: Any) -> bool:
    """Whether the kernels take samples along the last axis of ``x``.

    Large arrays in half precision, and small ones in the programs of ``fit``: elsewhere
    somebody may want derivatives forward (``jax.jvp``), which the kernels do not have.

    Example:
        >>> fits(jnp.ones((8, 8)))
        False
    """
    lanes = _lanes(x.shape[-1])
    if lanes is None or not has_known_sizes(x) or (part := device_part(x)) is None:
        return False
    half, ctx = x.dtype in (jnp.bfloat16, jnp.float16), forward_context.current()
    if memory_bound(x):
        suits = half and lanes > _FEW_LANES
    else:
        suits = (half or x.dtype == jnp.float32) and ctx is not None and ctx.in_fit
    samples = part.size // x.shape[-1]
    if half and lanes == _FEW_LANES:
        suits = suits and samples >= _MANY_SAMPLES
    steps = (_samples(kind, samples, lanes) for kind in (_AHEAD, _BACK))
    even = not any(samples % step for step in steps)
    return suits and even and runs_kernels(beside_features=True)


def _samples(bounds: tuple[int, int], samples: int, lanes: int) -> int:
    """Samples of a program, of so many in all: a power of two."""
    least, most = (max(1, bound // lanes) for bound in bounds)
    aim = 1 << max(samples // _PROGRAMS, 1).bit_length() - 1
    return min(max(aim, least), most)


def _lanes(features: int) -> int | None:
    """Threads that share a sample, so that each has at most `_PARTS` groups of it."""
    if features == _FEW_LANES * _PARTS * _GROUP:
        return _FEW_LANES
    for lanes in (16, 32, 64, 128, 256):
        parts, rest = divmod(features, lanes * _GROUP)
        if parts <= _PARTS:
            return lanes if parts and not rest else None
    return None


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalize(
    x: jax.Array, gamma: jax.Array, beta: jax.Array, epsilon: float
) -> jax.Array:
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta`` over the last axis.

    Args:
        x: ``[…, features]``, of which `fits` is true.
        gamma: ``[features]``, float32.
        beta: The same.
        epsilon: Added to the variance.

    Returns:
        The shape and dtype of ``x``.
    """
    return _forward(x, gamma, beta, epsilon)[0]


def _forward(x, gamma, beta, epsilon):
    y, mean, scale = _values(x, gamma, beta, epsilon)
    return y, (x, gamma, mean, scale)


def _backward(epsilon, residuals, dy):
    del epsilon
    return _gradients(*residuals, dy)


normalize.defvjp(_forward, _backward)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _values(x, gamma, beta, epsilon):
    """The output, and of each sample its mean and one over its deviation."""
    run = by_rows(_call_ahead, (0, None, None), (0, 0, 0), True, epsilon=epsilon)
    return run(x, gamma, beta)


@traced_once("epsilon")
def _call_ahead(x, gamma, beta, epsilon):
    from jax.experimental import pallas as pl

    rows = _group(x)
    count, groups, _ = rows.shape
    step = _samples(_AHEAD, count, _lanes_of(groups))
    row, weight, number = _specs(step, groups)
    numbers = jax.ShapeDtypeStruct((count,), jnp.float32)
    y, mean, scale = pl.pallas_call(
        functools.partial(_normalize, epsilon=epsilon),
        **options(warps=4),
        grid=(count // step,),
        in_specs=[row, weight, weight],
        out_specs=[row, number, number],
        out_shape=[jax.ShapeDtypeStruct(rows.shape, x.dtype), numbers, numbers],
    )(rows, _group(gamma), _group(beta))
    return tuple(
        a.reshape(s) for a, s in ((y, x.shape), (mean, _one(x)), (scale, _one(x)))
    )


@jax.custom_jvp
def _gradients(x, gamma, mean, scale, dy):
    """The gradients of ``x``, ``gamma`` and ``beta``."""
    run = by_rows(_call_back, (0, None, 0, 0, 0), (0, None, None), True)
    return run(x, gamma, mean, scale, dy)


@traced_once()
def _call_back(x, gamma, mean, scale, dy):
    from jax.experimental import pallas as pl

    rows = _group(x)
    count, groups, _ = rows.shape
    step = _samples(_BACK, count, _lanes_of(groups))
    programs = count // step
    row, weight, number = _specs(step, groups)
    dx, sums = pl.pallas_call(
        _differentiate,
        **options(warps=max(2, _lanes_of(groups) // 32)),
        grid=(programs,),
        in_specs=[row, row, weight, number, number],
        out_specs=[row, _specs(2, groups)[0]],
        out_shape=[
            jax.ShapeDtypeStruct(rows.shape, x.dtype),
            jax.ShapeDtypeStruct((2 * programs, groups, _GROUP), jnp.float32),
        ],
    )(rows, _group(dy), _group(gamma), mean.ravel(), scale.ravel())
    dgamma, dbeta = sums.reshape(programs, 2, -1).sum(0)
    return dx.reshape(x.shape), dgamma, dbeta


# Derivatives of these two, for gradients of gradients, are XLA's.


@_values.defjvp
def _values_jvp(epsilon, primals, tangents):
    plain = functools.partial(_plain_values, epsilon=epsilon)
    return _values(*primals, epsilon), jax.jvp(plain, primals, tangents)[1]


@_gradients.defjvp
def _gradients_jvp(primals, tangents):
    return _gradients(*primals), jax.jvp(_plain_gradients, primals, tangents)[1]


def _plain_values(x, gamma, beta, epsilon):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(variance + epsilon)
    y = (wide - mean) * scale * gamma + beta
    return y.astype(x.dtype), mean, scale


def _plain_gradients(x, gamma, mean, scale, dy):
    wide, slope = x.astype(jnp.float32), dy.astype(jnp.float32)
    z, pull = (wide - mean) * scale, slope * gamma
    along = (pull * z).mean(-1, keepdims=True)
    dx = (pull - pull.mean(-1, keepdims=True) - z * along) * scale
    axes = tuple(range(x.ndim - 1))
    return dx.astype(x.dtype), (slope * z).sum(axes), slope.sum(axes)


def _one(x):
    """The shape of a number for each sample."""
    return (*x.shape[:-1], 1)


def _group(x):
    """``[samples, groups, 8]`` of samples, ``[groups, 8]`` of a weight."""
    shape = (x.shape[-1] // _GROUP, _GROUP)
    return x.reshape(-1, *shape) if x.ndim > 1 else x.reshape(shape)


def _specs(step: int, groups: int):
    """Blocks of ``step`` samples, of a weight, and of a number for each sample."""
    from jax.experimental import pallas as pl

    return (
        pl.BlockSpec((step, groups, _GROUP), lambda i: (i, 0, 0)),
        pl.BlockSpec((groups, _GROUP), lambda i: (0, 0)),
        pl.BlockSpec((step,), lambda i: (i,)),
    )


def _parts(groups: int) -> list:
    """The parts of a sample, as slices of its groups."""
    from jax.experimental import pallas as pl

    lanes = _lanes_of(groups)
    return [pl.ds(start, lanes) for start in range(0, groups, lanes)]


def _lanes_of(groups: int) -> int:
    lanes = _lanes(groups * _GROUP)
    assert lanes is not None
    return lanes


def _mean(parts: list[jax.Array], count: int) -> jax.Array:
    """The mean of each sample over all its parts, ``[rows, 1, 1]``."""
    sums = [jnp.sum(part, axis=(1, 2)) for part in parts]
    return (functools.reduce(jnp.add, sums) / count)[:, None, None]


def _normalize(x, gamma, beta, y, mean, scale, *, epsilon):
    rows, groups, _ = x.shape
    parts, size = _parts(groups), groups * _GROUP
    values = [x[:, part, :].astype(jnp.float32) for part in parts]
    middle = _mean(values, size)
    values = [value - middle for value in values]
    rate = jax.lax.rsqrt(_mean([value * value for value in values], size) + epsilon)
    for part, value in zip(parts, values, strict=True):
        out = value * rate * gamma[part, :][None] + beta[part, :][None]
        y[:, part, :] = out.astype(y.dtype)
    mean[:] = middle.reshape(rows)
    scale[:] = rate.reshape(rows)


def _differentiate(x, dy, gamma, mean, scale, dx, sums):
    from jax.experimental import pallas as pl

    groups = x.shape[1]
    parts, size = _parts(groups), groups * _GROUP
    lanes = groups // len(parts)
    step = max(1, 64 // lanes)  # samples at a time

    def body(turn, totals):
        some = pl.ds(turn * step, step)
        middle, rate = mean[some][:, None, None], scale[some][:, None, None]
        values = [x[some, part, :].astype(jnp.float32) for part in parts]
        values = [(value - middle) * rate for value in values]
        slopes = [dy[some, part, :].astype(jnp.float32) for part in parts]
        # Read anew: held for all turns, they would leave registers for fewer programs.
        factors = [gamma[part, :][None] for part in parts]
        pulls = [s * factor for s, factor in zip(slopes, factors, strict=True)]
        along = _mean([p * v for p, v in zip(pulls, values, strict=True)], size)
        level = _mean(pulls, size)
        for part, pull, value in zip(parts, pulls, values, strict=True):
            out = (pull - level - value * along) * rate
            dx[some, part, :] = out.astype(dx.dtype)
        return [
            (of_gamma + s * v, of_beta + s)
            for (of_gamma, of_beta), s, v in zip(totals, slopes, values, strict=True)
        ]

    zero = jnp.zeros((step, lanes, _GROUP), jnp.float32)
    zeros = [(zero, zero)] * len(parts)
    totals = jax.lax.fori_loop(0, x.shape[0] // step, body, zeros)
    for part, (of_gamma, of_beta) in zip(parts, totals, strict=True):
        sums[pl.ds(0, 1), part, :] = jnp.sum(of_gamma, axis=0)[None]
        sums[pl.ds(1, 1), part, :] = jnp.sum(of_beta, axis=0)[None]
