"""``model.compress`` on digits and on Fashion-MNIST: file, score, speed.

    python benchmarks/compress.py [--work digits,fashion_mnist] [--json out.json]
    python benchmarks/compress.py --folder FOLDER    # of Fashion-MNIST's four files

A convolutional net is trained, and made 4 times smaller within half a point, then as
small as a further target says. The rows that ``compress`` scores on are the last tenth
of the training's, which no model is trained on; accuracies in the table are of the test
rows, which nothing else sees. Speed is that of ``predict_on_batch`` of 256 rows beside
the given model in the same process.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
from int8_files import load

import exburn
from exburn import layers

TARGETS = {"digits": ("4x", "15x"), "fashion_mnist": ("4x", "12x")}


def digits(folder: str | None) -> tuple:
    (x, y), (x_test, y_test) = exburn.datasets.digits.load_data()
    x, x_test = (v.reshape(-1, 8, 8, 1).astype("float32") / 16 for v in (x, x_test))
    return (x, y), (x_test, y_test)


def fashion_mnist(folder: str | None) -> tuple:
    return tuple((x, y.astype("int32")) for x, y in load("fashion_mnist", folder))


def make(work: str, shape: tuple[int, ...]) -> tuple[Any, dict[str, int]]:
    """The net, and how it is trained."""
    if work == "digits":
        first = layers.Conv2D(32, 3, padding="same", activation="relu")
        convolutions = [first, layers.Conv2D(64, 3, strides=2, activation="relu")]
        fit = {"epochs": 30, "batch_size": 32}
    else:
        first = layers.Conv2D(32, 3, strides=2, activation="relu")
        convolutions = [first, layers.Conv2D(32, 3, strides=2, activation="relu")]
        fit = {"epochs": 6, "batch_size": 128}
    head = [layers.Flatten(), layers.Dropout(0.3), layers.Dense(128, "relu")]
    model = exburn.Sequential(
        [exburn.Input(shape), *convolutions, *head, layers.Dense(10)]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    return model, fit


def accuracy(model: Any, rows: tuple) -> float:
    return 100 * model.evaluate(*rows, verbose=0, return_dict=True)["accuracy"]


def measure(work: str, folder: str | None) -> dict[str, Any]:
    (x, y), test = {"digits": digits, "fashion_mnist": fashion_mnist}[work](folder)
    at = len(x) * 9 // 10
    train, held_out = (x[:at], y[:at]), (x[at:], y[at:])
    model, fit = make(work, x.shape[1:])
    model.fit(*train, verbose=0, **fit)
    exact = accuracy(model, test)
    plan = exburn.compression.plan(model)
    print(f"\n{work}: {exact:.2f} % on the test rows\n{plan}", flush=True)
    results: dict[str, Any] = {"accuracy": exact, "bytes": plan.attempts[0].bytes}
    for target in TARGETS[work]:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report says whether it was reached
            small = model.compress(
                *train,
                target,
                validation_data=held_out,
                batch_size=fit["batch_size"],
            )
        report, seconds = small.compression_report, time.perf_counter() - began
        score = accuracy(small, test)
        print(f"{report}\n{score:.2f} % on the test rows, {seconds:.0f} s", flush=True)
        chosen = report.chosen
        results[target] = {
            "way": "none" if chosen is None else chosen.name,
            "reached": report.reached,
            "bytes": None if chosen is None else chosen.bytes,
            "ratio": None if chosen is None else chosen.ratio,
            "speed": None if chosen is None else plan[chosen.name].speed,
            "accuracy": score,
            "points lost on the test rows": exact - score,
            "seconds": seconds,
        }
        jax.clear_caches()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", default=",".join(TARGETS))
    parser.add_argument("--folder")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "python": platform.python_version(),
    }
    for work in asked.work.split(","):
        results[work] = measure(work, asked.folder)
        if asked.json is not None:
            asked.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
