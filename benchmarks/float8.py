"""Steps of decoders of 1 and 3 billion weights in bfloat16, and with float8 products.

    python benchmarks/float8.py [--sizes 1B 3B] [--layers 12] [--losses]

The shapes are those of Llama 3.2, with fewer layers if ``--layers`` says so; tokens are
random, and the optimizer is Adam. Of each policy one model is trained by ``fit``, for
some epochs, of which the fastest after the first counts.

``--losses``: decoders of 4 layers and width 1,024 see 2,000 batches of 8,192 bytes of
ExBurn's own pages and code, by each policy and from each of the seeds; the loss is that
of the last 200 batches, and of text from elsewhere in the same files. With ``--small``
width is 64, batches are of 512 bytes, and all products are in 8 bits: for a CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import exburn
from exburn.applications import Decoder
from exburn.runtime.kernels import float8_product

TOKENS = 2_048
SIZES: dict[str, dict[str, Any]] = {
    "1B": {
        "rows": 8,
        "layers": 16,
        "width": 2_048,
        "heads": 32,
        "key_value_heads": 8,
        "head_size": 64,
        "mlp_width": 8_192,
        "vocabulary_size": 128_256,
    },
    "3B": {
        "rows": 4,
        "layers": 28,
        "width": 3_072,
        "heads": 24,
        "key_value_heads": 8,
        "head_size": 128,
        "mlp_width": 8_192,
        "vocabulary_size": 128_256,
    },
    "tiny": {
        "rows": 2,
        "layers": 2,
        "width": 64,
        "heads": 4,
        "key_value_heads": 2,
        "head_size": 16,
        "mlp_width": 128,
        "vocabulary_size": 512,
    },
}
POLICIES = ("mixed_bfloat16", "mixed_float8")
TEXT: dict[str, Any] = {
    "layers": 4,
    "width": 1_024,
    "heads": 8,
    "key_value_heads": 8,
    "head_size": 128,
    "mlp_width": 4_096,
    "vocabulary_size": 256,
}
SMALL = {
    **TEXT,
    "layers": 2,
    "width": 64,
    "heads": 4,
    "key_value_heads": 4,
    "head_size": 16,
    "mlp_width": 192,
}
ROOT = Path(__file__).parents[1]


class Clock(exburn.callbacks.Callback):
    """Keeps the seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self._start)


def learn(policy: str, seed: int, steps: int, small: bool) -> dict[str, float]:
    """The losses of a model that has read text."""
    sizes, rate = (SMALL, 2e-3) if small else (TEXT, 5e-4)
    files = [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("exburn/**/*.py"))]
    text = np.frombuffer(b"".join(f.read_bytes() for f in files), np.uint8)
    rng, (rows, length) = np.random.default_rng(0), (16, 32) if small else (32, 256)
    places = rng.integers(0, len(text) - length - 1, (steps * rows + 1_024, 1))
    draws = text[places + np.arange(length + 1)].astype(np.int32)
    kept, draws = draws[:1_024], draws[1_024:]
    exburn.set_random_seed(seed)
    model = Decoder("llama", dtype=policy, **sizes)
    rates = exburn.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=rate, warmup_steps=100
    )
    model.compile(exburn.optimizers.Adam(rates), seed=seed)
    options = {"batch_size": rows, "shuffle": False, "verbose": 0}
    last = 200 * rows
    for part in (draws[:-last], draws[-last:]):
        history = model.fit(part[:, :-1], part[:, 1:], **options)
    result = {
        "trained": history.history["loss"][0],
        "kept": float(model.evaluate(kept[:, :-1], kept[:, 1:], verbose=0)),
    }
    print(f"losses {policy:16} seed {seed}: {result}", flush=True)
    return result


def measure(
    size: str, policy: str, steps: int, epochs: int, layers: int | None
) -> dict[str, Any]:
    options = dict(SIZES[size])
    options["layers"] = layers or options["layers"]
    rows = options.pop("rows")
    rng = np.random.default_rng(0)
    shape = (rows * steps, TOKENS + 1)
    draws = rng.integers(0, options["vocabulary_size"], shape).astype(np.int32)
    start = time.perf_counter()
    model = Decoder("llama", tie_embeddings=True, dtype=policy, **options)
    model.compile(exburn.optimizers.Adam(1e-5), seed=0)
    clock = Clock()
    history = model.fit(
        draws[:, :-1],
        draws[:, 1:],
        batch_size=rows,
        epochs=epochs,
        callbacks=[clock],
        verbose=0,
    )
    best = min(clock.seconds[1:]) / steps
    result = {
        "weights": model.count_params(),
        "ms_a_step": best * 1e3,
        "tokens_a_second": rows * TOKENS / best,
        "first_epoch_s": clock.seconds[0],
        "loss": history.history["loss"],
    }
    print(f"{size} {policy:16}{best * 1e3:9.1f} ms a step, ", end="")
    print(f"{result['tokens_a_second']:9,.0f} tokens/s, first epoch ", end="")
    print(
        f"{clock.seconds[0]:.0f} s, all {time.perf_counter() - start:.0f} s, ", end=""
    )
    print(f"losses {[round(v, 4) for v in result['loss']]}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=["1B", "3B"])
    parser.add_argument("--layers", type=int)
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--small", action="store_true", help="losses for a CPU")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = jax.devices()[0]
    report: dict[str, Any] = {
        "device": f"{device.platform} {device.device_kind}",
        "versions": {"jax": jax.__version__, "exburn": exburn.__version__},
    }
    for size in args.sizes:
        report[size] = {}
        for policy in args.policies:
            done = measure(size, policy, args.steps, args.epochs, args.layers)
            report[size][policy] = done
            gc.collect()
        if set(POLICIES) <= report[size].keys():
            plain, few = (report[size][p]["ms_a_step"] for p in POLICIES)
            print(f"{size}: {plain / few:.3f} × as fast as mixed_bfloat16", flush=True)
    if args.small:
        float8_product.LEAST = 0, 0
    if args.losses:
        report["losses"] = {
            policy: [learn(policy, s, 2_000, args.small) for s in range(args.seeds)]
            for policy in args.policies
        }
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
