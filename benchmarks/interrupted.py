"""Trainings that are killed and started again: do they end with the same bytes?"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEPS = 60  # 6 epochs of 10 batches


def data():
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((320, 16)).astype(np.float32)
    return x, (x @ rng.standard_normal((16, 4))).argmax(-1).astype(np.int32)


def train(system: str, folder: str, save_freq: str) -> str:
    """One training, taken up where the folder says; returns a digest of its end."""
    every: Any = int(save_freq) if save_freq.isdigit() else save_freq
    keras: Any
    x, y = data()
    if system == "exburn":
        sys.path.insert(0, str(ROOT))
        import exburn as keras

        loss = "cross_entropy"
    else:
        import keras

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    layers, seed = keras.layers, 1
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((16,)),
            layers.Dense(32, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(4),
        ]
    )
    adam = keras.optimizers.Adam(0.01, gradient_accumulation_steps=4, use_ema=True)
    model.compile(adam, loss=loss, metrics=["accuracy"])

    class Tells(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            print("begins", flush=True)

        def on_epoch_end(self, epoch, logs=None):
            time.sleep(0.05)  # more moments to be killed at

    backup = keras.callbacks.BackupAndRestore(folder, every)
    history = model.fit(
        x,
        y,
        batch_size=32,
        epochs=6,
        verbose=0,
        validation_split=0.0,
        callbacks=[backup, keras.callbacks.ReduceLROnPlateau("loss"), Tells()],
    )
    digest = hashlib.blake2b(digest_size=16)
    for weight in model.get_weights():
        digest.update(weight.tobytes())
    digest.update(str(history.history["loss"][-1]).encode())
    return digest.hexdigest()


def launched(system: str, folder: str, save_freq: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, __file__, "child", system, folder, save_freq],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
    )


def run(system: str, save_freq: str, count: int, seed: int = 0) -> dict:
    """One row: ``count`` trainings, each killed once or twice."""
    draw, base = random.Random(seed), tempfile.mkdtemp()
    first = launched(system, os.path.join(base, "whole"), save_freq)
    assert first.stdout is not None
    first.stdout.readline()
    begun = time.perf_counter()
    expected = first.stdout.read().strip()
    took = time.perf_counter() - begun
    if not expected:
        raise RuntimeError(f"{system} did not train")
    row: dict[str, Any] = {"system": system, "kind": "resume", "save_freq": save_freq}
    row |= {"cases": 0, "equal": 0, "kills": 0, "failed": 0}
    for number in range(4 * count):
        if row["cases"] == count:
            break
        folder = os.path.join(base, str(number))
        kills, digest = 0, ""
        for attempt in range(3):
            process = launched(system, folder, save_freq)
            assert process.stdout is not None
            process.stdout.readline()
            if attempt < 2:
                time.sleep(draw.random() * took)
                process.kill()
            digest = process.stdout.read().strip()
            process.wait()
            if digest:
                break
            kills += attempt < 2
        if not kills:  # it was faster: that says nothing
            continue
        row["cases"] += 1
        row["kills"] += kills
        row["failed"] += not digest
        row["equal"] += digest == expected
    shutil.rmtree(base)
    return row


if __name__ == "__main__":
    if sys.argv[1] == "child":
        print(train(*sys.argv[2:5]), flush=True)
    else:
        print(json.dumps(run(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
