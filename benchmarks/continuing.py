"""Accuracy of a trained model that is rounded or pruned, and trained on.

A residual net for the digits is trained with Adam at 0.003. Copies of it go on with the
optimizer's state, or with an optimizer that begins anew, at several rates.

    python benchmarks/continuing.py --seeds 3 --json FILE
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from process import write

import exburn
from exburn import layers, optimizers

RATE, EPOCHS = 3e-3, 5
WAYS = {
    "as it is": lambda model: exburn.prune(model, 0.0),
    "int8": lambda model: exburn.quantize_aware(model, "int8"),
    "int4": lambda model: exburn.quantize_aware(model, "int4"),
    "prune 30 %": lambda model: exburn.prune(model, 0.3),
    "prune 80 %": lambda model: exburn.prune(model, 0.8),
}
STARTS = (("goes on", 1.0), ("goes on", 0.1), ("anew", 1.0), ("anew", 0.1))


def digits() -> tuple[Any, ...]:
    (x, y), (x_test, y_test) = exburn.datasets.digits.load_data()
    rows = [np.reshape(v, (-1, 8, 8, 1)).astype(np.float32) / 16 for v in (x, x_test)]
    return rows[0], y, rows[1], y_test


def residual_net() -> Any:
    def unit(h: Any, filters: int, strides: int = 1, *, relu: bool = True) -> Any:
        h = layers.Conv2D(filters, 3, strides, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization(momentum=0.9)(h)
        return layers.ReLU()(h) if relu else h

    image = exburn.Input((8, 8, 1))
    h = unit(image, 16)
    for filters, strides in ((16, 1), (32, 2)):
        side = h if strides == 1 else layers.Conv2D(filters, 1, strides)(h)
        inner = unit(unit(h, filters, strides), filters, relu=False)
        h = layers.ReLU()(layers.Add()([side, inner]))
    h = layers.GlobalAveragePooling2D()(h)
    return exburn.Model(image, layers.Dense(10)(h))


def compile_anew(model: Any, rate: float, seed: int | None = None) -> None:
    adam = optimizers.Adam(rate)
    model.compile(adam, "cross_entropy", metrics=["accuracy"], seed=seed)


def measure(seed: int, epochs: int) -> dict[str, list[float]]:
    x, y, x_test, y_test = digits()
    options: dict[str, Any] = {"batch_size": 64, "verbose": 0}
    model = residual_net()
    compile_anew(model, RATE, seed)
    model.fit(x, y, epochs=epochs, **options)
    exact = model.evaluate(x_test, y_test, verbose=0, return_dict=True)["accuracy"]
    curves = {"the model": [exact]}
    for way, change in WAYS.items():
        for start, share in STARTS:
            small = change(model)
            if start == "anew":
                compile_anew(small, RATE * share)
            small.optimizer.learning_rate = RATE * share
            held_out = x_test, y_test
            history = small.fit(
                x, y, epochs=EPOCHS, validation_data=held_out, **options
            )
            accuracies = history.history["val_accuracy"]
            curves[f"{way}, {start}, {RATE * share:g}"] = accuracies
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--json", type=Path, help="a file for the results")
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        runs.append(measure(seed, options.epochs))
        print(f"seed {seed} is measured", flush=True)
    for name in runs[0]:
        rows = np.array([run[name] for run in runs])  # [seeds, epochs]
        ends = ", ".join(f"{value:.4f}" for value in rows[:, -1])
        means = " ".join(f"{value:.4f}" for value in rows.mean(0))
        print(f"{name:40} mean by epoch {means}   last, by seed: {ends}", flush=True)
    if options.json is not None:
        write(options.json, runs)


if __name__ == "__main__":
    main()
