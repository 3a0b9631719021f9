"""evaluate, predict and single batches side by side: ExBurn, hand-written JAX, Keras.

    python benchmarks/inference.py [--work mlp,cnn] [--peers exburn,scan] [--json F]

Each (workload, peer) runs in a process of its own. All start from NumPy arrays in host
memory, at the batch size of training, and predictions end there. "scan" is one compiled
scan over all batches (data sent at once, losses or outputs fetched at once), "step" one
compiled call a batch. Printed are samples/s of the median of the warm rounds, and then
microseconds of a call on one batch, where the peer has it; "jitted" is the same
computation as a bare compiled function that is called with arrays on the device and
waited for.
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
from process import options, read, write
from throughput import in_own_process
from workloads import TOKENS, WORKLOADS, data, hand_written, keras_like

PEERS = ("exburn", "scan", "step", "keras")
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


def run_exburn(work, x, y, batch, rounds):
    import jax.numpy as jnp

    import exburn

    places = exburn.layers.Lambda(
        lambda t: jnp.broadcast_to(jnp.arange(TOKENS), t.shape)
    )
    model = keras_like(work, exburn, exburn.layers, places)
    model.compile("adam", loss="cross_entropy", metrics=["accuracy"])
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


def run_hand_written(work, x, y, batch, rounds, scanned):
    import jax
    import numpy as np
    import optax

    params, forward = hand_written(work)
    steps = len(x) // batch

    def losses(params, x, y):
        logits = forward(params, x)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss, (logits.argmax(-1) == y).mean()

    if scanned:
        xs = x[: steps * batch].reshape(steps, batch, *x.shape[1:])
        ys = y[: steps * batch].reshape(steps, batch, *y.shape[1:])
        evaluating = jax.jit(
            lambda p, xs, ys: jax.tree.map(
                lambda v: v.mean(),
                jax.lax.scan(lambda c, b: (c, losses(p, *b)), None, (xs, ys))[1],
            )
        )
        predicting = jax.jit(
            lambda p, xs: jax.lax.scan(lambda c, v: (c, forward(p, v)), None, xs)[1]
        )

        def evaluate_all():
            return jax.device_get(evaluating(params, *jax.device_put((xs, ys))))

        def predict_all():
            return np.asarray(predicting(params, jax.device_put(xs)))

        return {
            "evaluate": spans(evaluate_all, rounds),
            "predict": spans(predict_all, rounds),
        }
    evaluating, predicting = jax.jit(losses), jax.jit(forward)
    cuts = [slice(i * batch, (i + 1) * batch) for i in range(steps)]

    def evaluate():
        found = [evaluating(params, x[c], y[c]) for c in cuts]
        return np.mean(jax.device_get(found), 0)

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
        "keras": lambda: run_keras(*args),
        "scan": lambda: run_hand_written(*args, True),
        "step": lambda: run_hand_written(*args, False),
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
    report: dict[str, dict] = read(args.json)
    for work in args.work.split(","):
        results: dict[str, dict] = report.setdefault(work, {})
        for peer in args.peers.split(","):
            new = results.get(peer) or in_own_process(
                __file__, work, peer, args.epochs, args.samples
            )
            if new is None:
                continue
            results[peer] = new
            line = f"{work:12} {peer:8}"
            for name, rate in new["samples_per_s"].items():
                line += f"  {name} {rate:>12,.0f}/s"
                if "exburn" in results and peer != "exburn":
                    ours = results["exburn"]["samples_per_s"][name]
                    line += f" (ExBurn {ours / rate:.2f} ×)"
            calls = ", ".join(f"{n} {us:,.0f}" for n, us in new["call_us"].items())
            print(line + (f"   µs: {calls}" if calls else ""), flush=True)
        if args.json:  # after every workload: the machine may be taken away
            write(args.json, report)


if __name__ == "__main__":
    main()
