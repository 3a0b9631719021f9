"""evaluate, predict and single batches side by side: ExBurn, hand-written JAX, Keras.

    python benchmarks/inference.py [--work mlp,cnn] [--peers exburn,scan] [--json F]

Each (workload, peer) runs in a process of its own. All start from NumPy arrays in host
memory, at the batch size of training, and predictions end there. "scan" is one compiled
scan over all batches (data sent at once, losses or outputs fetched at once), "step" one
compiled call a batch, "exburn-alone" ExBurn with ``join_batches=1``. Printed are
samples/s of the median of the warm rounds, and then microseconds of a call on one
batch, where the peer has it; "jitted" is the same computation as a bare compiled
function that is called with arrays on the device and waited for.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from process import options
from throughput import compared
from workloads import TOKENS, WORKLOADS, data, hand_written, keras_like

PEERS = ("exburn", "exburn-alone", "scan", "step", "keras")
CALLS = 50


def spans(call: Callable[[], Any], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def timed(model: Any, x, y, batch, rounds) -> dict[str, list[float]]:
    """Seconds of everything that ExBurn and Keras have in common."""
    import jax

    one, two = x[:batch], y[:batch]
    return {
        "evaluate": spans(lambda: model.evaluate(x, y, batch, verbose=0), rounds),
        "predict": spans(lambda: model.predict(x, batch, verbose=0), rounds),
        "test_on_batch": spans(lambda: model.test_on_batch(one, two), CALLS),
        "predict_on_batch": spans(lambda: model.predict_on_batch(one), CALLS),
        "train_on_batch": spans(lambda: model.train_on_batch(one, two), CALLS),
        "call": spans(lambda: jax.block_until_ready(model(one)), CALLS),
    }


def run_exburn(work, x, y, batch, rounds, **options):
    import jax.numpy as jnp

    import exburn

    places = exburn.layers.Lambda(
        lambda t: jnp.broadcast_to(jnp.arange(TOKENS), t.shape)
    )
    model = keras_like(work, exburn, exburn.layers, places)
    model.compile("adam", loss="cross_entropy", metrics=["accuracy"], **options)
    return timed(model, x, y, batch, rounds)


def run_keras(work, x, y, batch, rounds):
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    from keras import ops

    places = keras.layers.Lambda(
        lambda t: ops.broadcast_to(ops.arange(TOKENS), ops.shape(t))
    )
    model = keras_like(work, keras, keras.layers, places)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return timed(model, x, y, batch, rounds)


def judging(forward: Callable[..., Any]) -> Callable[..., tuple]:
    """Mean loss and accuracy of a batch, by ``forward(params, x)``."""
    import jax.numpy as jnp
    import optax

    def judged(params, x, y):
        logits = forward(params, x).astype(jnp.float32)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss, (logits.argmax(-1) == y).mean()

    return judged


def by_scan(forward, params, x, y, batch, some) -> tuple[Callable, Callable]:
    """One compiled scan over all batches, and one over those of the first samples.

    Args:
        forward: ``forward(params, x)`` of a batch.
        params: Its parameters, on the device.
        x, y: NumPy arrays of whole batches.
        batch: Samples of one.
        some: How many samples are predicted.
    """
    import jax
    import numpy as np

    judged = judging(forward)

    @jax.jit
    def evaluated(params, xs, ys):
        values = jax.lax.scan(lambda c, b: (c, judged(params, *b)), None, (xs, ys))[1]
        return jax.tree.map(lambda v: v.mean(), values)

    @jax.jit
    def predicted(params, xs):
        return jax.lax.scan(lambda c, v: (c, forward(params, v)), None, xs)[1]

    def batches(array):
        return array.reshape(-1, batch, *array.shape[1:])

    xs, ys, part = batches(x), batches(y), batches(x[:some])
    return (
        lambda: jax.device_get(evaluated(params, *jax.device_put((xs, ys)))),
        lambda: np.asarray(predicted(params, jax.device_put(part))),
    )


def run_scan(work, x, y, batch, rounds):
    params, forward = hand_written(work)
    evaluate, predict = by_scan(forward, params, x, y, batch, len(x))
    return {"evaluate": spans(evaluate, rounds), "predict": spans(predict, rounds)}


def run_steps(work, x, y, batch, rounds):
    import jax
    import numpy as np
    import optax

    params, forward = hand_written(work)
    losses = judging(forward)
    evaluating, predicting = jax.jit(losses), jax.jit(forward)
    cuts = [slice(i, i + batch) for i in range(0, len(x), batch)]

    def evaluate():
        values = [evaluating(params, x[c], y[c]) for c in cuts]
        return np.mean(jax.device_get(values), 0)

    def predict():
        return np.concatenate(jax.device_get([predicting(params, x[c]) for c in cuts]))

    optimizer = optax.adam(1e-3)

    def update(params, state, x, y):
        grads = jax.grad(lambda p: losses(p, x, y)[0])(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    training, state = jax.jit(update), optimizer.init(params)
    one, two = jax.device_put((x[:batch], y[:batch]))
    wait = jax.block_until_ready
    return {
        "evaluate": spans(evaluate, rounds),
        "predict": spans(predict, rounds),
        "test_on_batch": spans(lambda: wait(evaluating(params, one, two)), CALLS),
        "predict_on_batch": spans(lambda: wait(predicting(params, one)), CALLS),
        "train_on_batch": spans(lambda: wait(training(params, state, one, two)), CALLS),
        "call": spans(lambda: wait(predicting(params, one)), CALLS),
    }


def child(work: str, peer: str, rounds: int, samples: int | None) -> None:
    import jax

    cpu = jax.default_backend() == "cpu"
    load = WORKLOADS[work]
    samples = samples or (load.cpu_samples if cpu else load.samples)
    samples = samples // load.batch * load.batch
    x, y = data(work, samples)
    args = (work, x, y, load.batch, rounds)
    runners = {
        "exburn": lambda: run_exburn(*args),
        "exburn-alone": lambda: run_exburn(*args, join_batches=1),
        "keras": lambda: run_keras(*args),
        "scan": lambda: run_scan(*args),
        "step": lambda: run_steps(*args),
    }
    medians = {name: statistics.median(t[1:]) for name, t in runners[peer]().items()}
    out: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "samples": samples,
        "samples_per_s": {n: samples / medians[n] for n in ("evaluate", "predict")},
        "call_us": {
            n: 1e6 * seconds
            for n, seconds in medians.items()
            if n not in ("evaluate", "predict")
        },
    }
    print("RESULT " + json.dumps(out), flush=True)


def main() -> None:
    parser = options(__doc__, PEERS, WORKLOADS)
    parser.add_argument("--epochs", type=int, default=7, help="rounds")
    parser.add_argument("--samples", type=int)
    args = parser.parse_args()
    if args.child:
        work, peer = args.child
        child(work, peer, args.epochs, args.samples)
        return
    for work, peer, results in compared(__file__, args):
        line = rates_line(work, peer, results)
        calls = results[peer]["call_us"].items()
        spent = ", ".join(f"{name} {us:,.0f}" for name, us in calls)
        print(line + (f"   µs: {spent}" if spent else ""), flush=True)


def rates_line(work: str, peer: str, results: dict[str, dict]) -> str:
    """Samples/s of a peer, and how many times as fast ExBurn is."""
    line = f"{work:12} {peer:15}"
    for name, rate in results[peer]["samples_per_s"].items():
        line += f"  {name} {rate:>12,.1f}/s"
        if "exburn" in results and peer != "exburn":
            ours = results["exburn"]["samples_per_s"][name]
            line += f" (ExBurn {ours / rate:.2f} ×)"
    return line


if __name__ == "__main__":
    main()
