"""Larger models on one GPU, side by side: ExBurn, flax by hand, Keras and PyTorch.

    python benchmarks/large.py [--work gpt2,resnet18] [--peers exburn,scan] [--json F]

ExBurn runs ``fit`` with its defaults, its progress bar (into a terminal that is thrown
away) and a metric. Printed are samples/s of the median warm epoch, ExBurn's ratio to
each peer, and the share of ``--peak-tflops`` that the model's own operations reach
(6 per parameter and token, and attention's; transformers only). With ``--json`` what is
there already is not measured again.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from large_models import LARGE, Large, data, flax_module, keras_like, torch_module
from process import options
from throughput import compared, fit_and_time
from torch_loop import torch_device, train_in_torch

PEERS = ("exburn", "scan", "keras", "torch", "torch-compiled")


def exburn_model(work: Large) -> Any:
    import jax.numpy as jnp

    import exburn

    if work.bfloat16:
        exburn.set_precision("mixed_bfloat16")
    places = exburn.layers.Lambda(
        lambda t: jnp.broadcast_to(jnp.arange(t.shape[1]), t.shape)
    )
    model = keras_like(work, exburn, places)
    model.compile("adam", loss="cross_entropy", metrics=["accuracy"])
    return model


def keras_model(work: Large) -> Any:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    from keras import ops

    if work.bfloat16:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    places = keras.layers.Lambda(
        lambda t: ops.broadcast_to(ops.arange(t.shape[1]), ops.shape(t))
    )
    model = keras_like(work, keras, places)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def run_exburn(work: Large, x, y, epochs) -> list[float]:
    from exburn import callbacks

    model = exburn_model(work)
    return fit_and_time(model, callbacks, x, y, work.batch, epochs, verbose=1)


def run_keras(work: Large, x, y, epochs) -> list[float]:
    model = keras_model(work)
    from keras import callbacks

    return fit_and_time(model, callbacks, x, y, work.batch, epochs, verbose=0)


def run_scan(work: Large, x, y, epochs) -> list[float]:
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    module = flax_module(work)
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    params, rest = nnx.as_pure(params), nnx.as_pure(rest)
    optimizer = optax.adam(1e-3)
    n, batch = len(x), work.batch

    def step(state, x, y):
        params, rest, opt_state, loss_sum, hits = state

        def objective(params):
            model = nnx.merge(graph, params, rest, copy=True)
            logits = model(x).astype(jnp.float32)
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
            others = nnx.as_pure(nnx.split(model, nnx.Param, ...)[2])
            return loss, ((logits.argmax(-1) == y).mean(), others)

        grad = jax.value_and_grad(objective, has_aux=True)
        (loss, (hit, rest)), grads = grad(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, rest, opt_state, loss_sum + loss, hits + hit

    def epoch(state, key, dx, dy):
        order = jax.random.permutation(key, n)[: n // batch * batch]
        body = lambda s, rows: (step(s, dx[rows], dy[rows]), None)  # noqa: E731
        return jax.lax.scan(body, state, order.reshape(-1, batch))[0]

    run = jax.jit(epoch, donate_argnums=(0,))
    dx, dy = jax.device_put(x), jax.device_put(y)
    state = (params, rest, optimizer.init(params), jnp.zeros(()), jnp.zeros(()))
    times = [time.perf_counter()]
    for e in range(epochs):
        state = run(state, jax.random.key(e), dx, dy)
        jax.device_get(state[-2:])
        times.append(time.perf_counter())
    return times


def run_torch(work: Large, x, y, epochs, compiled: bool = False) -> list[float]:
    import torch
    from torch.nn import functional as F

    device = torch_device()
    model: Any = torch_module(work).to(device)
    dx, dy = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device).long()
    if work.name == "resnet18":
        model = model.to(memory_format=torch.channels_last)
        dx = dx.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    elif work.tokens:
        dx = dx.long()

    def measure(logits, y):
        return F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()

    return train_in_torch(
        *(model, measure, dx, dy),
        batch=work.batch,
        epochs=epochs,
        bfloat16=work.bfloat16,
        compiled=compiled,
    )


RUNNERS: dict[str, Any] = {
    "exburn": run_exburn,
    "scan": run_scan,
    "keras": run_keras,
    "torch": run_torch,
    "torch-compiled": lambda *a: run_torch(*a, compiled=True),
}


def child(name: str, peer: str, epochs: int, samples: int | None) -> None:
    work = LARGE[name]
    samples = samples or work.samples
    x, y = data(work, samples)
    times = RUNNERS[peer](work, x, y, epochs)
    spans = [b - a for a, b in zip(times, times[1:], strict=False)]
    out = {
        "samples": samples // work.batch * work.batch,
        "first": spans[0],
        "warm": spans[1:],
        "peak": peak_bytes(peer),
    }
    print("RESULT " + json.dumps(out), flush=True)


def peak_bytes(peer: str) -> int | None:
    if peer.startswith("torch"):
        import torch

        return torch.cuda.max_memory_reserved() if torch.cuda.is_available() else None
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def main() -> None:
    parser = options(__doc__, PEERS, LARGE)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--peak-tflops", type=float, default=790.0)
    args = parser.parse_args()
    if args.child:
        name, peer = args.child
        child(name, peer, args.epochs, args.samples)
        return
    for name, peer, results in compared(__file__, args):
        result = results[peer]
        if "samples_per_s" in result:  # of an earlier run
            continue
        warm = statistics.median(result["warm"])
        result["samples_per_s"] = result["samples"] / warm
        line = _line(LARGE[name], peer, result, results, args.peak_tflops)
        print(line, flush=True)


def _line(work: Large, peer: str, result: dict, results: dict, tflops: float) -> str:
    speed = result["samples_per_s"]
    line = f"{work.name:9} {peer:15} {speed:>12,.1f} samples/s"
    if work.tokens:
        result["mfu"] = speed * work.flops / (tflops * 1e12)
        line += f"  {speed * work.tokens:>11,.0f} tokens/s  {result['mfu']:5.1%} MFU"
    line += f"  first {result['first']:6.2f} s"
    if result["peak"]:
        line += f"  peak {result['peak'] / 2**20:,.0f} MiB"
    ours = results.get("exburn")
    if ours and ours is not result:
        result["ratio"] = ours["samples_per_s"] / speed
        line += f"  ExBurn is {result['ratio']:.2f} ×"
    return line


if __name__ == "__main__":
    main()
