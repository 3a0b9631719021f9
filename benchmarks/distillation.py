"""A distilled student beside the same student alone, over several seeds.

    python benchmarks/distillation.py [--seeds 5] [--json out.json]
    python benchmarks/distillation.py --folder FOLDER    # of Fashion-MNIST's four files

The teacher learns from all 60,000 images of Fashion-MNIST. The student, whose hidden
layer has 64 units, is given 2,000 of them with their labels, and 60 epochs: alone, and
with the teacher at several temperatures. Each seed draws its own weights and order; the
interval is that of the difference to the student alone, seed by seed.

``--all --units 16`` gives a smaller student all 60,000 images, and 10 epochs: labels
are enough there, and to repeat a teacher's thoughts on every class is too much for it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import jax
from int8_files import load

import exburn
from exburn import layers
from exburn.distillation import FeatureDistillation, SoftTargets
from exburn.tuning import confidence_interval

FEW, EPOCHS = 2_000, 60
HINT = FeatureDistillation("mse", "last", "hidden", project=True)
WAYS: dict[str, dict[str, Any]] = {
    "T=1, targets 0.1": {"losses": [SoftTargets(1.0)], "student_loss_weight": 0.1},
    "T=2, targets 0.1": {"losses": [SoftTargets(2.0)], "student_loss_weight": 0.1},
    "T=4, targets 0.5": {"losses": [SoftTargets(4.0)], "student_loss_weight": 0.5},
    "T=2, targets 0.1, features": {
        "losses": [SoftTargets(2.0), HINT],
        "distillation_loss_weights": [1.0, 0.1],
        "student_loss_weight": 0.1,
    },
}


def data(folder: str | None) -> tuple:
    splits = load("fashion_mnist", folder)
    return tuple((x.reshape(-1, 784), y.astype("int32")) for x, y in splits)


def compiled(stack: list, seed: int) -> Any:
    model = exburn.Sequential([exburn.Input((784,)), *stack])
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=seed)
    return model


def make_teacher(seed: int = 0) -> Any:
    stack = []
    for name in ("first", "last"):
        stack += [layers.Dense(512, "relu", name=name), layers.Dropout(0.3)]
    return compiled([*stack, layers.Dense(10)], seed)


def make_student(seed: int, units: int) -> Any:
    return compiled(
        [layers.Dense(units, "relu", name="hidden"), layers.Dense(10)], seed
    )


def measure(
    train: tuple, test: tuple, teacher: Any, seeds: int, epochs: int, units: int
) -> dict[str, list[float]]:
    """Test accuracy of each way for each seed, in per cent."""
    accuracies: dict[str, list[float]] = {"alone": []} | {way: [] for way in WAYS}
    for seed in range(seeds):
        for way, scores in accuracies.items():
            student = make_student(seed, units)
            model = student
            if way != "alone":
                options = dict(WAYS[way])
                losses = options.pop("losses")
                model = exburn.Distiller(teacher, student, losses, **options)
            model.fit(*train, epochs=epochs, batch_size=100, verbose=0)
            result = student.evaluate(*test, verbose=0, return_dict=True)
            scores.append(100 * result["accuracy"])
            jax.clear_caches()
            print(f"seed {seed}, {way}: {scores[-1]:.2f} %", flush=True)
    return accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    began = time.perf_counter()
    (x, y), test = data(asked.folder)
    teacher = make_teacher()
    teacher.fit(x, y, epochs=12, batch_size=256, verbose=0)
    score = 100 * teacher.evaluate(*test, verbose=0, return_dict=True)["accuracy"]
    few, epochs = (len(x), 10) if asked.all else (FEW, EPOCHS)
    train = x[:few], y[:few]
    accuracies = measure(train, test, teacher, asked.seeds, epochs, asked.units)
    print(f"\nteacher {score:.2f} %; students of {few:,} images, {epochs} epochs")
    summary = {}
    for way, scores in accuracies.items():
        gains = [a - b for a, b in zip(scores, accuracies["alone"], strict=True)]
        own, gain = confidence_interval(scores), confidence_interval(gains)
        summary[way] = {"mean": own.mean, "gain": gain.mean, "low": gain.low}
        print(f"{way:26} {own} %   {gain.mean:+.2f} [{gain.low:.2f}, {gain.high:.2f}]")
    if asked.json is not None:
        result = {
            "teacher": score,
            "images": few,
            "units": asked.units,
            "epochs": epochs,
            "scores": accuracies,
            "summary": summary,
            "seconds": time.perf_counter() - began,
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "python": platform.python_version(),
        }
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
