"""Query, key and value of one input by one product, whose gradients are joined once.

Replaces: ``x @ kernel + bias`` for each of the three.

Runs: one product everywhere, where attention's query, key and value are one input and
its projections are plain (``layers/contract/joint_projection.py``), but not where their
kernels may be divided over devices by heads. Large arrays get a barrier, so that XLA
joins the gradients once: in halves from 4.2 million elements on, else from 5.2 million.

Gain: in GPT-2's step (151 million elements in halves) the barrier saved 0.5 ms on an
H200; a vision transformer's (4.7 million in float32) takes 2.65 ms without and 2.72
with it. One product instead of three: not measured on its own. A kernel of Triton that
joined and summed the gradients took 1.346 ms with all products of 65,536 tokens and 768
columns, where XLA takes 1.347, and 2.167 instead of 2.277 for 1,024 (jax 0.11.2): it
was left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from exburn.runtime.kernels.memory_bound import memory_bound
from exburn.runtime.kernels.padded_matmul import wide_product
from exburn.runtime.sharding.current import row_parts

_WIDE = 5 << 20  # elements in float32; with fewer, joining once took longer


def joined(
    x: jax.Array, kernels: Sequence[jax.Array], biases: Sequence[jax.Array] | None
) -> jax.Array:
    """``x @ kernel + bias`` for each of the kernels, side by side.

    Args:
        x: ``[…, in]``
        kernels: ``[in, columns]`` each.
        biases: ``[columns]`` each.

    Returns:
        ``[…, all columns]``
    """
    y = joint_product(x, kernels)
    if _gains_by_barrier(y):
        # The barrier's transpose makes the three gradients one array, once; without
        # it XLA joins them in each of the operations that read them.
        y = lax.optimization_barrier(y)
    return y if biases is None else y + jnp.concatenate(biases)


def split(y: jax.Array, kernels: Sequence[jax.Array]) -> list[jax.Array]:
    """The columns of each kernel."""
    sizes = [kernel.shape[1] for kernel in kernels]
    return jnp.split(y, list(itertools.accumulate(sizes))[:-1], axis=-1)


def joint_product(x: jax.Array, kernels: Sequence[jax.Array]) -> jax.Array:
    """``x @ kernel`` for each of the kernels, their columns side by side."""
    return wide_product(x, jnp.concatenate(kernels, axis=1))


def _gains_by_barrier(y: jax.Array) -> bool:
    return memory_bound(y) and (y.dtype.itemsize == 2 or y.size >= _WIDE * row_parts())
