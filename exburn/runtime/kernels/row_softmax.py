"""Softmax of rows by two kernels of Triton: values and gradient.

Replaces: `kernels.softmax.shares`, one kernel of XLA's, which then takes long to
find out what else could go into it. The plain form of the gradient is
`_plain_gradient`, beside it.

Runs: where `fits` says so: on NVIDIA GPUs, float32, rows of a power of two from 16
to 4,096, in whole programs. `attention_softmax.masked_softmax` asks only within
``fit``.

Gain: a transformer of 12 blocks compiles in nine tenths of the time (7.2 and 6.3 s, one
H200). 33 million scores are 1.6 times as fast on an H100, since XLA reads them three
times on the way back, and these twice; rows of 128 and 512 are 1.46 and 1.34 times as
fast on an H200 (``benchmarks/kernels.py``).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.runtime.cached_trace import traced_once
from exburn.runtime.kernels.dispatch import (
    Axes,
    OfHeads,
    by_rows,
    device_part,
    options,
    runs_kernels,
)
from exburn.runtime.kernels.memory_bound import has_known_sizes

_SCORES = 1024  # of a program
_LEAST, _MOST = 16, 4096  # in a row


def fits(scores: Any) -> bool:
    """Whether the kernels take rows of these scores: Triton reads powers of two.

    Example:
        >>> fits(jnp.ones((8, 64)))
        False
    """
    if not has_known_sizes(scores) or (part := _part(scores)) is None:
        return False
    size = scores.shape[-1]
    return (
        scores.dtype == jnp.float32
        and _LEAST <= size <= _MOST
        and size & (size - 1) == 0
        and part.size // size % _rows(size) == 0
        and runs_kernels(beside_features=scores.ndim > 3)
    )


def _part(scores: jax.Array) -> Any:
    """What one device has of scores: ``[batch, heads, …]`` where there are heads."""
    return device_part(scores, heads=1 if scores.ndim > 3 else None)


def _axes(scores: jax.Array) -> Axes:
    return OfHeads() if scores.ndim > 3 else 0


def _rows(size: int) -> int:
    """Rows of a program."""
    return max(1, _SCORES // size)


@jax.custom_vjp
def softmax(scores: jax.Array) -> jax.Array:
    """Softmax over the last axis of scores that ``fits`` takes.

    Example:
        >>> from unittest import mock
        >>> with mock.patch(f"{__name__}.options", lambda: {"interpret": True}):
        ...     float(softmax(jnp.zeros((64, 16)))[0, 0])
        0.0625
    """
    return _values(scores)


def _forward(scores):
    weights = _values(scores)
    return weights, weights


def _backward(weights, slopes):
    return (_gradient(weights, slopes),)


softmax.defvjp(_forward, _backward)


@jax.custom_jvp
def _values(scores):
    return _by_rows(_softmax, scores)


@jax.custom_jvp
def _gradient(weights, slopes):
    return _by_rows(_differentiate, weights, slopes)


def _by_rows(kernel: Any, *arrays: jax.Array) -> jax.Array:
    axes = _axes(arrays[0])
    beside = isinstance(axes, OfHeads)
    run = by_rows(_call, (axes,) * len(arrays), axes, beside, kernel=kernel)
    return run(*arrays)


# Derivatives of these two, for gradients of gradients, are XLA's.


@_values.defjvp
def _values_jvp(primals, tangents):
    weights = _values(*primals)
    return weights, _plain_gradient(weights, *tangents)


@_gradient.defjvp
def _gradient_jvp(primals, tangents):
    return _gradient(*primals), jax.jvp(_plain_gradient, primals, tangents)[1]


def _plain_gradient(weights, slopes):
    return weights * (slopes - (weights * slopes).sum(-1, keepdims=True))


@traced_once("kernel")
def _call(*arrays: jax.Array, kernel: Any) -> jax.Array:
    """What a kernel makes of blocks of rows, in the shape of the arrays."""
    from jax.experimental import pallas as pl

    first = arrays[0]
    size = first.shape[-1]
    count, rows = first.size // size, _rows(size)
    block = pl.BlockSpec((rows, size), lambda i: (i, 0))
    result = pl.pallas_call(
        kernel,
        grid=(count // rows,),
        in_specs=[block] * len(arrays),
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct((count, size), first.dtype),
        **options(),
    )(*(array.reshape(count, size) for array in arrays))
    return result.reshape(first.shape)


def _softmax(scores, weights) -> None:
    shifted = scores[:, :] - jnp.max(scores[:, :], axis=1)[:, None]
    powers = jnp.exp(shifted)
    weights[:, :] = powers / jnp.sum(powers, axis=1)[:, None]


def _differentiate(weights, slopes, gradient) -> None:
    gradient[:, :] = _plain_gradient(weights[:, :], slopes[:, :])
