"""A training on two workers of Ray, which lose one in the third epoch.

    python tests/distribution/ray_run.py killed FOLDER    its process is killed
    python tests/distribution/ray_run.py lost FOLDER      its host is lost, for good

Prints the history, and how many processes began the training function and the first
epoch, as JSON.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np

import exburn
from exburn import callbacks, layers
from exburn.distribution.ray import fit, run_folder

EPOCHS = 5
SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def trained(hooks, mesh="data", **options):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((96, 6)).astype("float32")
    y = (x.sum(1) > 0).astype("int32")
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(2)]
    )
    model.compile("adam", loss="cross_entropy", seed=3, mesh=mesh)
    return model.fit(
        *(x, y), batch_size=32, epochs=EPOCHS, verbose=0, callbacks=hooks, **options
    )


class Loss(callbacks.Callback):
    """Ends the second worker's process in the third epoch, or waits for its end."""

    def __init__(self, marker, kill):
        super().__init__()
        self.marker, self.kill = marker, kill

    def on_epoch_begin(self, epoch, logs=None):
        (self.marker.parent / f"epoch-{epoch}-{os.getpid()}").touch()
        if epoch == 2 and jax.process_index() == 1 and not self.marker.exists():
            self.marker.touch()
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)


def train(config):
    (run_folder() / f"began-{os.getpid()}").touch()
    hooks = [
        callbacks.ModelCheckpoint(run_folder() / "checkpoints"),
        Loss(run_folder() / "marker", config["kill"]),
    ]
    history = trained(hooks, resume="auto").history
    return history | {"devices": len(jax.devices())}


def main():
    import ray
    from ray.cluster_utils import Cluster

    way, folder = sys.argv[1], Path(sys.argv[2]) / "run"
    cluster = Cluster(True, head_node_args={"include_dashboard": False, **SMALL})
    host = cluster.add_node(**SMALL)
    ray.init(address=cluster.address)

    def lose():
        while not (folder / "marker").exists():
            time.sleep(0.2)
        cluster.remove_node(host, allow_graceful=False)

    if way == "lost":
        threading.Thread(target=lose, daemon=True).start()
    workers = 2 if way == "killed" else (1, 2)
    try:
        result = fit(train, {"kill": way == "killed"}, workers=workers, folder=folder)
    finally:
        ray.shutdown()
        cluster.shutdown()
    counts = {
        name: len(list(folder.glob(f"{name}-*"))) for name in ("began", "epoch-0")
    }
    print("RESULT " + json.dumps({"history": result.return_value} | counts))


if __name__ == "__main__":
    main()
