"""One compiled training step of each layer, beside the same layer of Keras.

    python benchmarks/layers.py [--only "Conv2D;LSTM"] [--json F]

Both layers run in this process, on the same input: forward, gradient with respect to
weights and input, and an SGD update, in one ``jax.jit``. They run in turn, in many
short rounds; the ratio is the median over the rounds of Keras' time over ExBurn's:
above 1, ExBurn is faster. Layers that compile to the same program (``Dense``,
``PReLU``, ``Softmax``) show how exact it is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np

import exburn
from exburn.training.module import SplitModule

IMAGE, SEQUENCE, ROWS = (16, 32, 32, 16), (16, 48, 32), (256, 128)
VOLUME, TOKENS = (2, 12, 12, 12, 8), (32, 64)
CASES = {
    "Dense": (ROWS, lambda k: k.layers.Dense(256, activation="relu")),
    "EinsumDense": (
        SEQUENCE,
        lambda k: k.layers.EinsumDense("abc,cd->abd", (None, 64)),
    ),
    "Embedding": (TOKENS, lambda k: k.layers.Embedding(1000, 64)),
    "Conv1D": (SEQUENCE, lambda k: k.layers.Conv1D(32, 3, padding="same")),
    "Conv2D": (IMAGE, lambda k: k.layers.Conv2D(32, 3, padding="same")),
    "Conv2D, pointwise": (IMAGE, lambda k: k.layers.Conv2D(32, 1)),
    "Conv2D, 4 groups": (IMAGE, lambda k: k.layers.Conv2D(32, 3, groups=4)),
    "Conv3D": (VOLUME, lambda k: k.layers.Conv3D(8, 3, padding="same")),
    "Conv2DTranspose": (IMAGE, lambda k: k.layers.Conv2DTranspose(16, 3, strides=2)),
    "DepthwiseConv2D": (IMAGE, lambda k: k.layers.DepthwiseConv2D(3, padding="same")),
    "SeparableConv2D": (IMAGE, lambda k: k.layers.SeparableConv2D(32, 3)),
    "MaxPooling2D": (IMAGE, lambda k: k.layers.MaxPooling2D(2)),
    "AveragePooling2D": (IMAGE, lambda k: k.layers.AveragePooling2D(2)),
    "GlobalAveragePooling2D": (IMAGE, lambda k: k.layers.GlobalAveragePooling2D()),
    "BatchNormalization": (IMAGE, lambda k: k.layers.BatchNormalization()),
    "LayerNormalization": (SEQUENCE, lambda k: k.layers.LayerNormalization()),
    "RMSNormalization": (SEQUENCE, lambda k: k.layers.RMSNormalization()),
    "GroupNormalization": (IMAGE, lambda k: k.layers.GroupNormalization(4)),
    "UnitNormalization": (SEQUENCE, lambda k: k.layers.UnitNormalization()),
    "Dropout": (ROWS, lambda k: k.layers.Dropout(0.5)),
    "UpSampling2D": (IMAGE, lambda k: k.layers.UpSampling2D()),
    "ZeroPadding2D": (IMAGE, lambda k: k.layers.ZeroPadding2D()),
    "PReLU": (ROWS, lambda k: k.layers.PReLU()),
    "Softmax": (SEQUENCE, lambda k: k.layers.Softmax()),
    "SimpleRNN": (SEQUENCE, lambda k: k.layers.SimpleRNN(32)),
    "LSTM": (SEQUENCE, lambda k: k.layers.LSTM(32)),
    "GRU": (SEQUENCE, lambda k: k.layers.GRU(32)),
    "Bidirectional": (SEQUENCE, lambda k: k.layers.Bidirectional(k.layers.LSTM(16))),
    "MultiHeadAttention": (SEQUENCE, lambda k: SelfAttention(k, k.layers)),
    "GroupQueryAttention": (
        SEQUENCE,
        lambda k: SelfAttention(k, k.layers, grouped=True),
    ),
}


def SelfAttention(k, layers, grouped=False):
    """A model that attends to its own input."""
    x = k.Input(SEQUENCE[1:])
    if grouped:
        layer = layers.GroupQueryAttention(16, 4, 2)
    else:
        layer = layers.MultiHeadAttention(4, 16)
    return k.Model(x, layer(x, x))


def data(shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    if shape is TOKENS:
        return rng.integers(0, 1000, shape).astype(np.int32)
    return rng.standard_normal(shape, dtype=np.float32)


def objective(out):
    return jnp.mean(jnp.square(out))


def gradients(forward, params, rest, x):
    """Loss, gradients by weights (and input, if it is floating), other variables."""
    wrt = (0, 1) if jnp.issubdtype(x.dtype, jnp.floating) else (0,)

    def loss(params, x):
        out, rest_after = forward(params, rest, x)
        return objective(out), rest_after

    (value, rest), grads = jax.value_and_grad(loss, wrt, has_aux=True)(params, x)
    params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads[0])
    return params, rest, value, grads[1:]


def exburn_step(layer, x):
    layer(x)
    split = SplitModule(layer)
    params, frozen, others = split.read()
    key = jax.random.key(0)

    def forward(params, others, x):
        groups = (params, frozen, others)
        out, others, _ = split.forward(groups, x, training=True, key=key)
        return out, others

    step = jax.jit(lambda p, r, x: gradients(forward, p, r, x))
    return step, params, others


def keras_step(layer, x):
    layer(x)
    params = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]
    takes = "training" in layer._call_signature.parameters

    def forward(params, others, x):
        kwargs = {"training": True} if takes else {}
        return layer.stateless_call(params, others, x, **kwargs)

    step = jax.jit(lambda p, r, x: gradients(forward, p, r, x))
    return step, params, others


def measure(name: str, rounds: int) -> dict[str, float]:
    shape, make = CASES[name]
    x = jnp.asarray(data(shape))
    steps = {
        "exburn": exburn_step(make(exburn), x),
        "keras": keras_step(make(keras), x),
    }
    spans = {peer: timed(step, 1, x) for peer, step in steps.items()}  # compiles
    spans = {peer: timed(step, 1, x) for peer, step in steps.items()}
    calls = max(3, int(0.008 / max(min(spans.values()), 1e-5)))
    times: dict[str, list[float]] = {peer: [] for peer in steps}
    for number in range(rounds):
        for peer in sorted(steps, reverse=number % 2 > 0):  # neither is always first
            times[peer].append(timed(steps[peer], calls, x))
    medians = {peer: statistics.median(t) * 1e6 for peer, t in times.items()}
    ratios = [k / e for k, e in zip(times["keras"], times["exburn"], strict=True)]
    return {**medians, "ratio": statistics.median(ratios)}


def timed(peer, calls: int, x) -> float:
    """Seconds of one call, when ``calls`` are made in a row."""
    step, params, others = peer
    start = time.perf_counter()
    for _ in range(calls):
        result = step(params, others, x)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=";".join(CASES))
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}: µs a step, and Keras / ExBurn")
    report = {}
    for name in args.only.split(";"):
        report[name] = result = measure(name, args.rounds)
        print(
            f"{name:24} {result['exburn']:10.0f} {result['keras']:10.0f} "
            f"{result['ratio']:8.2f}",
            flush=True,
        )
    ratios = [r["ratio"] for r in report.values()]
    print(f"median {statistics.median(ratios):.2f}, least {min(ratios):.2f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
