"""Gradients of attention on a processor, with its keys as they are and turned.

    taskset -c 1 python benchmarks/products_cpu.py

As in ``fit``: milliseconds of the processor for the gradients, plain and by the rule
that turns the keys; the best of many calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.forward_context import Context, forward
from exburn.layers.attention import scaled_dot_product
from exburn.runtime.kept_memory import kept_memory

# Batch, positions, heads and their size.
ATTENTION = (
    (8, 256, 4, 64), (8, 256, 8, 32), (4, 256, 2, 128), (4, 384, 6, 64),
    (2, 512, 4, 64), (4, 512, 4, 128),
)  # fmt: skip


def best(call: Any, *args: Any, seconds: float = 1.0) -> float:
    """Milliseconds of the processor."""
    jax.block_until_ready(call(*args))
    times, begun = [], time.process_time()
    while time.process_time() - begun < seconds or len(times) < 5:
        start = time.process_time()
        jax.block_until_ready(call(*args))
        times.append(time.process_time() - start)
    return min(times) * 1e3


def compare(function: Callable[..., Any], arrays: list[Any]) -> str:
    """The times of a function's gradients without and with the rule."""

    def gradients() -> Any:
        def loss(*args: Any) -> Any:
            context = Context(training=True)
            context.in_fit = True
            with forward(context):
                return jnp.square(function(*args)).sum()

        return jax.jit(jax.grad(loss, tuple(range(len(arrays)))))

    own = scaled_dot_product.turns_keys
    scaled_dot_product.turns_keys = lambda *_: False
    plain = best(gradients(), *arrays)
    scaled_dot_product.turns_keys = own
    turned = best(gradients(), *arrays)
    return f"{plain:8.2f} {turned:8.2f} ms  {plain / turned:.2f} ×"


def main() -> None:
    rng = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape, dtype=np.float32))

    def attend(query: Any, key: Any, value: Any) -> Any:
        return scaled_dot_product.attend(query, key, value, scale=0.1)

    for shape in ATTENTION:
        arrays = [array(*shape) for _ in range(3)]
        times = compare(attend, arrays)
        print(f"attention {' x '.join(map(str, shape))}: {times}", flush=True)


if __name__ == "__main__":
    with kept_memory():
        main()
