"""Gradients of a kernel on a processor: as JAX derives them, and turned at the end.

    taskset -c 1 python benchmarks/products_cpu.py

For each product of rows, terms and columns: billions of operations a second of value
and gradients in training, by processor time, the best of many calls.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.forward_context import Context, forward
from exburn.runtime.kernels import padded_matmul

SHAPES = (
    (512, 128, 64), (1_024, 128, 64), (1_024, 512, 256), (2_048, 768, 192),
    (2_048, 1_536, 384), (4_096, 1_024, 256), (8_192, 128, 64), (8_192, 768, 192),
    (1_024, 1_024, 512),
)  # fmt: skip


def best(call: Any, *args: Any, seconds: float = 1.0) -> float:
    jax.block_until_ready(call(*args))
    times, begun = [], time.process_time()
    while time.process_time() - begun < seconds:
        start = time.process_time()
        jax.block_until_ready(call(*args))
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    rng = np.random.default_rng(0)
    rule = padded_matmul.fits
    for rows, terms, columns in SHAPES:
        sizes = ((rows, terms), (terms, columns), (rows, columns))
        x, kernel, slopes = (rng.standard_normal(s, dtype=np.float32) for s in sizes)

        def loss(x, kernel, slopes=slopes):
            context = Context(training=True)
            context.in_fit = True
            with forward(context):
                return (padded_matmul.wide_product(x, kernel) * slopes).sum()

        speeds = []
        for chosen in (lambda *_: False, rule):
            padded_matmul.fits = chosen
            call = jax.jit(jax.grad(loss, (0, 1)))
            seconds = best(call, jnp.asarray(x), jnp.asarray(kernel))
            speeds.append(4 * rows * terms * columns / seconds / 1e9)
        padded_matmul.fits = rule
        plain, turned = speeds
        print(f"{rows} x {terms} x {columns}: {plain:.0f} {turned:.0f} GFLOP/s", end="")
        print(f"  {turned / plain:.2f} ×", flush=True)


if __name__ == "__main__":
    main()
