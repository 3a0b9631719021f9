"""A matrix product whose kernel's gradient is quick on a CPU.

Replaces: ``x @ kernel``, the plain form, in `padded_matmul` and pointwise convolutions.

Runs: on a CPU, within ``fit``, in float32, where a kernel has at least twice as many
rows as columns and there are at least as many rows of ``x``. The kernel is transposed
behind a barrier, so that its gradient is ``dy.T @ x`` and then transposed. XLA turns
that into ``x.T @ dy`` where it can, and Eigen, which computes it, is slower the wider
its first matrix is. The derivatives are JAX' own, of every order.

Gain: one core of an AMD EPYC, milliseconds of the gradient, plain and turned: 25,600
rows of 256 to 64 columns 10.8 and 4.8, 32,768 of 128 to 32 4.9 and 2.0, 8,192 of 384 to
96 5.3 and 3.0, 6,400 of 512 to 128 8.5 and 4.3, 2,048 of 1,536 to 384 15.1 and 11.0.
The products themselves take as long, or up to a tenth longer where rows are few.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.core import forward_context
from exburn.runtime import portable
from exburn.runtime.device import chosen_platform


def trains_on_cpu() -> bool:
    """Whether what is traced now is a step of ``fit`` on a CPU."""
    ctx = forward_context.current()
    in_fit = ctx is not None and ctx.in_fit
    return in_fit and portable.current() is None and chosen_platform() == "cpu"


def fits(x: jax.Array, kernel: jax.Array) -> bool:
    """Whether the product of two matrices is one to turn, where `trains_on_cpu`."""
    if x.ndim != 2 or kernel.ndim != 2 or not x.dtype == kernel.dtype == np.float32:
        return False
    rows, (inner, out) = x.shape[0], kernel.shape
    if not all(isinstance(n, int) for n in (rows, inner, out)):
        return False
    return inner >= 2 * out and rows >= inner


def turned_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """``x @ kernel`` by the transposed kernel.

    Args:
        x: ``[rows, in]``
        kernel: ``[in, out]``

    Example:
        >>> turned_product(jnp.ones((4, 3)), jnp.ones((3, 1))).shape
        (4, 1)
    """
    turned = lax.optimization_barrier(jnp.swapaxes(kernel, 0, 1))
    return lax.dot_general(x, turned, (((1,), (1,)), ((), ())))
