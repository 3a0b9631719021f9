"""A training on two workers of Ray, one of which is killed in its third epoch.

    python tests/distribution/ray_run.py FOLDER

Prints the history, and how often the training function began, as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

import jax
import numpy as np

import exburn
from exburn import callbacks, layers
from exburn.distribution.ray import fit, run_folder

EPOCHS = 5


def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((96, 6)).astype("float32")
    return x, (x.sum(1) > 0).astype("int32")


def trained(hooks, mesh="data", **options):
    x, y = data()
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(2)]
    )
    model.compile("adam", loss="cross_entropy", seed=3, mesh=mesh)
    return model.fit(
        *(x, y), batch_size=32, epochs=EPOCHS, verbose=0, callbacks=hooks, **options
    )


class Kill(callbacks.Callback):
    """Ends the second worker's process in the third epoch, once."""

    def __init__(self, marker):
        super().__init__()
        self.marker = marker

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2 and jax.process_index() == 1:
            if not self.marker.exists():
                self.marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def train(config):
    (run_folder() / f"began-{os.getpid()}").touch()
    hooks = [
        callbacks.ModelCheckpoint(run_folder() / "checkpoints"),
        Kill(run_folder() / "killed"),
    ]
    history = trained(hooks, resume="auto").history
    return history | {"devices": len(jax.devices()), "note": config["note"]}


def main():
    import ray

    folder = Path(sys.argv[1])
    ray.init(num_cpus=2, object_store_memory=80 * 2**20, include_dashboard=False)
    try:
        result = fit(train, {"note": "seen"}, workers=2, folder=folder / "run")
    finally:
        ray.shutdown()
    began = len(list((folder / "run").glob("began-*")))
    print("RESULT " + json.dumps({"history": result.return_value, "began": began}))


if __name__ == "__main__":
    main()
