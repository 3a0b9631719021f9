"""What dropout costs: by ExBurn's hash, by ``jax.random.bernoulli``, and in Keras.

    python benchmarks/dropout.py [--rounds 5]

First the mask alone, between a product and a square, forward and back: seconds to
compile, milliseconds to run. Then an MLP with a dropout behind each of its eight layers
beside Keras', with and without the dropout: processor time of the first ``fit``, and
the time of further epochs. Least of the rounds; ratios above 1: ExBurn is faster.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("EXBURN_COMPILATION_CACHE", "off")

import jax
import jax.numpy as jnp
import keras
import numpy as np

import exburn
from exburn.runtime.kernels.dropout_mask import keep_mask

SHAPES = ((128, 9216), (64, 128, 768), (32, 12, 128, 128))
ROWS, BATCH, WIDTH, DEPTH = 8192, 128, 256, 8


def least(rounds: int, work: Callable[[], Any]) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return min(times)


def program_times(f: Any, shape: tuple, rounds: int) -> tuple[float, float]:
    x, key = jnp.ones(shape), jax.random.key(0)
    lowered = f.lower(x, key)
    begin = time.perf_counter()
    program = lowered.compile()
    compiled = time.perf_counter() - begin
    jax.block_until_ready(program(x, key))
    return compiled, least(10 * rounds, lambda: program(x, key)) * 1e3


def masks(shape: tuple, rounds: int) -> None:
    by = {
        "hash": lambda key: keep_mask(key, 0.1, shape)[0],
        "bernoulli": lambda key: jax.random.bernoulli(key, 0.9, shape),
    }
    times = {}
    for name, mask in by.items():

        def loss(x, key, mask=mask):
            return jnp.sum(jnp.where(mask(key), x * 3, 0) ** 2)

        times[name] = program_times(jax.jit(jax.grad(loss)), shape, rounds)
    (a, b), (c, d) = times["hash"], times["bernoulli"]
    print(
        f"{shape!s:20} compile {a:.2f} s, {c / a:.1f} × as fast; "
        f"run {b:.3f} ms, {d / b:.1f} × as fast"
    )


def fits(k: Any, rate: float, rounds: int) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH), np.float32)
    y = rng.integers(0, 10, ROWS)
    layers: list[Any] = [k.Input((WIDTH,))]
    for _ in range(DEPTH):
        layers.append(k.layers.Dense(WIDTH, activation="relu"))
        layers += [k.layers.Dropout(rate)] if rate else []
    model = k.Sequential([*layers, k.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    begin = time.process_time()
    model.fit(x[: 2 * BATCH], y[: 2 * BATCH], batch_size=BATCH, verbose=0)
    first = time.process_time() - begin

    def epoch() -> None:
        model.fit(x, y, batch_size=BATCH, verbose=0)

    epoch()
    return first, least(rounds, epoch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    for shape in SHAPES:
        masks(shape, rounds)
    for library in (exburn, keras):  # what is started once
        fits(library, 0.1, 1)
    for rate in (0, 0.1):
        (a, b), (c, d) = (fits(library, rate, rounds) for library in (exburn, keras))
        print(
            f"8 layers, rate {rate}: first fit {a:.2f} s, {c / a:.1f} × Keras; "
            f"epoch {b * 1e3:.0f} ms, {d / b:.1f} × Keras"
        )


if __name__ == "__main__":
    main()
