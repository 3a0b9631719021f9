"""``make demo``: trains a CNN on real images, and predicts from its saved weights.

    python -m exburn.command_line.demo [--data digits|fashion_mnist] [--out demo_output]

Prints the device, the model, live progress, the test accuracy and a confusion table;
writes a plot of the history and the weights; then a new process loads the weights and
predicts again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import exburn
from exburn import layers
from exburn.errors import ExBurnError

EPOCHS = {"digits": 25, "fashion_mnist": 4}
REQUIRED = {"digits": 0.98, "fashion_mnist": 0.90}


def load(name: str) -> tuple[tuple, tuple]:
    """The images as ``[n, height, width, 1]`` in 0…1, and their labels."""
    if name == "digits":
        train, test = exburn.datasets.digits.load_data()
        scale = 16.0
    else:
        train, test = exburn.datasets.fashion_mnist.load_data()
        scale = 255.0

    def images(x: np.ndarray) -> np.ndarray:
        x = x.reshape(len(x), -1)
        side = int(np.sqrt(x.shape[1]))
        return (x.reshape(-1, side, side, 1) / scale).astype(np.float32)

    return (images(train[0]), train[1]), (images(test[0]), test[1])


def make_model(shape: tuple[int, ...]) -> exburn.Sequential:
    """A small convolutional network."""
    return exburn.Sequential(
        [
            exburn.Input(shape),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(96, activation="relu"),
            layers.Dense(10),
        ],
        name="demo",
    )


def confusion(labels: np.ndarray, predicted: np.ndarray) -> Table:
    """True classes in rows, predicted ones in columns."""
    table = Table(title="Confusion (rows: true, columns: predicted)")
    table.add_column("")
    for c in range(10):
        table.add_column(str(c), justify="right")
    for row in range(10):
        counts = [int(((labels == row) & (predicted == c)).sum()) for c in range(10)]
        cells = [
            f"[bold]{n}[/]" if c == row else f"[red]{n}[/]" if n else "·"
            for c, n in enumerate(counts)
        ]
        table.add_row(str(row), *cells)
    return table


def train(name: str, out: Path) -> int:
    console = Console()
    console.print(f"Device: [bold]{exburn.device_name()}[/]")
    (x, y), (x_test, y_test) = load(name)
    console.print(f"Data: {name}, {len(x):,} images to train, {len(x_test):,} to test")
    exburn.set_random_seed(0)
    model = make_model(x.shape[1:])
    model.summary()
    epochs = EPOCHS[name]
    steps = epochs * -(-len(x) // 64)
    schedule = exburn.optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(
        exburn.optimizers.Adam(schedule), loss="cross_entropy", metrics=["accuracy"]
    )
    start = time.perf_counter()
    history = model.fit(x, y, batch_size=64, epochs=epochs, validation_split=0.1)
    console.print(f"Trained in {time.perf_counter() - start:.1f} s")
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    predicted = model.predict(x_test, verbose=0).argmax(-1)
    console.print(confusion(y_test, predicted))
    out.mkdir(parents=True, exist_ok=True)
    plot, weights = out / "history.png", out / "weights.safetensors"
    history.plot().savefig(plot, dpi=120)
    model.save_weights(weights)
    np.save(out / "predicted.npy", predicted)
    console.print(f"History: {plot}\nWeights: {weights}")
    command = [sys.executable, "-m", "exburn.command_line.demo", "--again"]
    again = subprocess.run([*command, "--data", name, "--out", out], check=False)
    console.print(f"Test accuracy: [bold]{accuracy:.4f}[/]")
    if accuracy < REQUIRED[name]:
        console.print(f"[red]expected at least {REQUIRED[name]}[/]")
        return 1
    return again.returncode


def predict_again(name: str, out: Path) -> int:
    """In a new process: the saved weights give the same predictions."""
    _, (x_test, _) = load(name)
    model = make_model(x_test.shape[1:])
    model.load_weights(out / "weights.safetensors")
    predicted = model.predict(x_test, verbose=0).argmax(-1)
    same = bool((predicted == np.load(out / "predicted.npy")).all())
    print(f"A new process predicts the same from the saved weights: {same}")
    return 0 if same else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", choices=sorted(EPOCHS), default="digits")
    parser.add_argument("--out", type=Path, default=Path("demo_output"))
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        run = predict_again if args.again else train
        return run(args.data, args.out)
    except ExBurnError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
