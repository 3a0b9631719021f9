"""Likelihoods of weights that are uncertain, beside the cost of making them.

    python benchmarks/uncertainty.py [--data digits,fashion_mnist] [--seeds 3]

A network is trained once; ``laplace``, ``swag`` and ``dropout`` start from it, and an
ensemble has four more that are trained from other seeds. All are asked for the test
rows. A tenth of the rows is kept from all trainings, for the temperature and for the
prior of Laplace's approximation, "by other rows". Seconds are those of training and of
making the predictor, compilation left out: all is run once before on a few rows.
Printed is one line of JSON a result, as means over seeds. Fashion-MNIST is that of
Debian's package dataset-fashion-mnist, or of ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import exburn
from exburn import layers
from exburn.callbacks import SWAG

MEMBERS = 5
METHODS: dict[str, dict[str, Any]] = {
    "temperature": {"method": "temperature"},
    "laplace, kronecker": {"method": "laplace"},
    "laplace, kronecker, by other rows": {"method": "laplace"},
    "laplace, full": {"method": "laplace", "structure": "full"},
    "laplace, diagonal": {"method": "laplace", "structure": "diagonal"},
    "swag, 20 epochs": {"method": "swag", "epochs": 20, "learning_rate": 3e-4},
    "dropout": {"method": "dropout"},
}


def load(name: str, folder: str | None) -> tuple[Any, Any, int, int]:
    """Rows of the training and of the test, units of hidden layers, and epochs."""
    if name == "digits":
        (x, y), (x_test, y_test) = exburn.datasets.digits.load_data(seed=0)
        scale, units, epochs = 16, 128, 150
    else:
        load_data = exburn.datasets.fashion_mnist.load_data
        (x, y), (x_test, y_test) = load_data(folder)
        scale, units, epochs = 255, 256, 60
    train, test = [
        (part.reshape(len(part), -1).astype(np.float32) / scale, labels.astype(int))
        for part, labels in ((x, y), (x_test, y_test))
    ]
    return train, test, units, epochs


def train(
    rows: tuple, units: int, epochs: int, seed: int, averages: float | None = None
) -> Any:
    """The network; with a rate for the second half of epochs, whose weights' mean."""
    x, y = rows
    model: Any = exburn.Sequential(
        [
            exburn.Input(x.shape[1:]),
            layers.Dense(units, "relu"),
            layers.Dropout(0.1),
            layers.Dense(units // 2, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )
    model.compile("adam", "cross_entropy", seed=seed)
    swag = [] if averages is None else [SWAG(epochs // 2, learning_rate=averages)]
    model.fit(x, y, epochs=epochs, batch_size=128, verbose=0, callbacks=swag)
    return model


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def run(rows: tuple, test: tuple, units: int, epochs: int, seed: int) -> dict[str, Any]:
    """Of each method likelihood, calibration error, accuracy, and seconds."""
    part = len(rows[0]) // 10
    others, rows = [tuple(v[s] for v in rows) for s in (slice(part), slice(part, None))]
    model, once = timed(lambda: train(rows, units, epochs, seed))
    results: dict[str, Any] = {}

    def note(name: str, sure: Any, seconds: float) -> None:
        report = sure.report(*test, batch_size=512)
        error, accuracy = report.calibration.error, report.accuracy
        results[name] = [report.likelihood, error, accuracy, seconds, seconds / once]

    def add(name: str, data: tuple, options: dict[str, Any]) -> None:
        make = lambda: model.uncertainty(*data, batch_size=128, **options)  # noqa: E731
        sure, seconds = timed(make)
        note(name, sure, once + seconds)

    add("one network", (), {"method": "ensemble", "members": [model, model]})
    for name, options in METHODS.items():
        if name.endswith("other rows"):
            options = options | {"validation_data": others}
        method = str(options["method"])
        data = {"dropout": (), "temperature": others}.get(method, rows)
        add(name, data, options)
    if epochs > 1:
        for rate in (1e-3, 3e-3):
            mean, seconds = timed(lambda r=rate: train(rows, units, epochs, seed, r))
            options = {"method": "laplace", "validation_data": others}
            sure, more = timed(lambda m=mean, o=options: m.uncertainty(*rows, **o))
            note(f"laplace of weights averaged at {rate}", sure, seconds + more)
    seeds = [seed * MEMBERS + n + 100 for n in range(MEMBERS - 1)]
    more, seconds = timed(lambda: [train(rows, units, epochs, n) for n in seeds])
    ensemble = model.uncertainty(method="ensemble", members=[model, *more])
    note(f"ensemble of {MEMBERS}", ensemble, once + seconds)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits,fashion_mnist")
    parser.add_argument("--folder", help="where Fashion-MNIST's files are")
    parser.add_argument("--rows", type=int, help="of the training, at most")
    parser.add_argument("--epochs", type=int, help="150 and 60 by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = []
    for name in options.data.split(","):
        rows, test, units, epochs = load(name, options.folder)
        epochs = options.epochs or epochs
        rows = tuple(part[: options.rows] for part in rows)
        few = tuple(part[:256] for part in rows)
        run(few, tuple(part[:64] for part in test), units, 1, 0)  # compiles
        each = [run(rows, test, units, epochs, seed) for seed in range(options.seeds)]
        for method in each[0]:
            means = np.mean([one[method] for one in each], 0)
            keys = ("likelihood", "calibration", "accuracy", "seconds", "cost")
            line = {"data": name, "method": method}
            line |= dict(zip(keys, means.round(4).tolist(), strict=True))
            lines.append(json.dumps(line))
            print(lines[-1], flush=True)
    if options.json:
        options.json.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
