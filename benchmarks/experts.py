"""Forms of the products of a mixture of experts, forward and with gradients.

    taskset -c 1 python benchmarks/experts.py
    python benchmarks/experts.py --dtype bfloat16 --large  # on a GPU

A line for each shape as it comes: the least time of each form in milliseconds, of the
processor if that computes, forward / with gradients, and the form that the rule of
``layers/contract/routed_experts.py`` takes, of those without kernels.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp

from exburn.layers.contract.routed_experts import (
    Form,
    choose_form,
    exburn_routed_experts,
)
from exburn.runtime.kept_memory import kept_memory
from exburn.runtime.kernels import expert_product

# tokens, experts, top_k, width, units
SMALL = [
    (1, 8, 2, 256, 512),
    (16, 8, 2, 256, 512),
    (256, 8, 2, 256, 512),
    (1, 64, 8, 256, 128),
    (16, 64, 8, 256, 128),
    (256, 64, 8, 256, 128),
    (1024, 64, 8, 256, 128),
]
LARGE = [
    *((tokens, 8, 2, 4096, 14336) for tokens in (1, 32, 512, 4096)),
    *((tokens, 128, 8, 2048, 768) for tokens in (1, 32, 512, 4096, 16384)),
]


def forms(tokens, experts, top_k, platform):
    """The forms that are tried."""
    block = choose_form(tokens, experts, top_k, platform).block
    near = max(tokens * top_k // experts, 1)
    sizes = {block, 1 << near.bit_length(), max(1 << near.bit_length() >> 1, 1)}
    if tokens * top_k <= 64:
        sizes.add(1)
    yield Form("every")
    if platform != "cpu" or tokens * experts * top_k < 1 << 16:
        yield Form("ragged")
    yield from (Form("blocks", size) for size in sorted(sizes - {0}))
    if platform == "gpu":
        yield Form("kernels", expert_product.ROWS, in_fit=True)


def least(function, arguments, seconds):
    """Milliseconds of the quickest of some calls."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    jax.block_until_ready(function(*arguments))
    times, end = [], clock() + seconds
    while len(times) < 5 or clock() < end:
        start = clock()
        jax.block_until_ready(function(*arguments))
        times.append(clock() - start)
    return 1e3 * min(times)


def measure(shape, dtype, seconds):
    """Times of all forms, ``{name: (forward, gradients)}``."""
    tokens, experts, top_k, width, units = shape
    keys = jax.random.split(jax.random.key(0), 5)
    sizes = (width, units), (width, units), (units, width)
    weights = [
        0.02 * jax.random.normal(key, (experts, *size), dtype)
        for key, size in zip(keys, sizes, strict=False)
    ]
    x = jax.random.normal(keys[3], (1, tokens, width), dtype)
    scores = jax.random.normal(keys[4], (1, tokens, experts))
    shares, chosen = jax.lax.top_k(jax.nn.softmax(scores), top_k)
    found = {}
    for form in forms(tokens, experts, top_k, jax.default_backend()):
        run = functools.partial(
            exburn_routed_experts, activation=jax.nn.silu, form=form
        )

        def loss(x, shares, *weights, run=run):
            return run(x, chosen, shares, *weights).astype(jnp.float32).sum()

        arguments = x, shares, *weights
        try:
            both = [
                least(jax.jit(f), arguments, seconds)
                for f in (loss, jax.grad(loss, argnums=(0, 1, 2, 3, 4)))
            ]
            found[f"{form.name}{form.block or ''}"] = both
        except jax.errors.JaxRuntimeError as error:  # out of memory
            found[f"{form.name}{form.block or ''}"] = str(error)[:40]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    for shape in LARGE if options.large else SMALL:
        with kept_memory():  # as in `fit`
            times = measure(shape, options.dtype, options.seconds)
        form = choose_form(*shape[:3], jax.default_backend())
        texts = [
            f"{name} " + (v if isinstance(v, str) else f"{v[0]:.2f} / {v[1]:.2f}")
            for name, v in times.items()
        ]
        print(shape, *texts, f"→ {form.name}{form.block or ''}", sep="  ", flush=True)


if __name__ == "__main__":
    main()
