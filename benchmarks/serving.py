"""Serving beside predict: throughput at saturation, and the latency of a lone request.

    python benchmarks/serving.py [--rounds 7] [--batch 32] [--json OUT]

One process, all peers in turn in every round, so that a slow moment of the machine hits
them alike; printed are medians, and the median of the rounds' ratios. Threads of
clients are there before the clock starts.

Throughput: ``predict`` on all rows at ``batch_size``, against the same rows as requests
of a full batch (from 64 clients in threads; from one client that submits them all), as
requests of one row to two batches from 64 clients, and as one large request. On a
shared machine the processor time of the process says more than the clock: both are
reported.

Latency: a lone request of one row, against the model's own time for it (the compiled
program of one row, called directly, its result in host memory) plus ``batch_timeout``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np

import exburn
from exburn import layers
from exburn.training.module import SplitModule

sys.path.insert(0, str(Path(__file__).parent))
from workloads import keras_like

TIMEOUT_MS, CLIENTS = 2.0, 64
NAMES = ("predict", "full batches", "one client", "mixed sizes", "one request")


def mlp():
    """A classifier of 784 features: 1.9 million parameters."""
    dense = [layers.Dense(1024, activation="relu") for _ in range(2)]
    return exburn.Sequential([exburn.Input((784,)), *dense, layers.Dense(10)])


def convnet():
    """Keras' MNIST convnet."""
    return keras_like("cnn", exburn, layers, None)


def deep():
    """Convolutions of 128 channels: a batch of 512 is 350 GFLOP. For GPUs."""
    convolutions = [
        layers.Conv2D(128, 3, padding="same", activation="relu") for _ in range(4)
    ]
    stack = [exburn.Input((28, 28, 1)), *convolutions, layers.GlobalAveragePooling2D()]
    return exburn.Sequential([*stack, layers.Dense(10)])


def clock(work) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def throughput(model, x, batch: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Rows per second of each peer, and per second of processor time, by round."""
    rng = np.random.default_rng(0)
    cuts = np.cumsum(rng.integers(1, 2 * batch + 1, size=len(x)))
    mixed = [part for part in np.split(x, cuts[cuts < len(x)]) if len(part)]
    full = np.split(x, range(batch, len(x), batch))
    with exburn.Serving(model, batch, f"{TIMEOUT_MS} ms", max_queue=len(x)) as serving:

        def clients(requests):
            start = threading.Barrier(CLIENTS + 1)

            def work(own):
                start.wait()
                for request in own:
                    serving(request)

            shares = [requests[i::CLIENTS] for i in range(CLIENTS)]
            threads = [threading.Thread(target=work, args=(own,)) for own in shares]
            for thread in threads:
                thread.start()

            def run():
                start.wait()
                for thread in threads:
                    thread.join()

            return run

        def one_client():
            for answer in [serving.submit(request) for request in full]:
                answer.result()

        def predict():
            model.predict(x, batch_size=batch, verbose=0)

        # Each makes what is timed.
        peers = {
            "predict": lambda: predict,
            "full batches": lambda: clients(full),
            "one client": lambda: one_client,
            "mixed sizes": lambda: clients(mixed),
            "one request": lambda: lambda: serving(x),
        }
        for make in peers.values():
            make()()
        found = {name: {"clock": [], "processor": []} for name in NAMES}
        for _ in range(rounds):
            for name, make in peers.items():
                for kind, spent in zip(found[name], clock(make()), strict=True):
                    found[name][kind].append(len(x) / spent)
        traces = sum(serving.trace_counts.values())
        assert traces == len(serving.buckets), "something was compiled after the start"
    return found


def latency(model, x, batch: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a lone request, and of the model alone, in turn."""
    split = SplitModule(model)
    groups, one = split.read(), x[:1]

    @jax.jit
    def program(groups, x):
        key = jax.random.key(0)
        return split.forward(groups, x, training=False, key=key)[0]

    found: dict[str, list[float]] = {"own": [], "lone": []}
    with exburn.Serving(model, batch, f"{TIMEOUT_MS} ms") as serving:
        for i in range(rounds * 30 + 5):
            own, _ = clock(lambda: np.asarray(program(groups, one)))
            lone, _ = clock(lambda: serving(one))
            if i >= 5:
                found["own"].append(own * 1e3)
                found["lone"].append(lone * 1e3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    batch, rounds = options.batch, options.rounds
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "jax": jax.__version__,
        "device": str(jax.devices()[0].device_kind),
        "batch_size": batch,
        "batch_timeout_ms": TIMEOUT_MS,
        "workloads": {},
    }
    workloads = [(mlp, 200 * batch), (convnet, 100 * batch)]
    if jax.default_backend() != "cpu":
        workloads.append((deep, 50 * batch))
    for make, rows in workloads:
        model = make()
        shape = (rows, *model.input_shape[1:])
        x = np.random.default_rng(0).random(shape, np.float32)
        speeds = throughput(model, x, batch, rounds)
        times = latency(model, x, batch, rounds)
        own, lone = (statistics.median(times[name]) for name in ("own", "lone"))
        print(
            f"{make.__name__}: rows/s in batches of {batch}, by the clock and the CPU"
        )
        ratios = {}
        for name, kinds in speeds.items():
            ratios[name] = {
                kind: statistics.median(
                    v / b for v, b in zip(values, speeds["predict"][kind], strict=True)
                )
                for kind, values in kinds.items()
            }
            cells = (
                f"{statistics.median(values):>12,.0f} {ratios[name][kind]:5.2f} ×"
                for kind, values in kinds.items()
            )
            print(f"  {name:<14}", *cells)
        print(
            f"  a lone row: {lone:.2f} ms; the model's own {own:.2f} ms + timeout "
            f"{TIMEOUT_MS:g} ms: {lone - own - TIMEOUT_MS:+.2f} ms beyond"
        )
        report["workloads"][make.__name__] = {
            "parameters": model.count_params(),
            "rows": rows,
            "rows_per_second": speeds,
            "ratio_to_predict": ratios,
            "latency_ms": {n: sorted(round(v, 4) for v in t) for n, t in times.items()},
        }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
