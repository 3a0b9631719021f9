"""How long an asynchronous checkpoint of a large model holds up the training.

    python benchmarks/checkpoint_stall.py [--megabytes 500] [--saves 5]

For each save the time that ``fit`` spends in it, on the clock and, for busy machines,
of its own thread on the processor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax
import numpy as np

import exburn
from exburn import layers
from exburn.callbacks import Callback, StateCheckpoint
from exburn.training.checkpoint.run_points import Checkpointing, flatten


class Timed(StateCheckpoint):
    """Saves at every ``gap``-th chunk, and notes when chunks end."""

    def __init__(self, folder: str, gap: int, saves: int):
        super().__init__(folder, save_freq=False)
        self.gap, self.saves = gap, saves
        self.saved_at: list[int] = []
        self.number = 0

    def on_checkpoint(self, point) -> None:
        self.number += 1
        if self.number % self.gap == 0 and len(self.saved_at) < self.saves:
            assert self.writer is not None
            self.writer.wait()  # the disk's own time is not what is measured
            self.saved_at.append(self.number)
            point.save(self.writer)


class Clock(Callback):
    def __init__(self):
        self.ends: list[float] = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())


def measure(megabytes: int, saves: int, gap: int = 6) -> dict:
    """Trains a model whose whole state has the size, and saves it beside."""
    # Adam holds three arrays of every parameter.
    width = int((megabytes * 1e6 / 4 / 3 / 8) ** 0.5)
    model = exburn.Sequential([exburn.Input((width,))])
    for _ in range(8):
        model.add(layers.Dense(width, activation="relu", use_bias=False))
    model.compile("adam", "mse", seed=0)
    rows = gap * (saves + 1)
    x = np.ones((rows, width), np.float32)
    spent: list[float] = []
    cpu: list[float] = []
    plain = Checkpointing._save

    def timed(self, *arguments):
        # What is in flight has to end in any case: it is not the checkpoint's time.
        jax.block_until_ready(self.trainer.holder.state)
        begun, busy = time.perf_counter(), time.thread_time()
        plain(self, *arguments)
        spent.append(time.perf_counter() - begun)
        cpu.append(time.thread_time() - busy)

    Checkpointing._save = timed  # type: ignore[method-assign]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Timed(folder, gap, saves)
        model.fit(
            x, x, batch_size=1, epochs=1, verbose=0, callbacks=[clock, checkpoint]
        )
    Checkpointing._save = plain  # type: ignore[method-assign]
    state = model._training_session.preparer.initial_state()
    size = sum(a.nbytes for a in flatten(state).values())
    steps = np.diff(clock.ends)
    return {
        "device": str(jax.devices()[0]),
        "megabytes": round(size / 1e6),
        "stall_ms": [round(1e3 * s, 1) for s in spent],
        "cpu_ms": [round(1e3 * s, 1) for s in cpu],
        "median_stall_ms": round(1e3 * statistics.median(spent), 1),
        "median_cpu_ms": round(1e3 * statistics.median(cpu), 1),
        "median_step_ms": round(1e3 * float(np.median(steps)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--saves", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(measure(options.megabytes, options.saves)))


if __name__ == "__main__":
    main()
