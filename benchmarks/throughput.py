"""Training throughput side by side: ExBurn, hand-written JAX, and Keras, in one call.

    python benchmarks/throughput.py [--work mlp,cnn] [--peers exburn,scan] [--json F]

Each (workload, peer) runs in a process of its own; the rounds go through all peers in
turn, so that a slow moment of the machine hits them alike. Printed are samples/s of the
median warm epoch, and ExBurn's ratio to each peer: above 1, ExBurn is faster.

ExBurn runs ``fit`` with its defaults, its progress bar (into a terminal that is thrown
away) and a metric; "exburn-silent" is the same without the bar. Keras runs without its
bar. The hand-written programs compute loss and accuracy too, and read them back at
the end of every epoch. With ``--json`` what is there already is not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from process import options, read, result_of, write
from workloads import TOKENS, WORKLOADS, data, hand_written, keras_like

PEERS = ("exburn", "exburn-silent", "scan", "step", "keras", "keras-spe32")


def run_exburn(work, x, y, batch, epochs, verbose=1):
    import jax.numpy as jnp

    import exburn
    from exburn import layers

    places = layers.Lambda(lambda t: jnp.broadcast_to(jnp.arange(TOKENS), t.shape))
    model = keras_like(work, exburn, layers, places)
    model.compile("adam", loss="cross_entropy", metrics=["accuracy"])
    return fit_and_time(model, exburn.callbacks, x, y, batch, epochs, verbose)


def run_keras(work, x, y, batch, epochs, steps_per_execution=1):
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    from keras import layers, ops

    places = layers.Lambda(lambda t: ops.broadcast_to(ops.arange(TOKENS), ops.shape(t)))
    model = keras_like(work, keras, layers, places)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    return fit_and_time(model, keras.callbacks, x, y, batch, epochs, verbose=0)


def epoch_clock(callbacks, ends=lambda times: False):
    """A callback that notes when epochs end, as ``times``, after that of its start.

    Args:
        callbacks: Keras' or ExBurn's.
        ends: Whether training is to end after these times.
    """

    class Clock(callbacks.Callback):
        light = True

        def __init__(self):
            super().__init__()
            self.times = [time.perf_counter()]

        def on_epoch_end(self, epoch, logs=None):
            self.times.append(time.perf_counter())
            if ends(self.times):
                self.model.stop_training = True

    return Clock()


class Terminal(io.StringIO):
    """Takes what is printed, as a terminal would."""

    def isatty(self):
        return True


def fit_and_time(model, callbacks, x, y, batch, epochs, verbose, **options):
    clock = epoch_clock(callbacks)
    with contextlib.redirect_stdout(Terminal()):
        model.fit(
            x,
            y,
            batch_size=batch,
            epochs=epochs,
            verbose=verbose,
            callbacks=[clock],
            **options,
        )
    return clock.times


def run_epochs(params, forward, x, y, batch, epochs, scanned):
    """Hand-written training: a scan over each epoch, or a call for each step."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    optimizer = optax.adam(1e-3)
    n, steps = len(x), len(x) // batch

    def step(state, x, y):
        params, opt_state, loss_sum, hits = state

        def objective(params):
            logits = forward(params, x)
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
            return loss, logits

        (loss, logits), grads = jax.value_and_grad(objective, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        hits = hits + (logits.argmax(-1) == y).mean()
        return params, opt_state, loss_sum + loss, hits

    state = (params, optimizer.init(params))
    zero = jnp.zeros(())
    times = [time.perf_counter()]
    if scanned:
        dx, dy = jax.device_put(x), jax.device_put(y)

        def epoch(state, key, dx, dy):
            order = jax.random.permutation(key, n)[: steps * batch]
            order = order.reshape(steps, batch)
            body = lambda s, rows: (step(s, dx[rows], dy[rows]), None)  # noqa: E731
            return jax.lax.scan(body, state, order)[0]

        run = jax.jit(epoch, donate_argnums=(0,))
        for e in range(epochs):
            key = jax.random.key(e)
            *state, loss, hits = run((*state, zero + 0, zero + 0), key, dx, dy)
            jax.device_get((loss, hits))
            times.append(time.perf_counter())
        return times
    run = jax.jit(step, donate_argnums=(0,))
    for e in range(epochs):
        order = np.random.default_rng(e).permutation(n)
        full = (*state, zero + 0, zero + 0)
        for i in range(steps):
            rows = order[i * batch : (i + 1) * batch]
            full = run(full, x[rows], y[rows])
        *state, loss, hits = full
        jax.device_get((loss, hits))
        times.append(time.perf_counter())
    return times


def child(work: str, peer: str, epochs: int, samples: int | None) -> None:
    import jax

    cpu = jax.default_backend() == "cpu"
    load = WORKLOADS[work]
    samples = samples or (load.cpu_samples if cpu else load.samples)
    x, y = data(work, samples)
    args = (work, x, y, load.batch, epochs)
    runners = {
        "exburn": lambda: run_exburn(*args),
        "exburn-silent": lambda: run_exburn(*args, verbose=0),
        "scan": lambda: run_epochs(*hand_written(work), *args[1:], True),
        "step": lambda: run_epochs(*hand_written(work), *args[1:], False),
        "keras": lambda: run_keras(*args),
        "keras-spe32": lambda: run_keras(*args, 32),
    }
    times = runners[peer]()
    spans = [b - a for a, b in zip(times, times[1:], strict=False)]
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    if peak is None:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    out = {
        "device": jax.devices()[0].device_kind,
        "samples": samples // load.batch * load.batch,
        "first": spans[0],
        "warm": spans[1:],
        "peak": peak,
    }
    print("RESULT " + json.dumps(out), flush=True)


def in_own_process(
    script: str, work: str, peer: str, epochs: int, samples: int | None
) -> dict | None:
    """What one process measured; None if it failed."""
    more = ["--samples", str(samples)] if samples else []
    return result_of(script, work, peer, "--epochs", str(epochs), *more)


def compared(
    script: str, args: argparse.Namespace
) -> Iterator[tuple[str, str, dict[str, dict]]]:
    """Each workload and peer, and the workload's results so far.

    What the file of ``--json`` holds is not measured again. The rest is written there
    as soon as the caller has looked at it: the machine may be taken away.
    """
    report: dict[str, dict] = read(args.json)
    for work in args.work.split(","):
        results: dict[str, dict] = report.setdefault(work, {})
        for peer in args.peers.split(","):
            if peer not in results:
                new = in_own_process(script, work, peer, args.epochs, args.samples)
                if new is None:
                    continue
                results[peer] = new
            yield work, peer, results
            if args.json:
                write(args.json, report)


def main() -> None:
    parser = options(__doc__, PEERS, WORKLOADS)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--samples", type=int)
    args = parser.parse_args()
    if args.child:
        work, peer = args.child
        child(work, peer, args.epochs, args.samples)
        return
    report: dict[str, dict] = read(args.json)
    for work in args.work.split(","):
        results: dict[str, dict] = report.setdefault(work, {})
        names = set(results)
        for _ in range(args.rounds):
            for peer in args.peers.split(","):
                if peer in names:
                    continue
                new = in_own_process(__file__, work, peer, args.epochs, args.samples)
                if new is None:
                    continue
                entry = results.setdefault(peer, new)
                if entry is not new:
                    entry["warm"] += new["warm"]
        for r in results.values():
            r["samples_per_s"] = r["samples"] / statistics.median(r["warm"])
        ours = results.get("exburn")
        for peer, r in results.items():
            line = f"{work:12} {peer:12} {r['samples_per_s']:>12,.0f} samples/s"
            line += f"   first epoch {r['first']:6.2f} s"
            line += f"   peak {r['peak'] / 2**20:,.0f} MiB"
            if ours and peer != "exburn":
                r["ratio"] = ours["samples_per_s"] / r["samples_per_s"]
                r["peak_ratio"] = ours["peak"] / r["peak"]
                line += f"   ExBurn is {r['ratio']:.2f} ×"
                line += f" with {r['peak_ratio']:.2f} × the memory"
            print(line, flush=True)
        if args.json:
            write(args.json, report)


if __name__ == "__main__":
    main()
