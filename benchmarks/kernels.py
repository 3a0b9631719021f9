"""ExBurn's own GPU kernels beside XLA's form of the same: values, and time.

    python benchmarks/kernels.py [--dtype bfloat16] [--json out.json]

Each case is a value and its gradients, of 65,536 tokens (arrays that no cache holds;
the scores of classes are those of 16,384, recurrent layers take 64 samples, and softmax
is of float32, whatever the dtype), with the kernels and with
``config.disable_gpu_kernels()``. The error is the greatest difference, relative to the
greatest value. On a machine without a GPU both are XLA's: ``--tokens 64``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import jax
import jax.numpy as jnp
from process import write

import exburn
from exburn.runtime.kernels.attention_softmax import masked_softmax
from exburn.runtime.kernels.biased_gelu import biased_gelu
from exburn.runtime.kernels.dispatch import why_not

CALLS, ROUNDS = 20, 5


def cases(tokens: int, dtype: str) -> dict[str, tuple[Callable[..., Any], tuple]]:
    """Functions of arrays, with arrays for them."""
    keys = iter(jax.random.split(jax.random.key(0), 40))

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape).astype(dtype)

    def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
        def both(slope: Any, *args: Any) -> Any:
            value, pull = jax.vjp(function, *args)
            return value, pull(slope)

        return both

    functions: dict[str, tuple[Callable[..., Any], tuple]] = {}
    for width in (384, 768, 1024, 2048, 4096):
        layer = exburn.layers.LayerNormalization(dtype=f"mixed_{dtype}")
        x = normal(tokens, width)
        layer(x)
        functions[f"layer normalization, {width}"] = with_gradients(layer), (x, x)
        if width not in (768, 1024):
            continue
        wide, bias = normal(tokens, 4 * width), normal(4 * width)
        functions[f"GELU of a sum, {4 * width}"] = (
            with_gradients(biased_gelu),
            (wide, wide, bias),
        )
    for width in (128, 512):
        scores = normal(tokens, width).astype("float32")
        functions[f"softmax of rows, {width}"] = (
            with_gradients(lambda scores: masked_softmax(scores, None, "kernels")),
            (scores, scores),
        )
    recurrent = (
        (exburn.layers.LSTM, 64, 100),
        (exburn.layers.GRU, 128, 120),
        (exburn.layers.SimpleRNN, 64, 100),
    )
    for kind, units, steps in recurrent:
        layer = kind(units, return_sequences=True, dtype=f"mixed_{dtype}")
        x = normal(64, min(steps, max(2, tokens // 64)), units)
        slope = layer(x)
        weights = [weight.value for weight in layer.trainable_variables]
        others = [weight.value for weight in layer.non_trainable_variables]
        functions[f"{kind.__name__}, {units} units, {steps} steps"] = (
            with_gradients(
                lambda weights, x, layer=layer, others=others: layer.stateless_call(
                    weights, others, x
                )[0]
            ),
            (slope, weights, x),
        )
    labels = jax.random.randint(next(keys), (tokens // 4,), 0, 50_304)
    loss = exburn.losses.CrossEntropy()
    functions["cross-entropy, 50,304 classes"] = (
        lambda scores: jax.value_and_grad(lambda s: loss(labels, s))(scores),
        (normal(tokens // 4, 50_304),),
    )
    return functions


def measured(function: Callable[..., Any], args: tuple) -> tuple[Any, float]:
    """A function's result, and the seconds of a call."""
    program = jax.jit(function)
    out = jax.block_until_ready(program(*args))
    spans = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            last = program(*args)
        jax.block_until_ready(last)
        spans.append((time.perf_counter() - start) / CALLS)
    return out, statistics.median(spans)


@jax.jit
def error(values: Any, expected: Any) -> jax.Array:
    def of(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        return jnp.abs(a - b).max() / jnp.maximum(jnp.abs(b).max(), 1e-30)

    return jnp.stack(jax.tree.leaves(jax.tree.map(of, values, expected))).max()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print("kernels:", why_not() or "used", flush=True)
    results = {}
    for name, (function, arrays) in cases(args.tokens, args.dtype).items():
        ours, seconds = measured(function, arrays)
        exburn.config.disable_gpu_kernels()
        plain, xla = measured(lambda *a, f=function: f(*a), arrays)
        exburn.config.enable_gpu_kernels()
        off = float(error(ours, plain))
        results[name] = {"seconds": seconds, "xla": xla, "error": off}
        times = f"{seconds * 1e3:7.3f} ms, XLA {xla * 1e3:7.3f}, {xla / seconds:.2f} ×"
        print(f"{name:32} {times}, error {off:.1e}", flush=True)
        if args.json:
            write(args.json, {args.dtype: results})


if __name__ == "__main__":
    main()
