"""What saving and loading a model file costs, beside safetensors alone.

A model of 500 MB is saved and loaded by turns with safetensors' own functions on the
same arrays. Ours also computes a SHA-256 of every tensor, flushes the file to the disk,
and checks the digests on loading; so safetensors' time is shown alone, with an fsync,
and with the digests computed after it.

    PYTHONSAFEPATH=1 python benchmarks/saving.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import safetensors
import safetensors.numpy

import exburn

WIDTH = 2048  # a layer of 16.8 MB


def model_of(megabytes: int) -> exburn.Sequential:
    """A stack of equal Dense layers of this size together."""
    count = max(1, round(megabytes * 1e6 / (4 * WIDTH * (WIDTH + 1))))
    layers = [exburn.layers.Dense(WIDTH) for _ in range(count)]
    return exburn.Sequential([exburn.Input((WIDTH,)), *layers])


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def digests(arrays: dict[str, np.ndarray]) -> list[str]:
    views = (array.reshape(-1).data for array in arrays.values())
    return [hashlib.sha256(view).hexdigest() for view in views]


def measure(megabytes: int, rounds: int, folder: Path) -> dict[str, Any]:
    model = model_of(megabytes)
    arrays = {w.path: np.asarray(w.get_value()) for w in model.weights}
    ours, theirs = folder / "m.exburn", folder / "m.safetensors"

    def read() -> None:
        loaded = safetensors.numpy.load_file(theirs)
        jax.block_until_ready(jax.device_put(loaded))

    def load() -> None:
        loaded = exburn.load_model(ours)
        jax.block_until_ready([w.get_value() for w in loaded.weights])

    works: dict[str, Callable[[], Any]] = {
        "exburn save": lambda: model.save(ours, max_shard_size=None),
        "safetensors save_file": lambda: safetensors.numpy.save_file(arrays, theirs),
        "fsync": lambda: sync(theirs),
        "digests": lambda: digests(arrays),
        "exburn load": load,
        "safetensors load_file": read,
    }
    times_by_work: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():  # by turns, so that noise meets all of them
            times_by_work[name].append(timed(work))
    medians = {
        name: {
            "seconds": statistics.median(t for t, _ in times[1:]),
            "cpu_seconds": statistics.median(c for _, c in times[1:]),
        }
        for name, times in times_by_work.items()
    }
    size = sum(array.nbytes for array in arrays.values())
    return {"bytes": size, "tensors": len(arrays), "medians": medians}


def ratios(medians: dict[str, dict[str, float]]) -> dict[str, float]:
    """Our times over those of safetensors and what ours does besides."""
    t = {name: value["seconds"] for name, value in medians.items()}
    written = t["safetensors save_file"]
    return {
        "save / save_file": t["exburn save"] / written,
        "save / (save_file + fsync)": t["exburn save"] / (written + t["fsync"]),
        "save / (save_file + fsync + digests)": t["exburn save"]
        / (written + t["fsync"] + t["digests"]),
        "save / (save_file + digests)": t["exburn save"] / (written + t["digests"]),
        "load / load_file": t["exburn load"] / t["safetensors load_file"],
        "load / (load_file + digests)": t["exburn load"]
        / (t["safetensors load_file"] + t["digests"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of saving and loading")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary one")
    results = Path(__file__).parent / "results" / "saving-cpu.json"
    parser.add_argument("--out", type=Path, default=results)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(options.megabytes, options.rounds, Path(folder))
    result["ratios"] = ratios(result["medians"])
    result["versions"] = {
        "exburn": exburn.__version__,
        "jax": jax.__version__,
        "safetensors": safetensors.__version__,
        "python": platform.python_version(),
    }
    print(f"{result['bytes'] / 1e6:.0f} MB in {result['tensors']} tensors")
    for name, value in result["medians"].items():
        rate = result["bytes"] / value["seconds"] / 1e9
        print(f"{name:24s} {value['seconds']:7.3f} s  {rate:6.2f} GB/s")
    for name, value in result["ratios"].items():
        print(f"{name:40s} {value:5.2f}")
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
