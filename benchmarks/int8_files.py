"""The cost of int8 in a LiteRT file: accuracy on a test set, bytes, and time.

    python benchmarks/int8_files.py [--data digits] [--epochs 3] [--rows 10000]

A convnet is trained on Fashion-MNIST (or scikit-learn's digits, or the images ``x`` and
classes ``y`` of an ``.npz``, of which two fifths are the test set), and written as it
is, with weights in int8, and with int8 throughout, calibrated on 256 training images.
The files predict the test set; the time is that of an image, one at a time, by LiteRT's
interpreter with one thread. Needs ``pip install 'exburn[litert]'``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import exburn
from exburn import layers


def load(name: str, folder: str | None):
    """Images ``[rows, height, width, 1]`` from 0 to 1, and classes: train and test."""
    if name == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        x = x.reshape(-1, 8, 8, 1) / 16
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x[order].astype(np.float32), y[order]
        return (x[:1200], y[:1200]), (x[1200:], y[1200:])
    if name.endswith(".npz"):
        with np.load(name) as file:
            x, y = file["x"].astype(np.float32) / 255, file["y"]
        x = x if x.ndim == 4 else x[..., None]
        order = np.random.default_rng(0).permutation(len(x))
        x, y = x[order], y[order]
        end = 3 * len(x) // 5
        return (x[:end], y[:end]), (x[end:], y[end:])
    splits = exburn.datasets.fashion_mnist.load_data(folder)
    return [(x[..., None].astype(np.float32) / 255, y) for x, y in splits]


def train(x, y, epochs: int):
    model = exburn.Sequential(
        [
            exburn.Input(x.shape[1:], name="image"),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax", name="kind"),
        ]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=128, epochs=epochs, verbose=2)
    return model


def milliseconds(path: Path, x) -> float:
    """The median time of one image."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    run, times = interpreter.get_signature_runner("serving_default"), []
    for row in x[:300]:
        start = time.perf_counter()
        run(image=row[None])
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fashion_mnist")
    parser.add_argument("--folder", help="where Fashion-MNIST's files are")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10000)
    options = parser.parse_args()
    exburn.set_random_seed(0)
    (x, y), (x_test, y_test) = load(options.data, options.folder)
    x_test, y_test = x_test[: options.rows], y_test[: options.rows]
    model = train(x, y, options.epochs)
    model_right = model.predict(x_test, verbose=0).argmax(-1) == y_test
    print(f"model: {100 * model_right.mean():.2f} % of {len(x_test)} images")
    with tempfile.TemporaryDirectory() as folder:
        for quantize in (None, "int8_weights", "int8"):
            path = Path(folder, f"{quantize}.tflite")
            settings: dict[str, Any] = {"quantize": quantize} if quantize else {}
            start = time.perf_counter()
            report = model.export(path, samples=x[:256], **settings)
            seconds = time.perf_counter() - start
            right = exburn.predict(path, x_test).argmax(-1) == y_test
            print(
                f"{quantize or 'float32':>12}: {100 * right.mean():.2f} %, "
                f"{report.bytes:,} bytes, {milliseconds(path, x_test):.3f} ms an "
                f"image, greatest error {report.error:.1e}, written in {seconds:.1f} s"
            )


if __name__ == "__main__":
    main()
