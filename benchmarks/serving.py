"""Serving beside predict: throughput at saturation, and the latency of a lone request.

    python benchmarks/serving.py [--rounds 7] [--batch 32] [--only mlp] [--json OUT]

One process, all peers in turn in every round, so that a slow moment of the machine hits
them alike; printed are medians, and the median of the rounds' ratios. Threads of
clients are there before the clock starts.

Throughput: ``predict`` on all rows at ``batch_size``, against the same rows as requests
of a full batch (from 64 clients in threads that wait for each answer; from 64 that
stream, eight under way; from one client that submits them all), as requests of one row
to two batches from 64 clients, and as one large request. On a shared machine the
processor time of the process says more than the clock: both are reported. ``threads
alone`` is no serving: the 64 clients hand as many futures to a thread that answers all
that wait at once. Nothing in Python that answers threads one by one can be faster.

Latency: a lone request of one row, against the model's own time for it (the compiled
program of one row, called directly, its result in host memory) plus ``batch_timeout``.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import queue
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

TIMEOUT_MS, CLIENTS, AHEAD = 2.0, 64, 8
NAMES = (
    *("predict", "full batches", "streams", "one client", "mixed sizes"),
    *("one request", "threads alone"),
)


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


def throughput(model, serving, x, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Rows per second of each peer, and per second of processor time, by round.

    With them, how many batches ran in one call of a program: more than one in bursts.
    """
    batch, traces = serving.batch_size, serving.trace_counts
    rng = np.random.default_rng(0)
    cuts = np.cumsum(rng.integers(1, 2 * batch + 1, size=len(x)))
    mixed = [part for part in np.split(x, cuts[cuts < len(x)]) if len(part)]
    full = np.split(x, range(batch, len(x), batch))

    def clients(requests, ask):
        """Clients that are there, and wait for the clock to start."""
        start = threading.Barrier(CLIENTS + 1)

        def work(own):
            start.wait()
            ask(own)

        shares = [requests[i::CLIENTS] for i in range(CLIENTS)]
        threads = [threading.Thread(target=work, args=(own,)) for own in shares]
        for thread in threads:
            thread.start()

        def run():
            start.wait()
            for thread in threads:
                thread.join()

        return run

    def one_by_one(own):
        for request in own:
            serving(request)

    def streamed(own):
        for _ in serving.stream(own, ahead=AHEAD, copy=False):
            pass

    def threads_alone():
        asked: queue.SimpleQueue = queue.SimpleQueue()

        def ask(own):
            for _ in own:
                asked.put(answer := concurrent.futures.Future())
                answer.result()

        def answer():
            while (one := asked.get()) is not None:
                one.set_result(None)

        run, thread = clients(full, ask), threading.Thread(target=answer)
        thread.start()

        def work():
            run()
            asked.put(None)
            thread.join()

        return work

    def one_client():
        answers = [serving.submit(request, copy=False) for request in full]
        for answer in answers:
            answer.result()

    def predict():
        model.predict(x, batch_size=batch, verbose=0)

    # Each makes what is timed.
    peers = {
        "predict": lambda: predict,
        "full batches": lambda: clients(full, one_by_one),
        "streams": lambda: clients(full, streamed),
        "one client": lambda: one_client,
        "mixed sizes": lambda: clients(mixed, one_by_one),
        "one request": lambda: lambda: serving(x),
        "threads alone": threads_alone,
    }
    for make in peers.values():
        make()()
    kinds = ("clock", "processor")
    rates = {name: {k: [] for k in (*kinds, "per call")} for name in NAMES}
    for _ in range(rounds):
        for name, make in peers.items():
            work = make()
            serving.reset_statistics()
            for kind, spent in zip(kinds, clock(work), strict=True):
                rates[name][kind].append(len(x) / spent)
            seen = serving.statistics()
            rates[name]["per call"].append(seen.batches / max(seen.calls, 1))
    assert serving.trace_counts == traces, "something was compiled after the start"
    return rates


def latency(model, serving, x, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a lone request, and of the model alone, in turn."""
    split = SplitModule(model)
    groups, one = split.read(), x[:1]

    @jax.jit
    def program(groups, x):
        key = jax.random.key(0)
        return split.forward(groups, x, training=False, key=key)[0]

    waits: dict[str, list[float]] = {"own": [], "lone": []}
    for i in range(rounds * 30 + 5):
        own, _ = clock(lambda: np.asarray(program(groups, one)))
        lone, _ = clock(lambda: serving(one))
        if i >= 5:
            waits["own"].append(own * 1e3)
            waits["lone"].append(lone * 1e3)
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--only", nargs="+", choices=("mlp", "convnet", "deep"))
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
    workloads = [(mlp, 200), (convnet, 100)]
    if jax.default_backend() != "cpu":  # where a batch takes microseconds
        many = max(100, min(1000, 200_000 // batch))
        workloads = [(mlp, many), (convnet, many), (deep, 50)]
    for make, steps in workloads:
        if options.only and make.__name__ not in options.only:
            continue
        model, rows = make(), steps * batch
        print(f"{make.__name__}, batches of {batch}")
        shape = (rows, *model.input_shape[1:])
        x = np.random.default_rng(0).random(shape, np.float32)
        began, timeout = time.perf_counter(), f"{TIMEOUT_MS} ms"
        with exburn.Serving(model, batch, timeout, max_queue=rows) as serving:
            started = time.perf_counter() - began
            programs = sorted(rows for _, rows in serving.trace_counts)
            print(f"  started in {started:.2f} s, programs of {programs} rows")
            speeds = throughput(model, serving, x, rounds)
            times = latency(model, serving, x, rounds)
        own, lone = (statistics.median(times[name]) for name in ("own", "lone"))
        print("  rows/s by the clock and of processor time, beside predict's; batches")
        ratios = {}
        calls = {name: kinds.pop("per call") for name, kinds in speeds.items()}
        for name, kinds in speeds.items():
            ratios[name] = {
                kind: statistics.median(
                    v / b for v, b in zip(values, speeds["predict"][kind], strict=True)
                )
                for kind, values in kinds.items()
            }
            cells = [
                f"{statistics.median(values):>12,.0f} {ratios[name][kind]:5.2f} ×"
                for kind, values in kinds.items()
            ]
            if name not in ("predict", "threads alone"):
                cells.append(f"{statistics.median(calls[name]):5.1f} a call")
            print(f"  {name:<14}", *cells)
        print(
            f"  a lone row: {lone:.2f} ms; the model's own {own:.2f} ms + timeout "
            f"{TIMEOUT_MS:g} ms: {lone - own - TIMEOUT_MS:+.2f} ms beyond"
        )
        report["workloads"][make.__name__] = {
            "parameters": model.count_params(),
            "rows": rows,
            "start_seconds": started,
            "programs": programs,
            "rows_per_second": speeds,
            "ratio_to_predict": ratios,
            "batches_per_call": calls,
            "latency_ms": {n: sorted(round(v, 4) for v in t) for n, t in times.items()},
        }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
