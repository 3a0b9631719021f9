"""Query, key and value of one input by one product, whose gradients are joined at once.

Replaces: ``x @ kernel + bias`` for each of the three. The plain form of the parts is
`_parts`, and of their joined gradients and sums `_plainly_joined`, both here.

Runs: one product everywhere, where attention's query, key and value are one input and
its projections are plain (``_project`` of ``exburn/layers/attention/projected.py``).
The kernel of Triton, where `_is_joined` says so: on one NVIDIA GPU, bfloat16 or
float16, with biases, from 4 million elements on, parts of a multiple of 256 columns and
rows of 32. Other large arrays get a barrier, so that XLA joins the gradients once.

Gain: on an H200 the gradients are joined and summed in 42 µs instead of 62. With all
products value and gradients of 65,536 tokens take 1.345 and 1.394 ms for 768 columns,
2.171 and 2.355 for 1,024 (1.04 and 1.08 times, ``benchmarks/kernels.py``). In GPT-2's
step the barrier saved 0.5 ms, the kernel 0.2 more. One product instead of three: not
measured on its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from exburn.kernels.dispatch import options, runs_kernels
from exburn.kernels.memory_bound import memory_bound
from exburn.kernels.padded_matmul import wide_product

__all__ = ["products"]

_GROUP = 8  # numbers that one thread reads at once: 16 bytes
_LANES = 32  # threads of a row
_ROWS = 16  # at a time
_TURNS = 2  # of a program


def products(
    x: jax.Array, kernels: Sequence[jax.Array], biases: Sequence[jax.Array] | None
) -> list[jax.Array]:
    """``x @ kernel + bias`` for each of the kernels.

    Args:
        x: ``[…, in]``
        kernels: ``[in, columns]`` each.
        biases: ``[columns]`` each.

    Returns:
        ``[…, columns]`` each.

    Example:
        >>> kernels = [jnp.ones((3, 4)), jnp.ones((3, 5))]
        >>> [y.shape for y in products(jnp.ones((2, 3)), kernels, None)]
        [(2, 4), (2, 5)]
    """
    sizes = tuple(kernel.shape[1] for kernel in kernels)
    y = wide_product(x, jnp.concatenate(kernels, axis=1))
    bias = None if biases is None else jnp.concatenate(biases)
    if bias is not None and _is_joined(y, sizes):
        return _parts_with_bias(y, bias, sizes)
    if memory_bound(y):
        # The barrier's transpose makes the three gradients one array, once; without
        # it XLA joins them in each of the operations that read them.
        y = lax.optimization_barrier(y)
    return _parts(y if bias is None else y + bias, sizes)


def _parts(y, sizes):
    return jnp.split(y, list(itertools.accumulate(sizes))[:-1], axis=-1)


def _is_joined(y, sizes) -> bool:
    """Whether the kernel joins the gradients of the parts.

    Where several devices may share them, XLA must be able to split the work.
    """
    return (
        y.dtype in (jnp.bfloat16, jnp.float16)
        and memory_bound(y)
        and (y.size // y.shape[-1]) % (_ROWS * _TURNS) == 0
        and not any(size % (_GROUP * _LANES) for size in sizes)
        and runs_kernels()
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _parts_with_bias(y, bias, sizes):
    """The parts of ``y + bias``, whose gradients are joined and summed at once."""
    return _parts(y + bias, sizes)


def _forward(y, bias, sizes):
    return _parts_with_bias(y, bias, sizes), None


def _backward(sizes, kept, gradients):
    del sizes, kept
    return _joined(gradients)


_parts_with_bias.defvjp(_forward, _backward)


@jax.custom_jvp
def _joined(gradients):
    """The gradients side by side, and their sums over all rows."""
    from jax.experimental import pallas as pl

    parts = [g.reshape(-1, g.shape[-1] // _GROUP, _GROUP) for g in gradients]
    groups = sum(part.shape[1] for part in parts)
    count, step = parts[0].shape[0], _ROWS * _TURNS

    def rows(number, groups):
        return pl.BlockSpec((number, groups, _GROUP), lambda i: (i, 0, 0))

    dy, sums = pl.pallas_call(
        _join,
        grid=(count // step,),
        in_specs=[rows(step, part.shape[1]) for part in parts],
        out_specs=[rows(step, groups), rows(1, groups)],
        out_shape=[
            jax.ShapeDtypeStruct((count, groups, _GROUP), parts[0].dtype),
            jax.ShapeDtypeStruct((count // step, groups, _GROUP), jnp.float32),
        ],
        **options(),
    )(*parts)
    dy = dy.reshape(*gradients[0].shape[:-1], -1)
    return dy, sums.sum(0).ravel().astype(dy.dtype)


@_joined.defjvp
def _joined_jvp(primals, tangents):
    # For gradients of gradients, as XLA does it.
    return _joined(*primals), _plainly_joined(tangents[0])


def _plainly_joined(gradients):
    dy = jnp.concatenate(gradients, axis=-1)
    return dy, dy.sum(tuple(range(dy.ndim - 1)))


def _join(*refs) -> None:
    from jax.experimental import pallas as pl

    *parts, joined, sums = refs
    home = 0
    for part in parts:
        for start in range(0, part.shape[1], _LANES):
            here, there = pl.ds(start, _LANES), pl.ds(home + start, _LANES)
            total = jnp.zeros((_ROWS, _LANES, _GROUP), jnp.float32)
            for turn in range(_TURNS):
                rows = pl.ds(turn * _ROWS, _ROWS)
                block = part[rows, here, :]
                joined[rows, there, :] = block
                total = total + block.astype(jnp.float32)
            sums[pl.ds(0, 1), there, :] = jnp.sum(total, axis=0)[None]
        home += part.shape[1]
