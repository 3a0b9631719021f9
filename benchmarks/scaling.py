"""Scaling on one device: time per epoch against data, batch, width and depth.

    python benchmarks/scaling.py [--peers exburn,scan] [--axes rows,batch] [--json F]

An MLP is trained with ``fit`` (progress bar and a metric on), by a hand-written scan,
and by Keras. From one common point, each axis changes one number. All points of a peer
run in one process; with ``--json`` every point is written as it is done, and what is
there already is not measured again. The median warm epoch counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from process import environment_of, read, write
from throughput import fit_and_time, run_epochs

PEERS = ("exburn", "scan", "keras")
BATCHES = (32, 128, 512, 2_048, 8_192)


@dataclasses.dataclass(frozen=True)
class Point:
    """One training: ``depth`` layers of ``width`` between the inputs and 10 outputs."""

    rows: int
    batch: int = 128
    width: int = 256
    depth: int = 3
    features: int = 64

    @property
    def name(self) -> str:
        return (
            f"rows={self.rows} batch={self.batch} width={self.width} depth={self.depth}"
        )


GPU = (
    Point(65_536, features=256),
    {
        "rows": (4_096, 16_384, 65_536, 262_144, 1_048_576),
        "batch": BATCHES,
        "width": (64, 256, 1_024, 4_096),
        "depth": (1, 3, 12, 48),
    },
)
CPU = (
    Point(16_384),
    {
        "rows": (1_024, 4_096, 16_384, 65_536),
        "batch": BATCHES,
        "width": (64, 256, 1_024),
        "depth": (1, 3, 12, 48),
    },
)


def points(base: Point, axes: dict[str, tuple[int, ...]]) -> dict[str, list[Point]]:
    return {
        axis: [dataclasses.replace(base, **{axis: value}) for value in values]
        for axis, values in axes.items()
    }


def sparse(values: list[Point]) -> list[Point]:
    """The ends and the middle: enough for a peer whose epochs take long."""
    return [values[0], values[len(values) // 2], values[-1]]


def data(point: Point) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((point.rows, point.features), dtype=np.float32)
    return x, rng.integers(0, 10, point.rows).astype(np.int32)


def run_fit(k, point: Point, epochs: int, verbose: int) -> list[float]:
    hidden = (k.layers.Dense(point.width, "relu") for _ in range(point.depth))
    model = k.Sequential([k.Input((point.features,)), *hidden, k.layers.Dense(10)])
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss=loss, metrics=["accuracy"])
    x, y = data(point)
    return fit_and_time(model, k.callbacks, x, y, point.batch, epochs, verbose)


def run_scan(point: Point, epochs: int) -> list[float]:
    import jax

    rng = np.random.default_rng(0)
    sizes = [point.features, *[point.width] * point.depth, 10]
    params = [
        {
            "w": rng.normal(0, (2 / a) ** 0.5, (a, b)).astype(np.float32),
            "b": np.zeros(b, np.float32),
        }
        for a, b in zip(sizes, sizes[1:], strict=False)
    ]

    def forward(params, x):
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    x, y = data(point)
    return run_epochs(jax.device_put(params), forward, x, y, point.batch, epochs, True)


def child(peer: str, axes: list[str], epochs: int, present: set[str]) -> None:
    import jax

    cpu = jax.default_backend() == "cpu"
    chosen = points(*(CPU if cpu else GPU))
    for axis in axes:
        listed = chosen[axis]
        for point in sparse(listed) if peer == "keras" else listed:
            if point.name in present:
                continue
            present.add(point.name)
            if peer == "scan":
                times = run_scan(point, epochs)
            elif peer == "exburn":
                import exburn

                times = run_fit(exburn, point, epochs, 1)
            else:
                os.environ["KERAS_BACKEND"] = "jax"
                import keras

                times = run_fit(keras, point, epochs, 0)
            spans = [b - a for a, b in zip(times, times[1:], strict=False)]
            out = {"name": point.name, **dataclasses.asdict(point)}
            out |= {"first": spans[0], "warm": spans[1:]}
            print("RESULT " + json.dumps(out), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--axes", default="rows,batch,width,depth")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child")
    parser.add_argument("--known", default="[]")
    args = parser.parse_args()
    if args.child:
        known = set(json.loads(args.known))
        child(args.child, args.axes.split(","), args.epochs, known)
        return
    results: dict[str, dict[str, dict]] = read(args.json)
    for peer in args.peers.split(","):
        entries = results.setdefault(peer, {})
        command = [sys.executable, __file__, "--child", peer, "--axes", args.axes]
        command += ["--epochs", str(args.epochs), "--known", json.dumps(list(entries))]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment_of()
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if not line.startswith("RESULT "):
                    continue
                out = json.loads(line[7:])
                entries[out["name"]] = out
                epoch = statistics.median(out["warm"])
                print(f"{peer:7} {out['name']:50} {epoch * 1e3:10.2f} ms", flush=True)
                if args.json:
                    write(args.json, results)


if __name__ == "__main__":
    main()
