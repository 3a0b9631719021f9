"""The tables of the system that ExBurn continues, with ours beside them.

    python benchmarks/reference.py [--steps N] [--only epochs|softmax|machine] [--json]

*Times per epoch* (ExBurn's guide "Training optimization"): MLPs of 1 K, 10 K and 100 K
parameters, batch 32, gradients by central (``numerical``) and one-sided
(``numerical_batch``) differences. Its figures are rounded, of unnamed hardware, and for
an unstated number of rows; we take the 500 rows and the small MLP of its benchmark
script (`bench/training_bench.exs`), Adam at 0.001 and cross-entropy, so an epoch is 16
updates. Beside them: an epoch of ``fit``, which uses autodiff. The error is the largest
over the parameters of ‖differences − autodiff‖ / ‖autodiff‖ for one batch, with our
step (by dtype) and with the reference's, 1e-5.

*Softmax* (Nx' README): ``exp(t) / sum(exp(t))`` of a million random floats, kept on the
device, and copied back, in float32 and float64.

*Machine*: ``exburn.benchmark`` with matrices of 100 (the reference's size) and 4,096.

Compiling, and a first run, are not counted. The processor's time is that of all
threads of this process: on a busy machine it says more than the clock. With
``--steps N`` only N updates are timed of the largest model, and scaled to the epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import exburn
from exburn import layers
from exburn.diagnostics.differences import numerical, prepare_batch

ROWS, BATCH = 500, 32
#: Parameters → widths of the layers, and ExBurn's seconds by method.
MODELS: dict[str, tuple[tuple[int, ...], dict[str, float]]] = {
    "1K": ((10, 32, 16, 3), {"numerical": 2.0}),
    "10K": ((20, 88, 80, 10), {"numerical": 15.0, "numerical_batch": 8.0}),
    "100K": (
        (50, 256, 256, 64, 10),
        {"numerical": 180.0, "numerical_batch": 90.0},
    ),
}
#: Nx' README: median milliseconds.
SOFTMAX = {
    "f32 keep": 0.0638,
    "f64 keep": 0.22,
    "f32": 2.50,
    "f64": 5.23,
    "f32 cpu": 2.26,
    "f64 cpu": 5.88,
}


def build(widths: tuple[int, ...]) -> Any:
    first, *hidden, last = widths
    stack = [layers.Dense(width, activation="relu") for width in hidden]
    model = exburn.Sequential([exburn.Input((first,)), *stack, layers.Dense(last)])
    model.compile("adam", "cross_entropy", learning_rate=0.001, seed=0)
    return model


def data(widths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(42)
    x = rng.normal(size=(ROWS, widths[0])).astype(np.float32)
    return x, rng.integers(0, widths[-1], ROWS)


def by_differences(widths: tuple[int, ...], method: str, steps: int | None) -> dict:
    """Seconds of an epoch whose gradients are differences."""
    model, (x, y) = build(widths), data(widths)
    batches = [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, ROWS, BATCH)]
    timed = batches if steps is None else batches[:steps]
    for batch in {len(b[0]): b for b in timed}.values():  # each size compiles once
        exburn.train_step(model, batch, method=method)
    start, used = time.perf_counter(), time.process_time()
    for batch in timed:
        exburn.train_step(model, batch, method=method)
    scale = len(batches) / len(timed)
    return {
        "seconds": (time.perf_counter() - start) * scale,
        "processor seconds": (time.process_time() - used) * scale,
        "steps timed": len(timed),
    }


def by_fit(widths: tuple[int, ...]) -> float:
    model, (x, y) = build(widths), data(widths)
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    history = model.fit(x, y, batch_size=BATCH, epochs=10, verbose=0, profile=True)
    return statistics.median(e["total_ms"] for e in history.profile or []) / 1e3


def errors(
    widths: tuple[int, ...], method: str, epsilons: tuple[float | None, ...]
) -> list[float]:
    """Largest relative error of a parameter's gradient, on 500 elements of each."""
    model, (x, y) = build(widths), data(widths)
    trainer, tree = prepare_batch(model, (x[:BATCH], y[:BATCH]), "", method)
    programs, state = trainer.preparer.programs, trainer.preparer.initial_state()
    exact, rng = exburn.compute_gradients(model, tree[:2]), np.random.default_rng(0)
    chosen = {
        name: np.sort(rng.permutation(g.size)[:500]).astype(np.int32)
        for name, g in exact.items()
    }
    worst = []
    for step in epsilons:
        slopes = numerical(
            programs, state, tree, method, step, "float32", chosen=chosen
        )
        shares = []
        for path, rows in chosen.items():
            expected = np.ravel(exact[path])[rows]
            wrong = np.asarray(slopes[path]) - expected
            shares.append(float(np.linalg.norm(wrong) / np.linalg.norm(expected)))
        worst.append(max(shares))
    return worst


def epochs(steps: int | None) -> list[dict[str, Any]]:
    rows = []
    for name, (widths, theirs) in MODELS.items():
        fit, parameters = by_fit(widths), build(widths).count_params()
        for method in ("numerical", "numerical_batch"):
            some = steps if name == "100K" else None
            ours = by_differences(widths, method, some)
            ours_error, their_error = errors(widths, method, (None, 1e-5))
            row = {
                "model": name,
                "parameters": parameters,
                "method": method,
                "reference seconds": theirs.get(method),
                **ours,
                "fit seconds": fit,
                "error": ours_error,
                "error at 1e-5": their_error,
            }
            rows.append(row)
            print(_epoch_line(row), flush=True)
    return rows


def _epoch_line(row: dict[str, Any]) -> str:
    reference = row["reference seconds"]
    times = "–" if reference is None else f"{reference / row['seconds']:,.1f} ×"
    return (
        f"| {row['model']} ({row['parameters']:,}) | {row['method']} "
        f"| {'–' if reference is None else f'~{reference:g} s'} "
        f"| {row['seconds']:.3g} s | {row['processor seconds']:.3g} s | {times} "
        f"| {row['error']:.1e} "
        f"| {row['error at 1e-5']:.1e} | {1e3 * row['fit seconds']:.3g} ms |"
    )


def softmax(runs: int = 200) -> list[dict[str, Any]]:
    rng, rows = np.random.default_rng(0), []
    on_gpu = exburn.default_device() == "gpu"

    @jax.jit
    def run(t):
        return jnp.exp(t) / jnp.sum(jnp.exp(t))

    with jax.enable_x64(True):
        for bits in ("f32", "f64"):
            host = rng.random(1_000_000).astype(f"float{bits[1:]}")
            there = jax.device_put(host)
            kinds: dict[str, Callable[[], Any]] = {
                "keep": lambda t=there: run(t).block_until_ready(),
                "copied": lambda h=host: np.asarray(run(jax.device_put(h))),
            }
            for kind, call in kinds.items():
                key = f"{bits} keep" if kind == "keep" else bits
                reference = SOFTMAX.get(key if on_gpu else f"{bits} cpu")
                row = {"what": f"{bits} {kind}", "reference ms": reference}
                rows.append(row | {"ms": _median_ms(call, runs)})
                print(_softmax_line(rows[-1]), flush=True)
    return rows


def _median_ms(call: Callable[[], Any], runs: int) -> float:
    times = []
    for i in range(runs + 5):
        start = time.perf_counter()
        call()
        if i >= 5:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def _softmax_line(row: dict[str, Any]) -> str:
    return f"| {row['what']} | {row['reference ms']:g} ms | {row['ms']:.3g} ms |"


def machine() -> list[dict[str, Any]]:
    rows = []
    for size in (100, 4096):
        report = exburn.benchmark(size=size, iterations=10, devices=jax.devices()[:1])
        print(f"\n{report}", flush=True)
        rows += [{"size": size, **row} for row in report.rows]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, help="updates timed of the 100 K model")
    parser.add_argument("--only", choices=("epochs", "softmax", "machine"))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    results: dict[str, Any] = {
        "device": exburn.device_name(),
        "versions": {
            "exburn": exburn.version(),
            "jax": jax.__version__,
            "python": platform.python_version(),
        },
        "cores": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
    }
    print(exburn.summary())
    if chosen.only in (None, "epochs"):
        print(
            "\n| model (parameters) | gradients | ExBurn (Elixir), an epoch | here "
            "| processor time | ratio | error | error at ε = 1e-5 "
            "| `fit` (autodiff) |\n"
            "|---|---|---|---|---|---|---|---|---|"
        )
        results["epochs"] = epochs(chosen.steps)
    if chosen.only in (None, "softmax"):
        print("\n| softmax of a million | Nx (EXLA) | here |\n|---|---|---|")
        results["softmax"] = softmax()
    if chosen.only in (None, "machine"):
        results["machine"] = machine()
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
