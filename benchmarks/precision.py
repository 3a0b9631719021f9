"""Training throughput of a GPT in one precision and another, through ``fit``.

    python benchmarks/precision.py [--json out.json]

The model is a GPT of 6 blocks, width 384, on sequences of 256 tokens, batch 32, Adam;
loss and data are the same for all. Every policy's model is compiled once; then epochs
of each follow each other, round after round, in one process. float32 is trained with
JAX's default precision of matrix products (on NVIDIA's GPUs since Ampere that is TF32),
with ``tensorfloat32`` asked for by name, and with all 23 bits (``highest``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import exburn
from exburn import layers
from exburn.core.precision import PrecisionPolicy

POLICIES: dict[str, Any] = {
    "float32": PrecisionPolicy(),
    "float32, tensorfloat32": PrecisionPolicy(matmul="tensorfloat32"),
    "float32, highest": PrecisionPolicy(matmul="highest"),
    "mixed_bfloat16": PrecisionPolicy.of("mixed_bfloat16"),
    "mixed_float16": PrecisionPolicy.of("mixed_float16"),
    "bfloat16": PrecisionPolicy.of("bfloat16"),
}
BATCH = 32
FULL = {"tokens": 256, "vocabulary": 65, "width": 384, "blocks": 6, "heads": 6}
TINY = {"tokens": 32, "vocabulary": 65, "width": 64, "blocks": 2, "heads": 2}


def gpt(tokens: int, vocabulary: int, width: int, blocks: int, heads: int) -> Any:
    x = exburn.Input((tokens,), dtype="int32")
    places = layers.Lambda(lambda t: jnp.broadcast_to(jnp.arange(tokens), t.shape))
    h = layers.Embedding(vocabulary, width)(x)
    h = h + layers.Embedding(tokens, width)(places(x))
    for _ in range(blocks):
        z = layers.LayerNormalization(epsilon=1e-6)(h)
        attention = layers.MultiHeadAttention(heads, width // heads)
        h = h + attention(z, z, use_causal_mask=True)
        z = layers.LayerNormalization(epsilon=1e-6)(h)
        z = layers.Dense(4 * width, activation="gelu")(z)
        h = h + layers.Dense(width)(z)
    h = layers.LayerNormalization(epsilon=1e-6)(h)
    return exburn.Model(x, layers.Dense(vocabulary)(h))


def text(samples: int, tokens: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    draws = rng.integers(0, vocabulary, (samples, tokens + 1)).astype(np.int32)
    return draws[:, :-1].copy(), draws[:, 1:].copy()


def compiled(policy: PrecisionPolicy, size: dict[str, int]) -> Any:
    before = exburn.set_precision(policy)
    model = gpt(**size)
    exburn.set_precision(before)
    model.compile("adam", "cross_entropy", seed=0)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a model for a CPU")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    size = TINY if args.tiny else FULL
    x, y = text(args.samples, size["tokens"], size["vocabulary"])
    models, first, times, losses = {}, {}, {}, {}
    for name, policy in POLICIES.items():
        models[name] = compiled(policy, size)
        start = time.perf_counter()
        losses[name] = models[name].fit(x, y, batch_size=BATCH, verbose=0)
        losses[name] = [losses[name].history["loss"][0]]
        first[name] = time.perf_counter() - start
        print(f"{name}: first epoch {first[name]:.1f} s", flush=True)
    for _ in range(args.rounds):
        for name, model in models.items():
            start = time.perf_counter()
            history = model.fit(x, y, batch_size=BATCH, verbose=0)
            times.setdefault(name, []).append(time.perf_counter() - start)
            losses[name].append(history.history["loss"][0])
    rows = args.samples // BATCH * BATCH
    speeds = {name: rows / statistics.median(t) for name, t in times.items()}
    for name, speed in speeds.items():
        ratios = (f"{speed / speeds[k]:6.2f} ×" for k in list(POLICIES)[:3])
        print(f"{name:24}{speed:>10,.0f} samples/s {' '.join(ratios)}")
    device = jax.devices()[0]
    report = {
        "device": f"{device.platform} {device.device_kind}",
        "versions": {"jax": jax.__version__, "exburn": exburn.__version__},
        "model": size,
        "samples_per_s": speeds,
        "first_epoch_s": first,
        "losses": losses,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
