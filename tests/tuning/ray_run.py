"""A sweep of three trials on one CPU of Ray, with halving.

    python tests/tuning/ray_run.py FOLDER

Prints what came of it as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import ray

import exburn
from exburn import layers
from exburn.errors import ArgumentError
from exburn.tuning import Halving
from exburn.tuning.ray import Report, sweep

rng = np.random.default_rng(0)
X = rng.standard_normal((128, 6)).astype("float32")
Y = (X.sum(1) > 0).astype("int32")


def train(trial):
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(2)]
    )
    optimizer = exburn.optimizers.Adam(trial["rate"])
    model.compile(optimizer, loss="cross_entropy", seed=3)
    model.fit(
        *(X, Y),
        epochs=4,
        verbose=0,
        validation_data=(X, Y),
        callbacks=[Report()],
    )


def silent(trial):
    """Fits nothing, and so reports nothing."""


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20)
    # The best first: those after it are stopped, as they fall behind.
    over = {"rate": [0.1, 1e-3, 0.0]}
    result = sweep(
        train,
        over=over,
        epochs=4,
        halving=Halving(2),
        folder=folder / "sweep",
        concurrent=1,
    )
    model = result.best_model()
    try:
        sweep(silent, over=over, epochs=4, folder=folder / "silent")
        error = ""
    except ArgumentError as raised:
        error = str(raised)
    found = {
        "rates": [record.trial["rate"] for record in result.records],
        "best": result.best_trial["rate"],
        "score": result.best_score,
        "epochs": [record.epochs for record in result.records],
        "statuses": [record.status for record in result.records],
        "loaded": model.evaluate(X, Y, verbose=0),
        "error": error,
    }
    print("RESULT " + json.dumps(found))
