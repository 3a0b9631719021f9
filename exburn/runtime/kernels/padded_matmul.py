"""The product of a layer's input with its kernel, in the form that runs fastest.

Replaces: ``jnp.matmul(x, kernel) + bias``, which is `wide_product` without columns to
fill up (`_product`). All axes before the last are one, and on a GPU a wide kernel is
filled up to whole tiles of 128 columns, with a barrier behind the product.

Runs: everywhere, for every dtype, as one matrix product. Filling up and barrier: on a
GPU, from 4,096 columns on (`WIDE`). While a model writes a text there is no filling up
of columns. A single row is filled up to eight (`ROWS`) there, or marked for the kernel
of `vector_product`, where that runs.

Gain: on a CPU one matrix product is 1.3 times as fast in a block of ``Dense`` layers on
sequences. On an H200 filling up 50,257 columns took what rows that do not start on 16
bytes cost from 11.5 to 4.4 ms of GPT-2's step of 42 ms; that loss and accuracy read the
scores with the spare columns saved another 1.5 ms. The barrier: not measured on its
own. For a single row XLA has kernels that sum along columns, some of them in two steps:
with eight rows GPT-2 writes a token on an H100 in 450 instead of 637 µs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from exburn.core import forward_context, quick_trace
from exburn.runtime import portable
from exburn.runtime.kernels import dispatch, float8_product, vector_product
from exburn.runtime.kernels.head_loss import CLASSES, Head
from exburn.runtime.sharding.current import row_parts

WIDE = 4_096  # columns
ROWS = 8  # that the only row of a text being written is filled up to
# GPUs' matrix units need rows of whole 16 bytes; their tiles are 128 columns wide.
ALIGNED = 128


def table_product(x: jax.Array, table: jax.Array) -> jax.Array:
    """``x @ table.T``: the products with all rows of a table.

    Of one vector, XLA's CPU backend copies a transposed table for each product, or each
    call of a loop of them: 14 ms instead of 2.7 for 32,000 rows of 512 (jax 0.12). In
    bfloat16 the transposed one takes 15 ms, and the other 31.

    Args:
        x: ``[…, in]``
        table: ``[out, in]``

    Returns:
        ``[…, out]``

    Example:
        >>> table_product(jnp.ones((1, 3)), jnp.ones((5, 3))).shape
        (1, 5)
    """
    on_cpu = portable.current() is None and jax.default_backend() == "cpu"
    if on_cpu and x.size == x.shape[-1] and table.dtype == jnp.float32:
        return lax.dot_general(x, table, (((x.ndim - 1,), (1,)), ((), ())))
    return wide_product(x, table.T)


def wide_product(
    x: jax.Array, kernel: jax.Array, bias: jax.Array | None = None
) -> jax.Array:
    """``x @ kernel + bias`` of two matrices; on a GPU, many columns are filled up.

    All axes before the last are one: with three axes, JAX's gradient of the kernel is a
    transposed product, for which XLA's CPU backend copies the output's gradient across
    memory (a quarter of the training time of a dense network on a sequence).

    With 50,257 columns (GPT-2's) no row of scores starts on 16 bytes, so that XLA has
    to take kernels of less than half the speed. Whole tiles of columns are computed,
    and cut off again; losses that can, read the scores with them: `padded_logits`.

    Args:
        x: ``[…, in]``
        kernel: ``[in, out]``
        bias: ``[out]``

    Returns:
        ``[…, out]``

    Example:
        >>> wide_product(jnp.ones((2, 3)), jnp.ones((3, 5_000))).shape
        (2, 5000)
    """
    columns, ctx = kernel.shape[1], forward_context.current()
    gpu = portable.current() is None and jax.default_backend() == "gpu"
    writes = ctx is not None and ctx.cache is not None
    # Of a few rows: filling up would copy the kernel for every token.
    wide = columns >= WIDE and gpu and not writes
    spare = -columns % ALIGNED if wide else 0
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 2 else x
    if writes_row(rows) and vector_product.wins("columns", x.shape[-1], x.dtype):
        y = _row_product()(rows, kernel)
    elif writes and gpu and rows.shape[0] == 1:
        y = _of_eight(rows, kernel)
    else:
        filled = jnp.pad(kernel, [(0, 0), (0, spare)]) if spare else kernel
        in_8_bits = float8_product.fits(rows, filled)
        y = (float8_product.product if in_8_bits else _product)(rows, filled)
    if wide:
        # The barrier's transpose is a barrier too. Two products read the gradient of
        # the scores; without it XLA computes all that leads there (the softmax of every
        # score) inside each of them.
        y = lax.optimization_barrier(y)
    if x.ndim > 2:
        y = y.reshape(*x.shape[:-1], columns + spare)
    if bias is not None:
        y = quick_trace.add_bias(y, jnp.pad(bias, (0, spare)) if spare else bias)
    scores = y[..., :columns] if spare else y
    if ctx is not None and columns >= CLASSES:
        ctx.set_head(scores, Head(x, kernel, bias))
    if wide and ctx is not None:
        ctx.set_padded_logits(scores, y)
    return scores


def _of_eight(row: jax.Array, kernel: jax.Array) -> jax.Array:
    return _product(jnp.pad(row, [(0, ROWS - 1), (0, 0)]), kernel)[:1]


@functools.cache
def _row_product() -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The product by the name that the loop of generation finds it by."""
    return vector_product.name_product("columns", _of_eight)


def writes_row(x: jax.Array) -> bool:
    """Whether ``x`` is the only row of a text being written, with kernels for it."""
    ctx = forward_context.current()
    if ctx is None or ctx.cache is None or not jnp.issubdtype(x.dtype, jnp.floating):
        return False
    sizes = x.shape[:-1]
    if not all(isinstance(n, int) for n in sizes) or math.prod(sizes) != 1:
        return False
    return row_parts() == 1 and dispatch.runs_kernels()


def _product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """``x @ kernel``, traced in a quarter of the time."""
    if x.dtype != kernel.dtype or not isinstance(x, Tracer):
        return jnp.matmul(x, kernel)
    return lax.dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())))
