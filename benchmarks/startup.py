"""Cold start side by side with Keras: import, building, and the first epoch.

    python benchmarks/startup.py [--rounds 3] [--json out.json]

Every measurement runs in a process of its own, ExBurn and Keras in turn; medians are
printed with the ratio Keras / ExBurn.

- import: ``import exburn`` (and ``keras``) beyond ``import jax, flax.nnx, optax``.
- build: a model of 50 Dense layers of distinct widths, from its list to its weights.
- first epoch: the convnet on 1,024 samples, from ``fit`` to the end of the first epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from workloads import data, keras_like

WIDTHS = [64 + 3 * i for i in range(50)]


def library(peer: str):
    if peer == "exburn":
        import exburn

        return exburn
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    return keras


def measure_import(peer: str) -> float:
    import flax.nnx
    import jax
    import optax

    assert flax.nnx and jax and optax
    start = time.perf_counter()
    library(peer)
    return time.perf_counter() - start


def measure_build(peer: str) -> float:
    k = library(peer)
    start = time.perf_counter()
    model = k.Sequential([k.Input((32,)), *(k.layers.Dense(w) for w in WIDTHS)])
    assert len(model.get_weights()) == 100
    return time.perf_counter() - start


def measure_first_epoch(peer: str) -> float:
    k: Any = library(peer)
    x, y = data("cnn", 1_024)
    start = time.perf_counter()
    model = keras_like("cnn", k, k.layers, None)
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=128, epochs=1, verbose=0)
    return time.perf_counter() - start


MEASURES = {
    "import": measure_import,
    "build": measure_build,
    "first epoch": measure_first_epoch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2)
    args = parser.parse_args()
    if args.child:
        what, peer = args.child
        print("RESULT", MEASURES[what](peer))
        return
    report = {}
    for what in MEASURES:
        times: dict[str, list[float]] = {"exburn": [], "keras": []}
        for _ in range(args.rounds):
            for peer, held in times.items():
                command = [sys.executable, __file__, "--child", what, peer]
                done = subprocess.run(
                    command, capture_output=True, text=True, check=True
                )
                line = [s for s in done.stdout.splitlines() if s.startswith("RESULT")]
                held.append(float(line[-1].split()[1]))
        medians = {peer: statistics.median(held) for peer, held in times.items()}
        ratio = medians["keras"] / medians["exburn"]
        report[what] = {**medians, "ratio": ratio}
        print(
            f"{what:12} exburn {medians['exburn']:7.3f} s   keras "
            f"{medians['keras']:7.3f} s   Keras / ExBurn = {ratio:.1f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
