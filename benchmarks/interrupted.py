"""Trainings that are killed and started again: do they end with the same bytes?

Every training is a process of its own, and so is every one that goes on with it. One
line of JSON for each case.

    PYTHONSAFEPATH=1 python benchmarks/interrupted.py ExBurn 3
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def data():
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((320, 16)).astype(np.float32)
    return x, (x @ rng.standard_normal((16, 4))).argmax(-1).astype(np.int32)


def train(system: str, folder: str, save_freq: str) -> tuple[str, str]:
    """One training of 60 steps, taken up where the folder says.

    Returns:
        Digests of the weights at its end, and of everything: optimizer, metrics,
        History, callbacks.
    """
    every: Any = int(save_freq) if save_freq.isdigit() else save_freq
    keras: Any
    if system == "ExBurn":
        sys.path.insert(0, str(ROOT))
        import exburn as keras

        loss = "cross_entropy"
    else:
        import keras

        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = data()
    layers = keras.layers
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy("mixed_float16")  # and so a loss scale
    model = keras.Sequential(
        [
            keras.Input((16,)),
            layers.Dense(32, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(4, dtype="float32"),
        ]
    )
    adam = keras.optimizers.Adam(0.01, gradient_accumulation_steps=4, use_ema=True)
    model.compile(adam, loss=loss, metrics=["accuracy"])

    class Tells(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            print("begins", flush=True)

        def on_epoch_end(self, epoch, logs=None):
            time.sleep(0.05)  # more moments to be killed at

    stopping = keras.callbacks.EarlyStopping("loss", patience=3, min_delta=1e-3)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.1)
    backup = keras.callbacks.BackupAndRestore(folder, every)
    history = model.fit(  # shuffled
        x,
        y,
        batch_size=32,
        epochs=6,
        verbose=0,
        callbacks=[stopping, plateau, backup, Tells()],
    )
    weights = b"".join(weight.tobytes() for weight in model.get_weights())
    state = b"".join(bytes(memoryview(v.numpy())) for v in model.optimizer.variables)
    record = [history.history, history.epoch]
    record += [[callback.wait, callback.best] for callback in (stopping, plateau)]
    everything = weights + state + repr(record).encode()
    return _digest(weights), _digest(everything)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Process:
    """One training in a process of its own, once it has begun."""

    def __init__(self, base: str, system: str, folder: str, save_freq: str):
        environment = os.environ | {
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": os.path.join(base, "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        path = os.path.join(base, folder)
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, system, save_freq, "--in", path],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # "begins"

    def end(self) -> list[str]:
        """Its digests; an empty list if it did not come to its end."""
        words = self.process.communicate()[0].split()
        return words if self.process.returncode == 0 else []


def cases(
    system: str, save_freq: str, count: int, first: int = 0
) -> Iterator[dict[str, Any]]:
    """The outcome of each training, killed once or twice at random moments.

    Yields:
        ``kills``; whether the resumed run ended with the same bytes (``equal``), at
        least of the weights (``weights``), or did not start again (``failed``).
    """
    with tempfile.TemporaryDirectory() as base:
        begun = 0.0
        whole = []
        for name in ("first", "second"):  # the second finds everything compiled
            process = Process(base, system, name, save_freq)
            begun = time.perf_counter()
            whole.append(process.end())
        took = time.perf_counter() - begun
        if not whole[0] or whole[0] != whole[1]:
            raise RuntimeError(f"{system} does not train, or never the same: {whole}")
        for number in range(first, count):
            draw = random.Random(f"{system}{save_freq}{number}")
            case = {"case": number, "of": count, "kills": 0}
            end: list[str] = []
            tries = 0
            while case["kills"] < 1 and tries < 20:  # it may be faster than its killer
                tries += 1
                folder = f"{number}-{tries}"
                for _ in range(draw.choice((1, 2))):
                    process = Process(base, system, folder, save_freq)
                    time.sleep(draw.random() * took)
                    process.process.kill()
                    end = process.end()
                    case["kills"] += not end
                    if end:
                        break
            if not end:
                end = Process(base, system, folder, save_freq).end()
            yield case | {
                "equal": int(end == whole[0]),
                "weights": int(end[:1] == whole[0][:1]),
                "failed": int(not end),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=("ExBurn", "Keras"))
    parser.add_argument("save_freq", help="epoch, or a number of batches")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--in", dest="folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        print(*train(options.system, options.folder, options.save_freq), flush=True)
        return
    count = options.count, options.first
    for case in cases(options.system, options.save_freq, *count):
        print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
